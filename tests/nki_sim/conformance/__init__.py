"""Every instruction against values computed independently, one table per instruction, and one of refusals."""
