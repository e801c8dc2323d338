"""Tests; `make test` runs those that take minutes, `make test-all` all of them."""
