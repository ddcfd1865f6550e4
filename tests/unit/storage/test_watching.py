"""The watcher as agents run it, with a pipe each way: in a thread, and in a process where signals matter."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest

from howdah.core.messages import Task
from howdah.storage.checkpoints import watching
from howdah.storage.checkpoints.local_fallback import kept, take_over
from howdah.storage.checkpoints.restoring import restore
from howdah.storage.checkpoints.upload import publish
from howdah.storage.checkpoints.versions import CheckpointProblem, CheckpointSpec, Saved
from howdah.storage.checkpoints.watching import RequestKind, Requests, WatchRequest, watch
from howdah.storage.helper import main
from howdah.storage.stores import checkpoint_stores as stores
from howdah.storage.stores.checkpoint_stores import LocalStore
from tests.unit.storage.helper_process import DEADLINE_S, Helper

SETTLE_S = 0.2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "checkpoints"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def spec(folder: Path, tmp_path: Path) -> CheckpointSpec:
    return CheckpointSpec(
        folder=str(folder),
        store=str(tmp_path / "store"),
        task=Task("worker", 0),
        job_id="digits-1",
        settle_s=SETTLE_S,
    )


class Watcher:
    """A watcher in a thread: it is told, and says, what a process of its own is told and says."""

    def __init__(self, spec: CheckpointSpec) -> None:
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader, writer = os.pipe()
        self._requests, self._tell = Requests(self._reader), os.fdopen(writer, "wb", buffering=0)
        self._thread = threading.Thread(target=self._watch, args=(spec,))
        self._thread.start()

    def _watch(self, spec: CheckpointSpec) -> None:
        watch(spec, self._requests, lambda report: self._said.put(msgspec.json.encode(report)))
        self._said.put(b"null")

    def says(self) -> dict[str, Any] | None:
        """The next thing it says; None at its end."""
        return json.loads(self._said.get(timeout=DEADLINE_S))

    def tell(self, line: str) -> None:
        self._tell.write(f"{line}\n".encode())

    def end_of_file(self) -> None:
        self._tell.close()

    def close(self) -> None:
        self._tell.close()
        self._thread.join()
        self._requests.close()
        os.close(self._reader)


Start = Callable[..., Watcher]


@pytest.fixture
def start(spec: CheckpointSpec) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(**fields: Any) -> Watcher:
            watcher = Watcher(msgspec.structs.replace(spec, **fields))
            stack.callback(watcher.close)
            return watcher

        yield start


@pytest.fixture
def process(spec: CheckpointSpec, tmp_path: Path) -> Iterator[Callable[..., Helper]]:
    """The same, as an agent starts it."""
    with ExitStack() as stack:

        def process(**fields: Any) -> Helper:
            helper = Helper("watch", msgspec.structs.replace(spec, **fields), tmp_path)
            stack.callback(helper.close)
            return helper

        yield process


def versions(spec: CheckpointSpec) -> list[str]:
    return LocalStore(Path(spec.store)).versions()


@contextmanager
def watched(spec: CheckpointSpec, reports: list[Any]) -> Iterator[BinaryIO]:
    """A watcher in a thread, and where it is told: until its end, which a closed pipe is too."""
    reader, writer = os.pipe()
    requests = Requests(reader)
    thread = threading.Thread(target=watch, args=(spec, requests, reports.append))
    thread.start()
    try:
        with os.fdopen(writer, "wb", buffering=0) as tell:
            yield tell
    finally:
        thread.join()
        requests.close()
        os.close(reader)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


def wait_for_another_moment(file: Path, moment: float) -> None:
    """Until a change of the file is later than that moment, by the clock of its file system."""
    other = file.with_suffix(".tmp")

    def later() -> bool:
        other.write_text("")
        return other.stat().st_ctime > moment + 1e-6  # lines have no more digits than that

    until(later)


# -- while the program runs ----------------------------------------------------------------------


def test_each_finished_set_of_files_becomes_a_version(
    process: Callable[..., Helper], folder: Path, spec: CheckpointSpec
) -> None:
    helper = process()
    for number in range(1, 4):
        (folder / "model").write_text("w" * number)
        said = helper.says()
        assert said is not None
        assert said["version"] == f"00000{number}"
        assert (said["files"], said["bytes"]) == (1, number)
        assert len(said["checksum"]) == 64
    helper.end_of_file()
    assert helper.says() is None
    assert helper.ends() == 0
    assert len(versions(spec)) == 3


def test_a_program_that_saves_more_often_than_the_settle_time_is_saved_too(
    start: Start, folder: Path
) -> None:
    helper = start(settle_s=0.5)
    over = threading.Event()

    def save_all_the_time() -> None:
        number = 0
        while not over.wait(0.4):
            number += 1
            (folder / "model.tmp").write_text(f"weights {number}")
            (folder / "model.tmp").replace(folder / "model")

    saver = threading.Thread(target=save_all_the_time)
    saver.start()
    try:
        said = helper.says()
        assert said is not None
        assert said["files"] == 1
    finally:
        over.set()
        saver.join()


def test_a_program_that_saves_again_before_each_upload_is_over_is_saved_from_a_copy(
    spec: CheckpointSpec, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, steps = stores._LocalDraft.add, itertools.count(1)

    def save() -> None:
        (folder / "model.tmp").write_text(f"step {next(steps)}")
        (folder / "model.tmp").replace(folder / "model")

    def slow_add(draft: Any, source: Path, name: str) -> str:
        digest = add(draft, source, name)
        if source.is_relative_to(folder):
            save()
        return digest

    monkeypatch.setattr(stores._LocalDraft, "add", slow_add)
    reports: list[Any] = []
    own = msgspec.structs.replace(spec, spare=str(tmp_path / "spare"), settle_s=0.05)
    with watched(own, reports):
        save()
        until(lambda: saved(reports))
    assert versions(spec)
    for version in versions(spec):
        assert (Path(spec.store) / version / "model").read_text().startswith("step ")


def test_a_file_open_for_writing_is_waited_for(
    start: Start, folder: Path, spec: CheckpointSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which files are, `tests/unit/storage/test_folders.py` asks of real processes."""
    seen, closed = threading.Event(), threading.Event()

    def look(*_: Any) -> str | None:
        seen.set()
        return None if closed.is_set() else "model"

    monkeypatch.setattr(watching, "written_now", look)
    (folder / "model").write_text("first half, ")
    watcher = start()
    assert seen.wait(DEADLINE_S), "it has been quiet long enough, but is open"
    assert versions(spec) == []
    (folder / "model").write_text("first half, second half")
    closed.set()
    said = watcher.says()
    assert said is not None
    assert said["bytes"] == len("first half, second half")


