"""What a submission says while it takes long."""

from __future__ import annotations

import pytest

from howdah.backends.base import Step
from howdah.cli.display import progress


def test_steps_that_alternate_are_said_once_each_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "QUICK_S", 0.0)
    with progress.SubmissionProgress() as show:
        for done in range(3):
            for what in ("uploading source, 3 B", "uploading runtime, 24 MB"):
                show(Step(what=what, done=done))
    assert capsys.readouterr().err.splitlines() == [
        "howdah | uploading source, 3 B",
        "howdah | uploading runtime, 24 MB",
    ]
