"""A helper process as an agent runs it: a pipe each way, JSON lines back."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from howdah.storage.checkpoints.versions import CheckpointSpec

DEADLINE_S = 45.0


class Helper:
    """A helper process and what it says."""

    def __init__(self, what: str, spec: CheckpointSpec, folder: Path) -> None:
        path = folder / "spec.json"
        path.write_bytes(msgspec.json.encode(spec))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "howdah.storage.helper", what, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._said: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(json.loads(line))
        self._said.put(None)

    def says(self) -> dict[str, Any] | None:
        """The next thing it says; None at its end."""
        return self._said.get(timeout=DEADLINE_S)

    def silent(self) -> bool:
        return self._said.empty()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end_of_file(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ends(self) -> int:
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
