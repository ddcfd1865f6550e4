"""What an attached client shows of logs, records and states."""

from __future__ import annotations

import json
import time
from typing import Any, cast

import msgspec
import pytest

from howdah.cli.display.formatting import Paint
from howdah.cli.display.screen import HumanScreen, JsonScreen, Prefixes
from howdah.cli.display.writer import Writer
from howdah.client.following.log_lines import LogId
from howdah.core.messages import Level, Record, Task
from howdah.wire.messages import LogUpdate, RecordUpdate
from howdah.wire.status import JobView
from tests.unit.cli.views import FAILED, RUNNING, SUCCEEDED

FIRST = LogId(Task("worker", 0), 1)
TENTH = LogId(Task("worker", 10), 1)


class Told:
    """Collects what a screen writes."""

    def __init__(self) -> None:
        self.out_bytes = b""
        self.err_bytes = b""
        self.lines: list[bytes | None] = []

    def out(self, data: bytes) -> None:
        self.out_bytes += data

    def err(self, data: bytes) -> None:
        self.err_bytes += data

    def status(self, line: bytes | None) -> None:
        self.lines.append(line)

    @property
    def printed(self) -> list[str]:
        return self.out_bytes.decode().splitlines()

    @property
    def said(self) -> list[str]:
        return self.err_bytes.decode().splitlines()


def human(told: Told, *, colour: bool = False, **options: Any) -> HumanScreen:
    return HumanScreen(cast(Writer, told), Paint(colour), Paint(colour), longest=9, **options)


def written(stream: LogId, offset: int, data: bytes, *times: tuple[int, float]) -> LogUpdate:
    return LogUpdate(
        task=stream.task, attempt=stream.attempt, offset=offset, data=data, times=times
    )


def record(
    text: str,
    kind: str = "test",
    level: Level = Level.INFO,
    task: Task | None = None,
    **fields: Any,
) -> RecordUpdate:
    told = Record(kind=kind, text=text, level=level, task=task, **fields)
    return RecordUpdate(seq=1, time=1.0, record=told)


def document(view: JobView) -> object:
    return json.loads(msgspec.json.encode(view))


def test_logs_are_merged_line_by_line_behind_aligned_names() -> None:
    told = Told()
    screen = human(told)
    screen.log(written(FIRST, 0, b"one\ntw"))
    screen.log(written(TENTH, 0, b"ten\n"))
    screen.log(written(FIRST, 6, b"o\n"))
    screen.log(written(TENTH, 4, b"unfinished"))
    screen.end(SUCCEEDED)
    assert told.printed[:4] == [
        "worker:0  | one",
        "worker:10 | ten",
        "worker:0  | two",
        "worker:10 | unfinished",
    ]
    assert "digits-20270115-080000-k3f9 succeeded after 34.2s" in told.printed


def test_the_story_goes_to_standard_error() -> None:
    told = Told()
    screen = human(told)
    screen.record(record("generation 1: 2 tasks"))
    screen.note("left it behind")
    screen.page("job", "http://127.0.0.1:1/login?ticket=x")
    assert told.out_bytes == b""
    assert told.said == [
        "howdah    | generation 1: 2 tasks",
        "howdah    | left it behind",
        "howdah    | page http://127.0.0.1:1/login?ticket=x",
    ]


def test_every_tasks_start_and_end_is_shown_only_when_asked_for() -> None:
    told = Told()
    started = record("worker:0 started on vm", "task-started")
    human(told).record(started)
    assert told.said == []
    human(told, all_records=True).record(started)
    assert told.said == ["howdah    | worker:0 started on vm"]


def test_the_same_trouble_of_a_task_is_shown_once() -> None:
    told = Told()
    screen = human(told)
    for text in ("lost its container", "lost its container", "hung", "lost its container"):
        screen.record(record(text, level=Level.WARNING, task=Task("worker", 0)))
    assert [line[12:] for line in told.said] == [
        "lost its container",
        "hung",
        "lost its container",
    ]


