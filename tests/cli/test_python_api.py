"""The Python API against real jobs: handles, callbacks, functions, and all of it asynchronously."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import howdah
from howdah import aio
from howdah.backends.base import PerhapsSubmitted, Step
from howdah.backends.local.submit import LocalSubmission
from howdah.client.handle import AsyncJobHandle
from howdah.storage.jobdir import JobDirectory, base_folder, list_jobs
from tests.cli.howdah import gone, job_file, newest
from tests.cli.inside import howdah as run

WAITS = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.01)
print("done")
"""


def add_rank(number: int, *, factor: int = 1) -> tuple[int, str]:
    from howdah import task

    context = task.context()
    print("rank", context.rank, "of", context.world_size)
    return number + factor * context.rank, os.environ["HOWDAH_ROLE"]


def test_an_unknown_job_is_told_in_the_words_of_the_command(tmp_path: Path) -> None:
    said = run("status", "nothing", "--store", str(tmp_path), code=2).told
    with pytest.raises(howdah.NoSuchJob) as error:
        howdah.connect("nothing", store=str(tmp_path))
    assert said == f"howdah: {error.value}"


def test_a_job_is_submitted_watched_and_waited_for(tmp_path: Path) -> None:
    lines: list[str] = []
    states: list[str] = []
    events: list[str] = []
    threads: set[str] = set()

    def on_log(line: howdah.LogLine) -> None:
        threads.add(threading.current_thread().name)
        lines.append(str(line))

    job = howdah.Job(
        name="api",
        command=[sys.executable, "-c", "print('one'); print('two')"],
        source=None,
        roles={"worker": howdah.Role(instances=2)},
    )
    with howdah.submit(
        job,
        on_log=on_log,
        on_state=lambda view: states.append(view.outcome or view.phase),
        on_event=lambda event: events.append(event.kind),
    ) as handle:
        assert handle.status().job_id == handle.job_id
    view = handle.wait(check=True)
    assert view.outcome == "succeeded"
    assert sorted(lines) == [f"worker:{n} | {text}" for n in (0, 1) for text in ("one", "two")]
    assert states[-1] == "succeeded"
    assert events[-1] == "finished"
    assert len(threads) == 1 and "MainThread" not in threads
    assert [line.text for line in handle.logs("worker:1", follow=False)] == ["one", "two"]
    assert [event.kind for event in handle.events(follow=False)] == events
    assert howdah.connect(handle.job_id[:-1]).ended() == view
    assert [view.job_id for view in howdah.jobs()] == [handle.job_id]


def test_a_running_job_is_followed_and_stopped(tmp_path: Path) -> None:
    """By an exception of the program that submitted it, as it leaves the block."""
    with pytest.raises(ZeroDivisionError):
        _follow_and_fail(tmp_path)
    view = gone(newest())
    assert (view.outcome, view.exit_code) == ("stopped", howdah.ExitCode.STOPPED)
    assert "ZeroDivisionError in the program that submitted it" in view.reason
    handle = howdah.connect(view.job_id)
    with pytest.raises(howdah.JobFailed, match="ZeroDivisionError") as caught:
        handle.wait(check=True)
    assert caught.value.view == view


def _follow_and_fail(tmp_path: Path) -> None:
    handle = howdah.submit(job_file(tmp_path, WAITS), overrides=["roles.worker.instances=2"])
    begun = [str(line) for _, line in zip(range(2), handle.logs(), strict=False)]
    assert sorted(begun) == ["worker:0 | begun", "worker:1 | begun"]
    with pytest.raises(TimeoutError):
        handle.wait(0.05)
    assert "train.py" in handle.stacks("worker:1")
    with pytest.raises(howdah.BadInput, match="has no task 'ps:0'; it has worker:0, worker:1"):
        next(handle.logs("ps:0"))
    with handle:
        raise ZeroDivisionError


