"""The Hub package: build it, check it, publish it, and load it after verifying every file."""

from .verified import Pin, Untrusted, load, pin

__all__ = ["Pin", "Untrusted", "load", "pin"]
