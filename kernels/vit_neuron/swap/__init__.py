"""What the registry is made of: entries, conditions, the report, and the two ways of putting a kernel into a model."""