def test_a_failure_is_told_once_and_then_what_it_costs() -> None:
    told = Told()
    screen = human(told)
    worker = Task("worker", 1)
    died = "worker:1's user process was killed (SIGKILL)"
    data = {"cause": "signal", "task": "worker:1", "counted": True, "secondary": 2}
    screen.record(record(died, "task-failed", Level.ERROR, worker))
    screen.record(record("worker:1 is saving its checkpoint", "saving", task=worker))
    screen.record(
        record(f"{died} [signal]", "generation-ended", Level.ERROR, generation=3, data=data)
    )
    screen.record(record("the gang restarts", "restarting"))
    again = f"{died} [node-lost]; it is started again in 1.2s"
    lost = {"cause": "node-lost", "counted": False}
    screen.record(record(again, "task-restarting", Level.WARNING, worker, data=lost))
    assert [line.partition("| ")[2] for line in told.said] == [
        "worker:1's user process was killed (SIGKILL)",
        "worker:1 is saving its checkpoint",
        "generation 3 ended: signal, counts against the restart budget",
        "the gang restarts",
        "worker:1: node-lost, does not count against the restart budget; it is started again in 1.2s",
    ]


def test_each_task_keeps_its_colour() -> None:
    prefixes = Prefixes(Paint(True))
    first = prefixes.before(FIRST, [b"a"])
    other = prefixes.before(TENTH, [b"a"])
    again = prefixes.before(LogId(FIRST.task, 2), [b"a"])
    assert again == first
    assert first.endswith(b"worker:0 |\x1b[0m a\n")
    assert first[:5] != other[:5]
    assert Prefixes(Paint(True)).before(TENTH, [b"a"]) == other


def test_later_attempts_are_numbered_where_all_are_shown() -> None:
    prefixes = Prefixes(Paint(False), attempts=True)
    assert prefixes.before(FIRST, [b"a"]) == b"worker:0 | a\n"
    assert prefixes.before(LogId(FIRST.task, 2), [b"a"]) == b"worker:0#2 | a\n"


def test_on_a_terminal_a_tasks_colours_end_with_its_line_and_cursor_movements_are_left_out() -> (
    None
):
    prefixes = Prefixes(Paint(True))
    shown = prefixes.before(FIRST, [b"\x1b[1A\x1b[2K\x1b]0;title\x07\x1b[31mred \x1b[?25lend"])
    assert shown.partition(b"\x1b[0m ")[2] == b"\x1b[31mred end\x1b[0m\n"


def test_in_a_pipe_a_tasks_bytes_are_left_alone() -> None:
    line = b"\x1b[31mred\xff"
    assert Prefixes(Paint(False)).before(FIRST, [line]) == b"worker:0 | " + line + b"\n"


def test_the_status_line_is_for_terminals_and_goes_at_the_end() -> None:
    told = Told()
    human(told).status(RUNNING)
    assert told.lines == []
    screen = human(told, live=True)
    screen.status(RUNNING)
    assert told.lines[-1] is not None and b"running" in told.lines[-1]
    screen.end(SUCCEEDED)
    assert told.lines[-1] is None


def test_json_has_one_object_a_line() -> None:
    told = Told()
    screen = JsonScreen(cast(Writer, told))
    screen.page("job", "http://127.0.0.1:1/login?ticket=x")
    screen.record(record("it hung", "hang", Level.ERROR, Task("worker", 0)))
    screen.log(written(FIRST, 5, b"\xffone\ntwo", (5, 9.5)))
    screen.status(RUNNING)
    screen.note("stopping")
    screen.end(FAILED)
    assert told.err_bytes == b""
    assert [json.loads(line) for line in told.printed] == [
        {"type": "page", "name": "job", "address": "http://127.0.0.1:1/login?ticket=x"},
        {
            "type": "event",
            "seq": 1,
            "time": 1.0,
            "level": "error",
            "kind": "hang",
            "text": "it hung",
            "task": "worker:0",
            "attempt": None,
            "generation": None,
            "data": {},
        },
        {
            "type": "log",
            "task": "worker:0",
            "attempt": 1,
            "offset": 5,
            "text": "\ufffdone",
            "time": 9.5,
        },
        {"type": "status", "status": document(RUNNING)},
        {"type": "note", "text": "stopping"},
        {"type": "log", "task": "worker:0", "attempt": 1, "offset": 10, "text": "two", "time": 9.5},
        {"type": "summary", "status": document(FAILED)},
    ]


