"""Tests of the Hub package on a CPU: references, public operations, layers, and the registry. No simulated device."""