def test_a_wrong_job_is_refused_before_anything_starts(home: Path) -> None:
    with pytest.raises(howdah.JobFileError, match="pytorch"):
        howdah.submit(howdah.Job(framework="pytroch", command="true"))
    with pytest.raises(howdah.BadInput, match="no backend 'yran'"):
        howdah.submit(howdah.Job(command="true", source=None), backend="yran")
    assert not home.exists()


@pytest.mark.nightly
def test_what_a_program_should_know_of_its_jobs_is_a_warning(tmp_path: Path) -> None:
    lost = "env.JOB_NAME: Howdah sets it for the programs of worker, which do not get this value"
    env = {"JOB_NAME": "mine"}
    file = job_file(tmp_path, "", env=env)

    async def submit() -> None:
        await (await aio.submit(file)).wait()

    starts: dict[str, Callable[[], object]] = {
        "run": lambda: howdah.run(int, env=env),
        "aio.submit": lambda: asyncio.run(submit()),
    }
    for name, start in starts.items():
        with warnings.catch_warnings(record=True, action="always") as told:
            start()
        assert lost in {str(each.message) for each in told}, name


def test_a_function_runs_in_every_rank_and_its_values_come_back() -> None:
    offset = 100  # from the enclosing scope, as in a notebook

    def function(number: int, *, factor: int = 1) -> tuple[int, str]:
        value, role = add_rank(number, factor=factor)
        return value + offset, role

    printed: list[str] = []
    values = howdah.run(
        function,
        roles={"chief": 1, "worker": 2},
        framework="pytorch",
        args=(5,),
        kwargs={"factor": 10},
        on_log=lambda line: printed.append(str(line)),
    )
    assert values == {0: (105, "chief"), 1: (115, "worker"), 2: (125, "worker")}
    assert "worker:1 | rank 2 of 3" in printed
    before = newest().job_id
    folder = newest().path / "function"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "call.pkl").stat().st_mode & 0o777 == 0o600
    for result in newest().results.iterdir():
        assert result.stat().st_mode & 0o777 == 0o600
    assert "worker:0 | rank 1 of 3" in run("rerun", before).out


def test_what_a_rank_raises_comes_back_with_its_traceback() -> None:
    def function() -> None:
        if os.environ["HOWDAH_RANK"] == "1":
            raise LookupError("the batch is empty")

    with pytest.raises(howdah.JobFailed) as caught:
        howdah.run(function, roles={"worker": 2}, restart=howdah.Restart.NEVER)
    text = str(caught.value)
    assert "In rank 1:" in text
    assert "in function" in text and "LookupError: the batch is empty" in text
    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.view.failures[0].task == "worker:1"


class Unknown:
    """Cannot be made again from its pickle."""

    def __reduce__(self) -> Any:
        return importlib.import_module, ("no_such_module",)


class Picky(Exception):
    """As many are: it can be pickled, and its pickle cannot be read."""

    def __init__(self, batch: int, *, why: str) -> None:
        super().__init__(f"batch {batch} is {why}")


@pytest.mark.nightly
def test_what_a_rank_raises_is_told_where_its_exception_cannot_be_had() -> None:
    def function() -> Any:
        if os.environ["HOWDAH_RANK"] == "1":
            raise Picky(7, why="empty")
        return Unknown()

    with pytest.raises(howdah.JobFailed) as caught:
        howdah.run(function, roles={"worker": 2}, framework="command", restart=howdah.Restart.NEVER)
    text = str(caught.value)
    assert "In rank 1:" in text and "in function" in text and "Picky: batch 7 is empty" in text
    assert caught.value.__cause__ is None
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.view) == (text, caught.value.view)


@pytest.mark.nightly
def test_a_value_that_this_program_cannot_read_is_said_to_be() -> None:
    with pytest.raises(
        howdah.BadInput, match="what rank 0 returned cannot be unpickled here"
    ) as told:
        howdah.run(Unknown)
    assert "No module named 'no_such_module'" in str(told.value)
    assert str(newest().results / "0.pkl") in str(told.value)


