"""Which Howdah this is, and where its code lies. Standard library only."""

import os

__version__ = "0.2.0"

PACKAGE = os.path.dirname(__file__)
"""The folder ``howdah``."""
