"""Benchmarks: what the simulator's timing model says of the kernels, and how well it knows the machine."""
