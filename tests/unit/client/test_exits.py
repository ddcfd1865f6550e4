"""What a job that has ended comes to: the exit code, the exception, the values."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pytest

from howdah.client.errors import ExitCode, JobFailed, NotSaved, exit_code_of
from howdah.client.handle import raise_unless_succeeded
from howdah.client.submission.functions import values
from howdah.core.state import Outcome
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import JobMeta
from howdah.wire.status import JobView, exit_code
from tests.unit.cli.views import FAILED, STOPPED, SUCCEEDED, TIMED_OUT

UNSAVED = msgspec.structs.replace(
    SUCCEEDED, unsaved=("worker:0: checkpoints: /mnt/full/000004 can't be written: full",)
)


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (SUCCEEDED, ExitCode.SUCCEEDED),
        (UNSAVED, ExitCode.UNSAVED),
        (FAILED, ExitCode.FAILED),
        (msgspec.structs.replace(FAILED, unsaved=UNSAVED.unsaved), ExitCode.FAILED),
        (TIMED_OUT, ExitCode.TIMED_OUT),
        (STOPPED, ExitCode.STOPPED),
    ],
)
def test_only_a_success_has_a_code_of_its_own_for_what_was_not_saved(
    view: JobView, code: ExitCode
) -> None:
    assert exit_code_of(view) is code
    assert view.outcome is not None
    assert exit_code(Outcome(view.outcome), view.unsaved) == code


def test_waiting_for_success_raises_where_something_is_saved_nowhere() -> None:
    raise_unless_succeeded(SUCCEEDED)
    with pytest.raises(NotSaved) as error:
        raise_unless_succeeded(UNSAVED)
    assert error.value.view is UNSAVED
    assert error.value.exit_code is ExitCode.UNSAVED
    assert "succeeded, but not all of it could be saved" in str(error.value)
    assert "/mnt/full/000004 can't be written: full" in str(error.value)
    with pytest.raises(JobFailed) as failure:
        raise_unless_succeeded(FAILED)
    assert not isinstance(failure.value, NotSaved)


def test_the_values_of_a_function_are_given_with_a_warning(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / UNSAVED.job_id)
    job = Job(command="x", roles={"worker": Role(instances=2)})
    meta = JobMeta(job_id=UNSAVED.job_id, user="ada", backend="local", submitted=0.0)
    directory.create(job, meta)
    for rank in range(2):
        (directory.results / f"{rank}.pkl").write_bytes(pickle.dumps((True, rank * 10)))
    with pytest.warns(RuntimeWarning, match="not all of it could be saved"):
        assert values(directory, UNSAVED) == {0: 0, 1: 10}