def test_what_is_no_job_and_no_function_is_refused_in_words() -> None:
    with pytest.raises(howdah.BadInput, match=r"path of a job file, not dict; howdah\.Job\("):
        howdah.submit({"command": "true"})  # pyright: ignore
    with pytest.raises(howdah.BadInput, match=r"'train\.py' is no function; for a script"):
        howdah.run("train.py")  # pyright: ignore
    with pytest.raises(howdah.BadInput, match=r"write roles=\{'worker': 3\}"):
        howdah.run(add_rank, roles=3, args=(1,))  # pyright: ignore
    job = howdah.Job(command="true", roles={"worker": howdah.Role()})
    for value in (0.1, "0.1"):
        with pytest.raises(howdah.BadInput, match=r"lr: .* is one value; write a list"):
            howdah.sweep(job, {"lr": value})  # pyright: ignore
    for value in (b"ab", {"a": 1, "b": 2}):
        with pytest.raises(howdah.BadInput, match=r"lr: .* is no list of values; write \{'lr': \["):
            howdah.sweep(job, {"lr": value})  # pyright: ignore


def test_a_function_that_cannot_be_sent_is_refused_in_words(home: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(howdah.BadInput, match="cannot be sent to the job's processes"):
        howdah.run(lambda: lock.acquire())
    assert not home.exists()


def test_a_function_job_that_takes_too_long_is_stopped() -> None:
    def function() -> None:
        import time

        time.sleep(600)

    with pytest.raises(TimeoutError):
        howdah.run(function, timeout_s=1.5)
    assert gone(newest()).outcome == "stopped"


@pytest.mark.nightly
def test_a_task_of_several_processes_gives_a_value_for_each_rank() -> None:
    roles = {"worker": howdah.Role(instances=2, processes=2)}
    assert howdah.run(add_rank, roles=roles, args=(10,), framework="pytorch") == {
        rank: (10 + rank, "worker") for rank in range(4)
    }


def test_ctrl_c_in_a_program_stops_its_function_job(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import time, howdah\n"
        "def function():\n"
        "    print('begun', flush=True)\n"
        "    time.sleep(600)\n"
        "howdah.run(function, on_log=lambda line: print(line, flush=True))\n"
    )
    process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "worker:0 | begun\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    view = gone(newest())
    assert (view.outcome, "KeyboardInterrupt" in view.reason) == ("stopped", True)


def test_all_of_it_works_asynchronously(tmp_path: Path) -> None:
    async def test() -> None:
        states: list[str] = []

        async def on_state(view: howdah.JobView) -> None:
            states.append(view.phase)

        handle = await aio.submit(job_file(tmp_path, WAITS), on_state=on_state)
        async for line in handle.logs():
            assert line.text == "begun"
            break
        (handle.directory / "shared" / "go").touch()
        view = await handle.wait(30)
        assert view.outcome == "succeeded"
        assert states[-1] == "finished" and len(states) > 1
        assert [line.text async for line in handle.logs(follow=False)] == ["begun", "done"]
        assert [view.job_id for view in await aio.jobs()] == [handle.job_id]
        assert (await (await aio.connect(handle.job_id)).status()) == view
        assert await aio.run(add_rank, args=(1,), roles={"worker": 2}) == {
            0: (1, "worker"),
            1: (2, "worker"),
        }

    asyncio.run(test())


@pytest.mark.nightly
def test_cancelling_an_asynchronous_run_stops_its_job(tmp_path: Path) -> None:
    def function() -> None:
        import time

        print("begun", flush=True)
        time.sleep(600)

    async def test() -> None:
        begun = asyncio.Event()
        running = asyncio.create_task(aio.run(function, on_log=lambda line: begun.set()))
        await asyncio.wait_for(begun.wait(), 30)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(test())
    assert gone(newest()).outcome == "stopped"


@pytest.mark.nightly
def test_a_note_that_python_makes_an_error_does_not_break_off_a_submission(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    go = LocalSubmission.go

    def with_a_note(
        submission: LocalSubmission, directory: JobDirectory, progress: Callable[[Step], None]
    ) -> None:
        go(submission, directory, progress)
        progress(Step(what="submitting", note="it is taken, but not all of it is heeded"))

    monkeypatch.setattr(LocalSubmission, "go", with_a_note)
    file = job_file(tmp_path, WAITS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        job_id = howdah.submit(file).job_id
    assert capfd.readouterr().err == "RuntimeWarning: it is taken, but not all of it is heeded\n"
    howdah.connect(job_id).stop()
    assert gone(newest()).outcome == "stopped"
    file = job_file(
        tmp_path, WAITS, roles={"worker": {"instances": 2}}, source=".", **{"in-place": True}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(RuntimeWarning, match="in-place: 2 tasks write to one folder"):
            howdah.submit(file)
    assert [each.job_id for each in list_jobs(base_folder())] == [job_id]


class Held:
    """Submissions to this machine that wait before or after they hand their job over, until they are
    cancelled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
        self.reached, self._cancelled = threading.Event(), threading.Event()
        go, cancel = LocalSubmission.go, LocalSubmission.cancel

        def held(submission: LocalSubmission, *arguments: Any) -> None:
            if when == "before":
                self._wait()
            go(submission, *arguments)
            if when == "after":
                self._wait()

        def cancelled(submission: LocalSubmission) -> None:
            cancel(submission)
            self._cancelled.set()

        monkeypatch.setattr(LocalSubmission, "go", held)
        monkeypatch.setattr(LocalSubmission, "cancel", cancelled)

    def _wait(self) -> None:
        self.reached.set()
        assert self._cancelled.wait(60)


@pytest.mark.parametrize(("what", "when"), [("run", "before"), ("submit", "after")])
def test_cancelling_what_submits_a_job_leaves_none_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, when: str
) -> None:
    held = Held(monkeypatch, when)

    async def test() -> None:
        work = aio.run(time.sleep, args=(600,)) if what == "run" else aio.submit(file)
        working = asyncio.create_task(work)
        await asyncio.to_thread(held.reached.wait, 60)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    file = job_file(tmp_path, WAITS)
    asyncio.run(test())
    if when == "before":
        assert list_jobs(base_folder()) == []
    else:
        view = gone(newest())
        assert (view.outcome, "CancelledError" in view.reason) == ("stopped", True)


def test_a_job_that_goes_on_after_its_cancelled_submission_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def refuse(self: AsyncJobHandle, *_: object, **__: object) -> None:
        raise howdah.Unreachable("its coordinator does not answer")

    held = Held(monkeypatch, "after")

    async def test() -> None:
        working = asyncio.create_task(aio.submit(job_file(tmp_path, WAITS)))
        await asyncio.to_thread(held.reached.wait, 60)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    with monkeypatch.context() as patched, pytest.warns(RuntimeWarning) as told:
        patched.setattr(AsyncJobHandle, "stop", refuse)
        asyncio.run(test())
    howdah.connect(newest().job_id).stop()
    assert f"howdah stop {newest().job_id} stops it" in str(told[0].message)
    assert gone(newest()).outcome == "stopped"


def test_a_job_that_may_go_on_after_its_cancelled_submission_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cluster has got it, and does not answer any more."""
    reached, cancelled = threading.Event(), threading.Event()

    def unknown(*_: object, submission: LocalSubmission, **__: object) -> None:
        reached.set()
        assert cancelled.wait(60)
        submission.close()
        raise PerhapsSubmitted("Whether YARN has taken the job is not known")

    async def test() -> None:
        working = asyncio.create_task(aio.submit(job_file(tmp_path, WAITS)))
        await asyncio.to_thread(reached.wait, 60)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    monkeypatch.setattr(aio, "submit_loaded", unknown)
    monkeypatch.setattr(LocalSubmission, "cancel", lambda submission: cancelled.set())
    with pytest.warns(RuntimeWarning, match="Whether YARN has taken the job"):
        asyncio.run(test())
