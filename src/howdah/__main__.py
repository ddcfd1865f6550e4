"""``python -m howdah`` is the ``howdah`` command."""

from __future__ import annotations

import sys

from howdah.cli.main import program

sys.exit(program())