def test_a_file_that_stays_open_delays_saving_only_for_a_while(start: Start, folder: Path) -> None:
    with (folder / "train.log").open("w") as file:
        file.write("epoch 1\n")
        file.flush()
        (folder / "model").write_text("weights")
        said = start(settle_s=0.05).says()
        assert said is not None
        assert said["files"] == 2


def test_what_a_program_reports_as_complete_is_saved_at_once(start: Start, folder: Path) -> None:
    helper = start(settle_s=3600.0)
    (folder / "model").write_text("weights")
    helper.tell("publish")
    said = helper.says()
    assert said is not None
    assert said["version"] == "000001"
    helper.tell("publish")  # nothing new
    helper.tell("nonsense")
    (folder / "model").write_text("more weights")
    helper.tell("publish")
    said = helper.says()
    assert said is not None
    assert said["version"] == "000002"


def test_what_was_restored_is_not_saved_again(
    start: Start, folder: Path, spec: CheckpointSpec
) -> None:
    (folder / "model").write_text("weights")
    assert publish(spec) is not None
    assert restore(spec).version == "000001"
    helper = start()
    helper.tell("publish")
    (folder / "model").write_text("weights, trained on")
    said = helper.says()
    assert said is not None
    assert said["version"] == "000002"


# -- at the end ----------------------------------------------------------------------------------


def test_programs_that_finished_leave_their_last_files_saved(start: Start, folder: Path) -> None:
    helper = start(settle_s=3600.0)
    (folder / "model").write_text("the last weights")
    helper.tell("finish")
    said = helper.says()
    assert said is not None
    assert said["bytes"] == len("the last weights")
    assert helper.says() is None


