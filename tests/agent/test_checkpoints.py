"""The checkpoint folder follows the job."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from howdah.core.messages import CheckpointSaved, TaskExited, TaskSaving
from howdah.storage.checkpoints.upload import publish
from howdah.storage.checkpoints.versions import CheckpointSpec
from howdah.wire.messages import AgentNote, Prepare, ProcessSpec
from tests.agent.rig import TASK, Rig, alive, python, until
from tests.agent.test_watching import SRC

FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {"folder": "checkpoints", "store": str(folder / "store"), "settle_s": 0.2, **more}


def chief(code: str) -> ProcessSpec:
    return python(code, HOWDAH_IS_CHIEF="true", PYTHONPATH=SRC)


def saved_before(folder: Path, **files: str) -> str:
    """A version in the store from an earlier life; its name."""
    place = folder / "earlier"
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text)
    saved = publish(CheckpointSpec(folder=str(place), store=str(folder / "store")))
    assert saved is not None
    return saved.version


async def test_the_newest_checkpoint_is_there_before_the_start(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        first = saved_before(tmp_path, step="7")
        (rig.source / "checkpoints").mkdir()
        (rig.source / "checkpoints/foreign").write_text("")
        agent = await rig.agent()
        prepared = await rig.prepare(checkpoint=settings(tmp_path))
        assert prepared.restored is not None
        assert prepared.restored.startswith(f"{first} (checksum ")
        code = (
            "import os; d = os.environ['HOWDAH_CHECKPOINT_DIR']; print(os.listdir(d), "
            "open('checkpoints/step').read(), os.environ['HOWDAH_RESTORED'])\n"
            "open('checkpoints/half', 'w').write('x'); os.kill(os.getpid(), 9)"
        )
        await rig.start(python(code))
        await rig.exit()
        assert agent.log().decode() == f"['step'] 7 {first}\n"
        # What it left unsaved is gone, and a damaged version is passed over.
        (tmp_path / "earlier/step").write_text("8")
        earlier = CheckpointSpec(folder=str(tmp_path / "earlier"), store=str(tmp_path / "store"))
        second = publish(earlier)
        (tmp_path / "earlier/step").write_text("9")
        third = publish(earlier)
        assert second is not None and third is not None
        (tmp_path / "store" / third.version / "step").write_text("broken")
        prepared = await rig.prepare(attempt=2, checkpoint=settings(tmp_path))
        assert prepared.restored is not None and prepared.restored.startswith(second.version)
        assert third.version in (await rig.hear(AgentNote)).text
        folder = Path(agent.launch.work_dir) / "task/checkpoints"
        assert {path.name: path.read_text() for path in folder.iterdir()} == {"step": "8"}
        # The coordinator may name one.
        await rig.prepare(attempt=3, checkpoint=settings(tmp_path, version=first))
        assert (folder / "step").read_text() == "7"


async def test_a_stop_ends_a_restore_that_hangs(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        version = saved_before(tmp_path, step="7")
        manifest = tmp_path / "store" / version / "manifest.json"
        manifest.unlink()
        os.mkfifo(manifest)  # reading it waits for a writer
        agent = await rig.agent()
        rig.tell(
            Prepare(task=TASK, attempt=1, generation=1, ports=0, checkpoint=settings(tmp_path))
        )
        helper = await until(lambda: agent.marked())
        exit = await rig.stop(grace_s=10)
        assert exit.code is None
        assert not any(alive(pid) for pid in helper)


async def test_finished_files_are_saved_while_the_chief_runs(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        assert (await rig.prepare(checkpoint=settings(tmp_path))).restored is None
        await rig.start(chief("open('checkpoints/step', 'w').write('1')\n" + FOREVER))
        saved = await rig.hear(CheckpointSaved)
        assert (saved.files, saved.size) == (1, 1)
        assert (tmp_path / "store" / saved.name / "step").read_text() == "1"
        place = len(rig.heard)
        await rig.stop(grace_s=5)
        assert not [m for m in rig.heard[place:] if isinstance(m, CheckpointSaved)]


async def test_the_chief_s_folder_is_saved_or_every_task_s_if_the_job_says_so(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        write = python("open('checkpoints/step', 'w').write('1')")
        await rig.prepare(checkpoint=settings(tmp_path), outputs=outputs(tmp_path))
        await rig.start(write)
        await rig.exit()
        assert not [m for m in rig.heard if isinstance(m, (CheckpointSaved, TaskSaving))]
        await rig.prepare(attempt=2, checkpoint=settings(tmp_path, source="each"))
        await rig.start(write, attempt=2)
        await rig.exit(2)
        saved = await rig.hear(CheckpointSaved)
        assert (tmp_path / "store/worker-0" / saved.name / "step").exists()


async def test_a_checkpoint_is_saved_at_once_when_it_is_complete_and_again_after_a_stop(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=3600))
        code = (
            "from howdah import task\nimport signal, sys, time\n"
            "def save(*_):\n open('checkpoints/step', 'w').write('last'); sys.exit(15)\n"
            "signal.signal(signal.SIGTERM, save)\n"
            "open('checkpoints/step', 'w').write('1')\n"
            "while True:\n task.checkpoint_saved(1)\n time.sleep(0.1)"
        )
        await rig.start(chief(code))
        await rig.hear(CheckpointSaved)
        assert (await rig.stop(grace_s=3600)).code == 15
        assert [m.size for m in rig.heard if isinstance(m, CheckpointSaved)] == [1, 4]


async def test_the_last_checkpoint_is_saved_before_the_end_is_told(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=3600))
        await rig.start(chief("open('checkpoints/step', 'w').write('9')"))
        assert (await rig.exit()).code == 0
        kinds = [type(m) for m in rig.heard if isinstance(m, (CheckpointSaved, TaskExited))]
        assert kinds == [CheckpointSaved, TaskExited]


async def test_what_a_killed_program_was_writing_is_not_saved(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=5.0))
        code = "f = open('checkpoints/step', 'w'); f.write('half'); f.flush()\n" + FOREVER
        started = await rig.start(chief(code))
        await until(lambda: agent.log())
        os.kill(started.pids[0], 9)
        assert (await rig.exit()).signal == 9
        assert not [m for m in rig.heard if isinstance(m, CheckpointSaved)]
        assert not list((tmp_path / "store").glob("0*"))


async def test_what_a_killed_program_was_writing_is_not_saved_while_others_of_its_task_end(
    tmp_path: Path,
) -> None:
    settle_s = 2.0
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=settle_s))
        torn = (
            "import os, signal\n"
            "def die(*_):\n"
            " f = open('checkpoints/step', 'w'); f.write('torn'); f.flush()\n"
            " os.kill(os.getpid(), signal.SIGKILL)\n"
            "signal.signal(signal.SIGTERM, die)\n" + FOREVER
        )
        slow = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER
        await rig.start(chief(torn), python(slow))
        await until(lambda: agent.log().count(b"up") == 2)
        rig.tell_stop(grace_s=600, save_s=60)
        file = tmp_path / "containers/c1/task/checkpoints/step"
        await until(file.exists)
        await until(lambda: time.time() > file.stat().st_ctime + 2 * settle_s)
        rig.tell_stop(grace_s=0, save_s=60)
        await rig.exit()
        assert not [m for m in rig.heard if isinstance(m, CheckpointSaved)]
        assert not list((tmp_path / "store").glob("0*"))


async def test_a_watcher_that_dies_is_noted_and_replaced(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path))
        go = tmp_path / "go"
        code = (
            f"import os, time\nprint('up')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            "open('checkpoints/step', 'w').write('1')\n" + FOREVER
        )
        started = await rig.start(chief(code))
        watcher = await until(lambda: set(agent.marked()) - set(started.pids))
        os.kill(watcher.pop(), 9)
        assert "watcher" in (await rig.hear(AgentNote)).text
        go.touch()
        await rig.hear(CheckpointSaved)


async def test_a_firm_stop_does_not_wait_for_saving(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path))
        started = await rig.start(chief(FOREVER))
        await until(lambda: agent.log())
        watcher = await until(lambda: set(agent.marked()) - set(started.pids))
        for pid in watcher:
            os.kill(pid, 19)  # it does not answer
        rig.tell_stop(grace_s=30, save_s=3600)
        await rig.hear(TaskSaving)
        rig.tell_stop(grace_s=0)
        (line,) = (await rig.exit()).unsaved
        assert line.startswith(f"checkpoints: {tmp_path}/store has not taken it; no more time")
        assert not agent.marked()


# -- outputs -------------------------------------------------------------------------------------


def outputs(folder: Path) -> dict[str, Any]:
    return {"folders": ["results", "model.bin"], "store": str(folder / "out")}


async def test_outputs_are_copied_before_the_end_is_told_also_of_a_failure(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(outputs=outputs(tmp_path))
        code = (
            "import os; open('results/a', 'w').write('1'); open('model.bin', 'w').write('2');"
            "open(os.environ['HOWDAH_OUTPUT_DIR'] + '/b', 'w').write('3'); raise SystemExit(3)"
        )
        await rig.start(python(code))
        assert (await rig.exit()).code == 3
        found = {p.name: p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file()}
        assert found == {"a": "1", "b": "3", "model.bin": "2"}
