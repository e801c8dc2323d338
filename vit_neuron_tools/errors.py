"""The error whose text is a sentence for the person at the command line."""

from __future__ import annotations


class UserError(Exception):
    """Says what was given, what is allowed and what to do; the command line prints it without a traceback."""
