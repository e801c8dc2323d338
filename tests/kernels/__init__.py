"""Tests of nki_src: the kernels on the simulator, against float64 NumPy."""
