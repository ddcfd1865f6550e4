"""A program's TensorBoard folder, kept in the job directory that the program can't see."""

from __future__ import annotations

from pathlib import Path

from howdah.agent.launch import HERE
from howdah.core.messages import TaskSaving
from howdah.wire.messages import AgentNote, Mirror
from tests.agent.rig import TASK, Rig, python, until

WRITE = (
    "import os, pathlib, time\n"
    "folder = pathlib.Path(os.environ['EVENTS']); folder.mkdir(exist_ok=True)\n"
    "(folder / 'events.1').write_text('one')\n"
    "while not os.path.exists('go'): time.sleep(0.02)\n"
    "open(folder / 'events.1', 'a').write(' two')\n"
)


def push(folder: Path) -> Mirror:
    return Mirror(
        way="push", folder=f"{HERE}/tensorboard", place=f"file://{folder}/job/tensorboard/worker-0"
    )


async def test_what_a_program_writes_is_taken_there_while_it_runs_and_at_its_end(
    tmp_path: Path,
) -> None:
    there = tmp_path / "job/tensorboard/worker-0/events.1"
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(python(WRITE, EVENTS=f"{HERE}/tensorboard"), mirror=push(tmp_path))
        await until(lambda: there.exists() and there.read_text() == "one")
        (tmp_path / "containers/c1/task/go").touch()
        assert (await rig.exit()).code == 0
    assert there.read_text() == "one two"


async def test_the_events_of_all_tasks_are_brought_to_tensorboard(tmp_path: Path) -> None:
    events = tmp_path / "job/tensorboard/worker-1"
    events.mkdir(parents=True)
    (events / "events.7").write_text("from another task")
    code = (
        "import os, time\n"
        "while not os.path.exists(os.environ['EVENTS'] + '/worker-1/events.7'): time.sleep(0.02)"
    )
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(
            python(code, EVENTS=f"{HERE}/tensorboard"),
            mirror=Mirror(
                way="pull",
                folder=f"{HERE}/tensorboard",
                place=f"file://{tmp_path}/job/tensorboard",
            ),
        )
        assert (await rig.exit()).code == 0


async def test_a_place_that_is_back_at_the_end_has_all_that_was_written(tmp_path: Path) -> None:
    away = tmp_path / "job"
    away.write_text("in the way")
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(python(WRITE, EVENTS=f"{HERE}/tensorboard"), mirror=push(tmp_path))
        note = await rig.hear(AgentNote)
        assert note.task == TASK
        assert "TensorBoard folder is not up to date" in note.text
        (tmp_path / "containers/c1/task/go").touch()
        await rig.hear(TaskSaving)
        away.unlink()
        exit = await rig.exit()
        assert (exit.code, exit.unsaved) == (0, ())
    assert (away / "tensorboard/worker-0/events.1").read_text() == "one two"


async def test_a_place_that_will_never_take_it_is_not_waited_for(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        nowhere = Mirror(way="push", folder=f"{HERE}/tensorboard", place="nosuch://x/worker-0")
        await rig.start(python(WRITE, EVENTS=f"{HERE}/tensorboard"), mirror=nowhere)
        (tmp_path / "containers/c1/task/go").touch()
        (line,) = (await rig.exit()).unsaved
        assert line.startswith("TensorBoard files: ")
