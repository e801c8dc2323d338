"""Runs kernels that other people wrote, from their own checkouts, on the simulator: ``python -m tests.third_party``.

    python -m tests.third_party --sdk aws-neuron-sdk [--samples nki-samples] [--library nki-library]

Their sources are never part of this repository, so this is no part of the test run.
"""
