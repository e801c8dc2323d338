"""Command line, demo, and what a publisher needs; may import everything else."""
