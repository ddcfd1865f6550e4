"""The seed of a run's random choices: the same in all of its processes."""

from __future__ import annotations

import os
import secrets

IN_CI = bool(os.environ.get("CI"))
SEED = int(
    os.environ.setdefault("HOWDAH_SEED", str(20261121 if IN_CI else secrets.randbelow(2**31)))
)
