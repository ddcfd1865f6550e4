"""Programs that cannot be started."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from howdah.agent.forwarder import LogForwarder
from howdah.agent.programs import Programs, StartProblem
from howdah.storage.logs import LogWriter
from tests.agent.rig import shell


class FullHost:
    """Starts nothing."""

    umask = None

    def __init__(self, number: int) -> None:
        self._number = number

    def start(self, *_: Any, **__: Any) -> None:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(
    ("number", "transient"),
    [(errno.EAGAIN, True), (errno.ENOMEM, True), (errno.ENOENT, False), (errno.EACCES, False)],
)
async def test_a_start_that_fails_for_want_of_room_may_work_later(
    tmp_path: Path, number: int, transient: bool
) -> None:
    pump = LogForwarder(LogWriter(tmp_path / "0.log"), lambda: None)
    programs = Programs(FullHost(number), pump, tmp_path)  # pyright: ignore[reportArgumentType]
    with pytest.raises(StartProblem) as caught:
        programs.start([shell("true")], lambda spec: spec.env)
    assert caught.value.transient is transient
