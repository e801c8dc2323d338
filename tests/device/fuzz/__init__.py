"""Odd calls of the public operations on the simulated device, each held to a float64 computation of the same inputs.

A case is a small frozen dataclass: what hypothesis draws, what a failure prints, and what becomes a row of
test_rows.py. `python -m tests.device.fuzz --cases 10000` runs as many as one likes and prints the counts.
"""
