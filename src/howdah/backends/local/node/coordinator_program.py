"""What a coordinator's process runs: the first is a fork of the node daemon, each later one an interpreter of its own.

The names here are kept by later releases: a daemon asks for them whose Howdah has been upgraded since it
started. ``module:function`` of the coordinator takes a job directory, which may be an older release's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from howdah.backends.local.node.forking import cannot_start, entry
from howdah.backends.local.node.supervision import NOT_INSTALLED

COORDINATOR = "howdah.coordinator.main:main"
"""Named, not imported: the coordinator is a room above this one."""
BACKEND = "howdah.backends.local.backend:LocalBackend"
"""What a coordinator here will ask for."""

_ROOT = str(Path(__file__).parents[4])
"""The folder that ``howdah`` is in; an isolated interpreter need not look there."""
# In the daemon's memory, as no file is sure to be where it was. All is imported before anything is begun:
# while one release replaces another, modules are missing for a moment.
_PROGRAM = f"""
import sys
root, job_dir, coordinator, *more = sys.argv[1:]
if root not in sys.path:
    sys.path.insert(0, root)
sys.path.extend(more)
try:
    from importlib import import_module
    import_module({BACKEND.partition(":")[0]!r})
    module, _, function = coordinator.partition(":")
    main = getattr(import_module(module), function)
except Exception as error:
    print(f"The coordinator cannot be imported: {{type(error).__name__}}: {{error}}", file=sys.stderr)
    sys.exit({NOT_INSTALLED})
sys.exit(main(job_dir))
"""


class CoordinatorProgram(msgspec.Struct, frozen=True):
    """How a coordinator is started."""

    entry: str = COORDINATOR
    """``module:function``."""
    paths: tuple[str, ...] = ()
    """Folders to import it from, besides."""

    def load(self) -> str:
        """Import all it needs into this process; returns why it cannot be, or ""."""
        try:
            entry(self.entry)
            entry(BACKEND)
        except Exception as error:
            return f"The coordinator cannot be imported: {type(error).__name__}: {error}"
        return ""

    def run(self, job_dir: Path) -> int:
        """Coordinate in this process; returns its exit code."""
        return entry(self.entry)(str(job_dir))

    def become(self, job_dir: Path) -> int:
        """Replace this process by an interpreter that coordinates. Returns only where there is none."""
        arguments = ("-I", "-c", _PROGRAM, _ROOT, str(job_dir), self.entry, *self.paths)
        try:
            os.execv(sys.executable, [sys.executable, *arguments])
        except OSError as error:
            cannot_start(f"{sys.executable} cannot be started: {error}")
            return NOT_INSTALLED
