"""`nki.language`: tensors, operators, loops and the mathematics on tiles."""