def test_json_tells_a_status_only_when_a_state_has_changed() -> None:
    told = Told()
    screen = JsonScreen(cast(Writer, told))
    measured = msgspec.structs.replace(RUNNING.tasks[0], cpu=0.1, step=121)
    screen.status(RUNNING)
    screen.status(msgspec.structs.replace(RUNNING, tasks=(measured, RUNNING.tasks[1])))
    assert len(told.printed) == 1
    ended = msgspec.structs.replace(measured, state="succeeded")
    screen.status(msgspec.structs.replace(RUNNING, tasks=(ended, RUNNING.tasks[1])))
    assert len(told.printed) == 2


def test_what_would_change_the_terminal_is_left_out_of_logs() -> None:
    told = Told()
    human(told, colour=True).log(written(FIRST, 0, b"a\x0eb\x08\x07c\x1b]0;title\x07\td\xff\n"))
    assert told.out_bytes.endswith("abc\td\ufffd\n".encode())


def test_what_ended_the_job_is_told_once_and_what_ended_a_generation_too() -> None:
    told = Told()
    screen = human(told)
    screen.record(record("it exited [user-code]", "generation-ended", Level.ERROR))
    screen.record(record("the gang starts anew", "restarting"))
    screen.record(record("it exited again [user-code]", "generation-ended", Level.ERROR))
    screen.record(record("the job has failed: it exited again", "finishing", Level.ERROR))
    assert [line.partition("| ")[2] for line in told.said] == [
        "it exited [user-code]",
        "the gang starts anew",
        "the job has failed: it exited again",
    ]


def test_why_containers_do_not_come_is_said_without_a_terminal_but_not_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    told = Told()
    screen = human(told)
    for pause, why in ((0, "free: 1 of 4"), (5, "free: 2 of 4"), (40, "free: 0 of 4"), (1, "")):
        now += pause
        screen.status(msgspec.structs.replace(RUNNING, pending_reason=why))
    assert told.said == [
        "howdah    | waiting: free: 1 of 4",
        "howdah    | waiting: free: 0 of 4",
    ]


def test_json_tells_why_containers_do_not_come_whenever_that_changes() -> None:
    told = Told()
    screen = JsonScreen(cast(Writer, told))
    for why in ("free: 1 of 4", "free: 1 of 4", ""):
        screen.status(msgspec.structs.replace(RUNNING, pending_reason=why))
    assert [json.loads(line) for line in told.printed[1:]] == [
        {"type": "waiting", "why": "free: 1 of 4"},
        {"type": "waiting", "why": ""},
    ]


STARTUP = b"""\
2026-11-21 14:20:45.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. You may see
2026-11-21 14:20:45.2: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers on your machine
2026-11-21 14:20:46.1: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
E0000 00:00:1795688419.529491   20733 computation_placer.cc:177] computation placer already registered. Please check
I0000 00:00:1795688420.204998   20733 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use available
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.
E0000 00:00:1795688584.571866   20733 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error
TensorBoard 2.21.0 at http://127.0.0.1:28644/proxy/tensorboard:0/ (Press CTRL+C to quit)
"""


def test_what_tensorflow_says_of_its_start_is_left_out_where_there_are_no_gpus() -> None:
    own = b"epoch 1\nW0000 00:00:1795688584.571866   20733 loader.cc:9] the data are old\n"
    told = Told()
    screen = human(told, without_gpus={"worker"})
    screen.log(written(FIRST, 0, STARTUP + own))
    screen.log(written(TENTH, 0, STARTUP))
    assert told.printed == [f"worker:0  | {line}" for line in own.decode().splitlines()]
    assert told.said == [
        "howdah    | what TensorFlow and TensorBoard say of their start is left out: -v shows it, "
        "and so does howdah logs"
    ]
    for options in ({"without_gpus": {"ps"}}, {"without_gpus": {"worker"}, "all_records": True}):
        told = Told()
        human(told, **options).log(written(FIRST, 0, STARTUP))
        assert len(told.printed) == STARTUP.count(b"\n") and told.said == []


def test_such_a_line_long_after_the_start_is_shown() -> None:
    told = Told()
    screen = human(told, without_gpus={"worker"})
    begin = b"x\n" * 300
    screen.log(written(FIRST, 0, begin))
    screen.log(written(FIRST, len(begin), STARTUP))
    assert len(told.printed) == 300 + STARTUP.count(b"\n")
