"""What tests of several folders share."""

from __future__ import annotations

import os

# No test may reach a hub. Set before any library reads it.
os.environ["HF_HUB_OFFLINE"] = "1"
