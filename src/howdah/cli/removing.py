"""What `howdah rm` and `howdah prune` share: jobs removed one after the other, and what is said."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from howdah.backends.base import BackendError
from howdah.cli.failures import report
from howdah.cli.paint import counted
from howdah.cli.terminal import echo
from howdah.client.errors import HowdahError
from howdah.client.removal import NotRemoved, remove
from howdah.packing.archives import quantity
from howdah.storage.jobdir import JobDirectory, StorageError


class Removing:
    """Removes jobs; one that cannot be removed does not keep the others."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._removed: list[dict[str, object]] = []
        self._failed: list[dict[str, object]] = []
        self._freed = 0
        self.exit_code = 0

    def remove(self, job_id: str, find: Callable[[], JobDirectory]) -> None:
        """Remove the job that ``find`` finds, and say so."""
        try:
            directory = find()
            job_id = directory.job_id
            removed = remove(directory)
        except (HowdahError, BackendError, StorageError) as error:
            if isinstance(error, NotRemoved):
                self._freed += error.freed
            self._failed.append({"job_id": job_id, "reason": str(error)})
            self.exit_code = max(self.exit_code, report(error))
            return
        self._freed += removed.freed
        self._removed.append({"job_id": job_id, "bytes": removed.freed})
        if not self._as_json:
            stays = f"; its {removed.stays} stay" if removed.stays else ""
            echo(f"{job_id} removed, {quantity(removed.freed)} freed{stays}")

    def total(self) -> str:
        """All in one line."""
        failed = f", {len(self._failed)} not removed" if self._failed else ""
        return (
            f"{counted(len(self._removed), 'job')} removed{failed}, {quantity(self._freed)} freed"
        )

    def document(self) -> bytes:
        """All as JSON."""
        return msgspec.json.encode({"removed": self._removed, "failed": self._failed})
