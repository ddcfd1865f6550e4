"""The summary says what failed first, why, and what to do; nothing of it is cut off in a pipe."""

from __future__ import annotations

import msgspec
import pytest

from howdah.cli.display.formatting import Paint, display_width
from howdah.cli.display.screen import status_line
from howdah.cli.display.summary import first_failure, report, summary
from howdah.storage.outputs import unpublished
from howdah.wire.status import JobView, TaskView
from tests.unit.cli.views import (
    CRASH,
    FAILED,
    KILLED,
    RUNNING,
    START,
    STOPPED,
    SUCCEEDED,
    TIMED_OUT,
    task,
)

PLAIN = Paint(False)


def text(view: JobView, width: int | None = None) -> str:
    return "\n".join(summary(view, PLAIN, width=width))


def test_success_is_short() -> None:
    assert text(SUCCEEDED) == (
        "\n"
        "digits-20270115-080000-k3f9 succeeded after 34.2s\n"
        "\n"
        "  TASK      STATE      RANK  ATTEMPT  EXIT  STEP  HOST\n"
        "  worker:0  succeeded     0        1  0      300  127.0.0.1\n"
        "  worker:1  succeeded     1        1  0      300  127.0.0.1\n"
        "\n"
        "  Logs          howdah logs digits-20270115-080000-k3f9\n"
        "  Folder        /home/ada/.howdah/jobs/ada/digits-20270115-080000-k3f9"
    )


UNSAVED = msgspec.structs.replace(
    SUCCEEDED,
    exit_code=5,
    unsaved=("worker:0: checkpoints: /mnt/full/000004 can't be written: No space left on device",),
)


def test_a_success_whose_checkpoint_could_not_be_saved_says_so_first() -> None:
    assert text(UNSAVED).splitlines()[1:6] == [
        "digits-20270115-080000-k3f9 succeeded after 34.2s, but not all of it was saved",
        "",
        "  Not saved     worker:0: checkpoints: /mnt/full/000004 can't be written: No space left on "
        "device",
        "  What to do    Make the store writable, or name another (`checkpoint.store`, "
        "`outputs.store`), and run the job again.",
        "",
    ]
    assert "howdah rerun digits-20270115-080000-k3f9 --resume" in text(UNSAVED)


def test_of_many_things_that_could_not_be_saved_the_first_are_shown() -> None:
    lines = tuple(f"worker:{index}: outputs: out/model: No space left" for index in range(25))
    shown = text(msgspec.structs.replace(UNSAVED, unsaved=lines))
    assert shown.count("No space left") == 10
    assert "and 15 more: howdah status --json digits-20270115-080000-k3f9" in shown


def test_outputs_that_only_lack_their_name_are_no_reason_to_run_the_job_again() -> None:
    line = unpublished("hdfs://names/models", "digits-1", PermissionError("not yours"))
    shown = text(msgspec.structs.replace(UNSAVED, unsaved=(line,)))
    assert f"Not saved     {line}" in shown
    assert "Make the store writable" not in shown


def test_what_a_running_job_could_not_save_is_shown_too() -> None:
    view = msgspec.structs.replace(RUNNING, unsaved=("worker:1: checkpoints: quota exceeded",))
    shown = "\n".join(report(view, PLAIN, width=None, pages={}, now=START))
    assert "Not saved     worker:1: checkpoints: quota exceeded" in shown


def many(**fields: object) -> tuple[TaskView, ...]:
    return tuple(
        task(index, **(fields if index != 7000 else {"state": "ended", "exit_code": 42}))
        for index in range(10_000)
    )


def test_the_end_of_thousands_of_tasks_shows_those_that_did_not_succeed() -> None:
    shown = text(msgspec.structs.replace(FAILED, tasks=many()))
    assert "  worker:7000  ended" in shown
    assert "  and 9936 more tasks: howdah status --json digits-20270115-080000-k3f9" in shown
    assert len(shown.splitlines()) < 100


def test_a_refused_job_of_thousands_of_tasks_is_told_in_a_few_lines() -> None:
    waiting = tuple(task(i, state="waiting", attempt=0, exit_code=None) for i in range(10_000))
    reason = "worker:0 can never get its container: the cluster has no node of 64 GiB"
    shown = text(
        msgspec.structs.replace(FAILED, reason=reason, failures=(), advice="", tasks=waiting)
    )
    assert f"Why           {reason}" in shown
    assert "None of its 10000 tasks was started." in shown
    assert len(shown.splitlines()) < 12


def test_failure_says_what_failed_first_why_and_what_to_do() -> None:
    assert text(FAILED) == (
        "\n"
        "digits-20270115-080000-k3f9 failed after 34.2s, 1 restart\n"
        "\n"
        "  Failed first  worker:1 exited with code 42\n"
        "  Why           user-code, generation 2, attempt 2; all 2 attempts are spent\n"
        "  What to do    The program ended with an error. Its last lines are shown; the whole log "
        "is one `howdah logs` away.\n"
        "\n"
        "  Last lines of worker:1\n"
        "    Traceback (most recent call last):\n"
        '      File "train.py", line 7\n'
        "    ValueError: boom\n"
        "\n"
        "  Before that\n"
        "    generation 1: worker:0's user process was killed (SIGKILL) (signal, counts against the restart budget)\n"
        "\n"
        "  TASK      STATE  RANK  ATTEMPT  EXIT     HOST\n"
        "  worker:0  ended     0        2  SIGTERM  127.0.0.1\n"
        "  worker:1  ended     1        2  42       127.0.0.1\n"
        "\n"
        "  Logs          howdah logs digits-20270115-080000-k3f9 --task worker:1\n"
        "  Again         howdah rerun digits-20270115-080000-k3f9 --resume\n"
        "  Folder        /home/ada/.howdah/jobs/ada/digits-20270115-080000-k3f9"
    )


