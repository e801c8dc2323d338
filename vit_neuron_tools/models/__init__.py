"""Trained models that come inside PyPI packages."""