@pytest.mark.parametrize("how", ["end of file", "SIGTERM"])
def test_files_being_written_when_the_program_was_killed_are_not_saved(
    start: Start,
    process: Callable[..., Helper],
    folder: Path,
    spec: CheckpointSpec,
    how: str,
) -> None:
    helper = start(settle_s=3600.0) if how == "end of file" else process(settle_s=3600.0)
    (folder / "model").write_text("perhaps torn")
    helper.tell("nonsense")
    end(helper)
    assert helper.says() is None
    assert versions(spec) == []


@pytest.mark.parametrize("how", ["end of file", "SIGTERM"])
def test_files_that_were_quiet_when_the_program_was_killed_are_saved(
    start: Start, process: Callable[..., Helper], folder: Path, how: str
) -> None:
    (folder / "model").write_text("whole")
    quiet_at = (folder / "model").stat().st_ctime + 0.3
    until(lambda: time.time() > quiet_at)
    helper = start(settle_s=0.3) if how == "end of file" else process(settle_s=0.3)
    end(helper)
    said = helper.says()
    assert said is not None
    assert said["files"] == 1
    assert helper.says() is None


def test_a_file_that_a_kill_has_closed_is_not_taken_for_finished(
    folder: Path, spec: CheckpointSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher may look between a program's death and the agent's word of it."""
    closed, writers = threading.Event(), iter(["model"])

    def look(*_: Any) -> str | None:
        if (name := next(writers, None)) is None:
            closed.set()
        return name

    monkeypatch.setattr(watching, "written_now", look)
    with watched(msgspec.structs.replace(spec, settle_s=1.0), []) as tell:
        (folder / "model").write_text("half")
        assert closed.wait(DEADLINE_S)
        tell.close()
    assert versions(spec) == []


@pytest.mark.parametrize(("which", "kept"), [("first", []), ("none", ["000001"])])
def test_what_the_first_of_several_kills_tore_is_not_saved(
    folder: Path, spec: CheckpointSpec, which: str, kept: list[str]
) -> None:
    """The others wrote on for a while, which is no proof that it is whole."""
    (folder / "model").write_text("torn" if which == "first" else "whole")
    killed = time.time()
    wait_for_another_moment(folder / "model", killed)
    if which == "none":
        (folder / "model").write_text("written by another program, after the first kill")
    (folder / "log").write_text("written by another program")
    changed = (folder / "log").stat().st_ctime
    with watched(msgspec.structs.replace(spec, settle_s=3600.0), []) as tell:
        tell.write(f"end 60 {changed + 7200:.6f} {killed:.6f} {changed + 7200:.6f}\n".encode())
    assert versions(spec) == kept


@pytest.fixture
def upload(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Set when a file is being uploaded; which goes on once the other is."""
    begun, go_on = threading.Event(), threading.Event()
    add = stores._LocalDraft.add

    def slow_add(draft: Any, source: Path, name: str) -> str:
        digest = add(draft, source, name)
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return digest

    monkeypatch.setattr(stores._LocalDraft, "add", slow_add)
    yield begun, go_on
    go_on.set()


@pytest.mark.parametrize("how", ["told", "told without the moment", "the agent died"])
def test_a_file_torn_while_an_upload_was_under_way_is_not_saved(
    spec: CheckpointSpec,
    folder: Path,
    upload: tuple[threading.Event, threading.Event],
    how: str,
) -> None:
    begun, go_on = upload
    with watched(spec, []) as tell:
        (folder / "model").write_text("whole")
        assert begun.wait(DEADLINE_S)
        (folder / "model").write_text("torn")
        killed = time.time()
        if how == "told":
            tell.write(f"end 60 {killed:.6f}\n".encode())
        elif how == "told without the moment":
            tell.write(b"end 60\n")
        else:
            tell.close()
        until(lambda: time.time() > killed + 2 * SETTLE_S)
        go_on.set()
    assert versions(spec) == []


def test_a_file_that_was_quiet_before_the_kill_is_saved_after_an_upload(
    spec: CheckpointSpec, folder: Path, upload: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = upload
    with watched(spec, []) as tell:
        (folder / "model").write_text("first")
        assert begun.wait(DEADLINE_S)
        (folder / "model").write_text("second")
        tell.write(f"end 60 {time.time() + 2 * SETTLE_S:.6f}\n".encode())
        go_on.set()
    (version,) = versions(spec)
    assert (Path(spec.store) / version / "model").read_text() == "second"


def test_what_was_said_to_be_complete_before_the_next_was_begun_is_not_taken_for_whole(
    spec: CheckpointSpec,
    folder: Path,
    upload: tuple[threading.Event, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = upload
    look, looked = CheckpointSpec.look, threading.Event()

    def see(spec: CheckpointSpec) -> Any:
        if go_on.is_set():
            looked.set()
        return look(spec)

    monkeypatch.setattr(CheckpointSpec, "look", see)
    with watched(msgspec.structs.replace(spec, settle_s=3600.0), []) as tell:
        (folder / "model").write_text("first")
        tell.write(b"publish\n")
        assert begun.wait(DEADLINE_S)
        (folder / "model").write_text("second")
        said = time.time()
        tell.write(f"publish {said:.6f}\n".encode())
        wait_for_another_moment(folder / "model", said)
        (folder / "model").write_text("torn")
        go_on.set()
        assert looked.wait(DEADLINE_S)
        tell.write(f"end 60 {time.time():.6f}\n".encode())
    assert versions(spec) == []


def test_what_was_said_to_be_complete_is_saved_though_its_program_was_killed_at_once(
    spec: CheckpointSpec, folder: Path, upload: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = upload
    with watched(msgspec.structs.replace(spec, settle_s=3600.0), []) as tell:
        (folder / "model").write_text("first")
        tell.write(b"publish\n")
        assert begun.wait(DEADLINE_S)
        (folder / "model").write_text("second")
        now = f"{time.time():.6f}"
        tell.write(f"publish {now}\nend 60 {now}\n".encode())
        go_on.set()
    (version,) = versions(spec)
    assert (Path(spec.store) / version / "model").read_text() == "second"


@pytest.fixture
def told() -> Iterator[tuple[Requests, int]]:
    """What a watcher reads, and where it is written."""
    reader, writer = os.pipe()
    requests = Requests(reader)
    yield requests, writer
    requests.close()
    os.close(reader)
    os.close(writer)


def test_the_end_is_not_behind_what_was_said_to_be_complete_before(
    told: tuple[Requests, int],
) -> None:
    requests, writer = told
    os.write(writer, b"publish 1\n" * 3 + b"publish 7\nend 60 8\n")
    assert requests.wait(0.0) == WatchRequest(RequestKind.END, 60.0, 8.0, complete_at=7.0)


def test_what_is_said_to_be_complete_many_times_is_looked_at_once(
    told: tuple[Requests, int],
) -> None:
    requests, writer = told
    os.write(writer, b"publish 5\n" * 3000)
    assert requests.wait(0.0) == WatchRequest(RequestKind.PUBLISH, at=5.0)
    assert requests.wait(0.0) is None


def test_what_was_said_to_be_complete_before_a_kill_is_no_word_of_what_came_between(
    told: tuple[Requests, int],
) -> None:
    """All of it may be read at once, by a watcher that waits."""
    requests, writer = told
    words = threading.Timer(0.1, os.write, (writer, b"publish 5\nkilled 6 7\n"))
    words.start()
    assert requests.wait(DEADLINE_S) == WatchRequest(RequestKind.PUBLISH, at=5.0)
    assert requests.kills == (6.0, 7.0)
    words.join()


def test_a_killed_watcher_leaves_no_half_version(
    start: Start, process: Callable[..., Helper], folder: Path, spec: CheckpointSpec
) -> None:
    for number in range(20):
        (folder / f"part-{number}").write_bytes(os.urandom(500_000))
    helper = process()
    store = Path(spec.store)
    until(lambda: store.exists() and any(store.iterdir()))
    helper.process.kill()
    helper.ends()
    for version in versions(spec):
        assert len(list((store / version).iterdir())) == 21
    (folder / "part-0").write_text("new")
    again = start()
    said = again.says()
    assert said is not None
    assert said["files"] == 20
    assert [p.name for p in store.iterdir() if p.name.startswith(".")] == []


# -- trouble -------------------------------------------------------------------------------------


def test_a_store_that_refuses_is_reported_once_and_tried_again(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the store should be")
    helper = start(store=str(blocked))
    (folder / "model").write_text("weights")
    said = helper.says()
    assert said is not None
    assert f"{blocked} can't be written: " in said["problem"]
    assert said["transient"] is True
    assert str(blocked) in said["problem"]
    blocked.unlink()
    said = helper.says()
    assert said is not None
    assert said["version"] == "000001"


def test_a_store_that_cannot_be_written_is_reported_before_there_is_a_checkpoint(
    start: Start,
) -> None:
    said = start(store="/proc/nowhere").says()
    assert said is not None
    assert "/proc/nowhere can't be written: " in said["problem"]
    assert "transient" not in said, "no waiting makes that a folder"


@pytest.fixture
def away(spec: CheckpointSpec, tmp_path: Path) -> Iterator[CheckpointSpec]:
    """A store that is away until its path is unlinked."""
    Path(spec.store).write_text("not mounted")
    yield msgspec.structs.replace(spec, spare=str(tmp_path / "spare"), settle_s=0.05)


def problems(reports: list[Any]) -> list[CheckpointProblem]:
    return [report for report in reports if isinstance(report, CheckpointProblem)]


def saved(reports: list[Any]) -> list[str]:
    return [report.version for report in reports if isinstance(report, Saved)]


def test_a_store_that_is_back_at_the_end_is_tried_at_once(
    away: CheckpointSpec, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_BACKOFF_S", (3600.0, 3600.0))
    reports: list[Any] = []
    with watched(away, reports) as tell:
        (folder / "model").write_text("step 500")
        until(lambda: problems(reports))
        Path(away.store).unlink()
        tell.write(b"finish 0\n")
    assert saved(reports) == ["000001"]


def test_a_store_that_comes_back_after_the_end_is_waited_for(
    away: CheckpointSpec, folder: Path
) -> None:
    reports: list[Any] = []
    with watched(away, reports) as tell:
        (folder / "model").write_text("step 500")
        tell.write(b"finish 60\n")
        until(lambda: problems(reports))
        Path(away.store).unlink()
    assert saved(reports) == ["000001"]
    assert not any(problem.unsaved for problem in problems(reports))


def test_a_store_that_does_not_come_back_within_the_limit_is_reported(
    away: CheckpointSpec, folder: Path
) -> None:
    reports: list[Any] = []
    with watched(away, reports) as tell:
        (folder / "model").write_text("step 500")
        until(lambda: problems(reports))
        tell.write(b"finish 0.5\n")
    assert saved(reports) == []
    first, last = problems(reports)
    assert (first.unsaved, last.unsaved) == (False, True)
    assert f"{away.store} can't be written: " in last.problem


def test_a_store_that_will_never_take_it_is_not_waited_for(
    spec: CheckpointSpec, folder: Path
) -> None:
    reports: list[Any] = []
    with watched(msgspec.structs.replace(spec, store="nosuch://x"), reports) as tell:
        (folder / "model").write_text("step 500")
        tell.write(b"finish 3600\n")
    assert problems(reports)[-1].unsaved


def test_a_whole_state_a_store_did_not_take_outlives_a_torn_one(
    away: CheckpointSpec, folder: Path
) -> None:
    away = msgspec.structs.replace(away, settle_s=2.0)  # the end comes sooner after the write
    reports: list[Any] = []
    with watched(away, reports) as tell:
        (folder / "model").write_text("step 500")
        until(lambda: kept(away))
        (folder / "model").write_text("step 510, half wri")
        tell.write(b"end 60\n")
        tell.close()
        Path(away.store).unlink()
    assert saved(reports) == ["000001"]
    restore(away)
    assert (folder / "model").read_text() == "step 500"


def test_the_next_attempt_begins_with_what_a_store_took_too_late(
    away: CheckpointSpec,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with watched(msgspec.structs.replace(away, attempt=1), reports := []) as tell:
        (folder / "model").write_text("step 500")
        tell.write(b"finish 0.5\n")
    assert problems(reports)[-1].unsaved
    path = tmp_path / "spec.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(away, attempt=2)))
    assert main(["restore", str(path)]) == 1, "the store is still away"
    assert json.loads(capsys.readouterr().out)["transient"] is True
    Path(away.store).unlink()
    assert main(["restore", str(path)]) == 1, "others may have begun without it"
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["version"] == "000001" and second["transient"] is True
    assert main(["restore", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == "000001"
    assert (folder / "model").read_text() == "step 500"
    assert not Path(away.spare).exists()


def test_what_is_kept_is_dropped_once_a_later_attempt_has_saved(
    away: CheckpointSpec, folder: Path, tmp_path: Path
) -> None:
    own = msgspec.structs.replace(away, attempt=1)
    with watched(own, []) as tell:
        (folder / "model").write_text("step 500")
        tell.write(b"finish 0.5\n")
    Path(away.store).unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model").write_text("step 700")
    publish(msgspec.structs.replace(own, attempt=2, folder=str(elsewhere)))
    assert take_over(msgspec.structs.replace(own, attempt=3)) is None
    assert versions(own) == ["000001"]
    assert not Path(own.spare).exists()


def test_a_task_the_job_has_gone_on_without_is_told_and_stays_quiet(
    start: Start, folder: Path, spec: CheckpointSpec
) -> None:
    (folder / "model").write_text("new gang")
    assert publish(msgspec.structs.replace(spec, generation=2)) is not None
    (folder / "model").write_text("old gang")
    helper = start(generation=1)
    said = helper.says()
    assert said is not None
    assert "generation 2" in said["problem"]
    (folder / "model").write_text("old gang again")
    helper.tell("finish")
    assert helper.says() is None
    assert len(versions(spec)) == 1


def test_a_folder_that_is_never_quiet_is_reported(
    folder: Path, spec: CheckpointSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RESTLESS_S", 0.3)
    reports: list[Any] = []
    with watched(msgspec.structs.replace(spec, settle_s=60.0), reports) as tell:
        until(lambda: (folder / "train.log").write_text(str(time.time())) and reports)
        tell.write(b"finish\n")
    assert "train.log" in reports[0].problem
    assert "[checkpoint] ignore" in reports[0].problem


def test_an_interrupt_of_the_terminal_does_not_stop_it(
    process: Callable[..., Helper], folder: Path
) -> None:
    helper = process()
    (folder / "model").write_text("1")
    assert helper.says() is not None
    helper.process.send_signal(signal.SIGINT)
    helper.process.send_signal(signal.SIGHUP)
    (folder / "model").write_text("12")
    assert helper.says() is not None


def end(helper: Watcher | Helper) -> None:
    """End it: a process by SIGTERM, once it has set its signal handlers."""
    if isinstance(helper, Watcher):
        helper.end_of_file()
        return
    status = Path(f"/proc/{helper.process.pid}/status")

    def catches_sigterm() -> bool:
        caught = status.read_text().split("SigCgt:")[1].split()[0]
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    until(catches_sigterm)
    helper.process.send_signal(signal.SIGTERM)


# -- the command ---------------------------------------------------------------------------------


def test_publish_and_restore_print_their_result(
    spec: CheckpointSpec, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    path.write_bytes(msgspec.json.encode(spec))

    def result(what: str) -> Any:
        assert main([what, str(path)]) == 0
        return json.loads(capsys.readouterr().out)

    assert result("restore") == {
        "version": None,
        "files": 0,
        "bytes": 0,
        "checksum": "",
        "origin": "",
        "skipped": [],
    }
    assert result("publish") == {"version": None}
    (folder / "model").write_text("weights")
    said = result("publish")
    assert (said["version"], said["files"], said["bytes"]) == ("000001", 1, 7)
    (Path(spec.store) / "000001" / "model").write_text("damaged")
    assert result("restore")["skipped"] == [
        {"version": "000001", "reason": "model does not fit its checksum"}
    ]
    assert restore(spec).version is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "truncated"),
        ('{"folder": "/x"}', "required field `store`"),
        ('{"folder": "/x", "store": "nosuch://x"}', "nosuch"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    if content is not None:
        path.write_text(content)
    assert main(["restore", str(path)]) == 1
    assert words in json.loads(capsys.readouterr().out)["problem"]


def test_a_wrong_command_line_is_answered_with_the_right_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["save", "x"]) == 2
    assert "restore|publish|watch" in capsys.readouterr().err