def test_the_failure_to_read_is_the_first_of_the_last_generation() -> None:
    echo = msgspec.structs.replace(CRASH, task="worker:0", what="worker:0 lost its peer")
    view = msgspec.structs.replace(FAILED, failures=(KILLED, CRASH, echo))
    assert first_failure(view) is CRASH
    assert first_failure(SUCCEEDED) is None


def test_a_success_after_a_restart_says_what_was_overcome() -> None:
    view = msgspec.structs.replace(SUCCEEDED, failures=(KILLED,), restarts=1)
    lines = text(view)
    assert "succeeded after 34.2s, 1 restart" in lines
    assert "Before that\n    generation 1: worker:0's user process was killed (SIGKILL)" in lines
    assert "Failed first" not in lines


def test_a_stopped_job_says_who_stopped_it() -> None:
    lines = text(STOPPED)
    assert "stopped after 34.2s" in lines
    assert "Why           stopped by ada: SIGINT" in lines
    assert "howdah rerun digits-20270115-080000-k3f9\n" in lines
    assert "Failed first" not in lines


def test_a_time_out_without_a_failed_task_says_who_is_missing() -> None:
    lines = text(TIMED_OUT)
    assert "timed out after 34.2s" in lines
    assert "Why           allocation time-out after 60s: no container for worker:1" in lines
    assert "What to do    Ask for less, wait longer" in lines


@pytest.mark.parametrize("view", [SUCCEEDED, FAILED, STOPPED, TIMED_OUT])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_terminal_texts_are_wrapped_under_themselves(view: JobView, width: int) -> None:
    for line in summary(view, PLAIN, width=width):
        commands = "howdah " in line or "/home/" in line  # never broken: to be copied
        assert commands or display_width(line) <= width


def test_commands_are_never_broken_for_they_are_copied() -> None:
    lines = [line.strip() for line in summary(FAILED, PLAIN, width=40)]
    assert any(line.startswith("Logs") and line.endswith("--task worker:1") for line in lines)


def test_colours_change_nothing_but_colours() -> None:
    for view in (SUCCEEDED, FAILED, STOPPED, TIMED_OUT):
        painted = summary(view, Paint(True), width=60)
        plain = summary(view, PLAIN, width=60)
        assert [display_width(line) for line in painted] == [display_width(x) for x in plain]
        assert any("\x1b[" in line for line in painted)


def test_cursor_movements_in_last_lines_are_not_repeated() -> None:
    nasty = msgspec.structs.replace(CRASH, tail=("\x1b[2J\x1b]0;title\x07gone\r",))
    shown = text(msgspec.structs.replace(FAILED, failures=(nasty,)))
    assert "\x1b" not in shown and "\x07" not in shown and "\r" not in shown


def test_status_shows_measurements_and_pages() -> None:
    pages = {"Page": "http://h:41/login?ticket=x", "TensorBoard": "http://h:41/login?ticket=y&to=z"}
    shown = "\n".join(report(RUNNING, PLAIN, width=None, pages=pages, now=START + 65))
    assert "digits-20270115-080000-k3f9 running for 1m 05s" in shown
    assert "TASK      STATE    RANK  ATTEMPT  STEP  CPU  MEMORY  GPU     FOR  HOST" in shown
    assert "worker:0  running     0        1   120  0.9    1.5G       1m 00s  127.0.0.1" in shown
    assert "Page          http://h:41/login?ticket=x" in shown
    assert "TensorBoard   http://h:41/login?ticket=y&to=z" in shown
    assert "howdah stop digits-20270115-080000-k3f9" in shown


def test_status_of_a_lost_job_says_that_nobody_runs_it() -> None:
    lost = msgspec.structs.replace(RUNNING, lost=True, reason="nobody runs it any more")
    shown = "\n".join(report(lost, PLAIN, width=None, pages={}, now=START + 65))
    assert shown.startswith("digits-20270115-080000-k3f9 lost\n")
    assert "howdah attach --revive digits-20270115-080000-k3f9" in shown
    assert "Why           nobody runs it any more" in shown
    assert "howdah rerun digits-20270115-080000-k3f9 --resume" in shown
    assert "howdah stop" not in shown


def test_a_job_is_not_called_stopped_while_its_programs_may_still_save() -> None:
    stopping = msgspec.structs.replace(RUNNING, phase="finishing", outcome="stopped")
    assert status_line(stopping, START + 65).startswith(" finishing · ")


def test_the_status_line_has_the_job_in_one_line() -> None:
    assert status_line(RUNNING, START + 65) == (
        " running · 2/2 tasks up · step 118 · 1.9 cores, 2.2G · 1m 05s "
    )
    known = [msgspec.structs.replace(each, step=118, total=1000.0) for each in RUNNING.tasks]
    known[1] = msgspec.structs.replace(known[1], step=500.0, left_s=200.0)
    told = msgspec.structs.replace(RUNNING, tasks=tuple(known))
    assert " · step 118/1000 [#         ] 12% · " in status_line(told, START + 65)
    known[0] = msgspec.structs.replace(known[0], step=600.0)
    told = msgspec.structs.replace(RUNNING, tasks=tuple(known))
    assert " · step 500/1000 [#####     ] 50%, 3m 20s left · " in status_line(told, START + 65)
    waiting = msgspec.structs.replace(
        TIMED_OUT, outcome=None, phase="allocating", finished=None, reason="waiting for worker:1"
    )
    assert status_line(waiting, START + 1) == (
        " allocating · 0/2 tasks up · 1.0s · waiting for worker:1 "
    )
