"""The checkpoint folder follows the job."""

from __future__ import annotations

import os
import signal
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
        version = saved_before(tmp_path, step="7")
        (rig.source / "checkpoints").mkdir()
        (rig.source / "checkpoints/foreign").write_text("")
        agent = await rig.agent()
        prepared = await rig.prepare(checkpoint=settings(tmp_path))
        assert prepared.restored is not None
        assert prepared.restored.startswith(f"{version} (checksum ")
        code = (
            "import os; d = os.environ['HOWDAH_CHECKPOINT_DIR']; print(os.listdir(d), "
            "open('checkpoints/step').read(), os.environ['HOWDAH_RESTORED'])"
        )
        await rig.start(python(code))
        await rig.exit()
        assert agent.log().decode() == f"['step'] 7 {version}\n"


async def test_a_wanted_version_is_restored_rather_than_the_newest(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        first = saved_before(tmp_path, step="7")
        (tmp_path / "earlier/step").write_text("8")
        publish(CheckpointSpec(folder=str(tmp_path / "earlier"), store=str(tmp_path / "store")))
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, version=first))
        assert (Path(agent.launch.work_dir) / "task/checkpoints/step").read_text() == "7"


async def test_what_a_failed_attempt_left_unsaved_is_gone_in_the_next(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        saved_before(tmp_path, step="7")
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path))
        code = "import os; open('checkpoints/half', 'w').write('x'); os.kill(os.getpid(), 9)"
        await rig.start(python(code))
        await rig.exit()
        await rig.prepare(attempt=2, checkpoint=settings(tmp_path))
        folder = Path(agent.launch.work_dir) / "task/checkpoints"
        assert [path.name for path in folder.iterdir()] == ["step"]


async def test_a_store_without_a_checkpoint_restores_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        assert (await rig.prepare(checkpoint=settings(tmp_path))).restored is None


async def test_a_damaged_checkpoint_is_passed_over_and_noted(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        first = saved_before(tmp_path, step="7")
        (tmp_path / "earlier/step").write_text("8")
        second = publish(
            CheckpointSpec(folder=str(tmp_path / "earlier"), store=str(tmp_path / "store"))
        )
        assert second is not None
        (tmp_path / "store" / second.version / "step").write_text("broken")
        await rig.agent()
        prepared = await rig.prepare(checkpoint=settings(tmp_path))
        assert prepared.restored is not None and prepared.restored.startswith(first)
        assert second.version in (await rig.hear(AgentNote)).text


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
        await rig.prepare(checkpoint=settings(tmp_path))
        await rig.start(chief("open('checkpoints/step', 'w').write('1')\n" + FOREVER))
        saved = await rig.hear(CheckpointSaved)
        assert (saved.files, saved.size) == (1, 1)
        assert (tmp_path / "store" / saved.name / "step").read_text() == "1"
        place = len(rig.heard)
        await rig.stop(grace_s=5)
        assert not [m for m in rig.heard[place:] if isinstance(m, CheckpointSaved)]


async def test_a_checkpoint_is_saved_at_once_when_the_program_says_it_is_complete(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=3600))
        code = (
            "from howdah import task\nopen('checkpoints/step', 'w').write('1')\n"
            "import time\nwhile True:\n task.checkpoint_saved(1)\n time.sleep(0.1)"
        )
        await rig.start(chief(code))
        await rig.hear(CheckpointSaved)


async def test_only_the_chief_s_folder_is_saved(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path))
        await rig.start(python("open('checkpoints/step', 'w').write('1')"))
        await rig.exit()
        assert not [m for m in rig.heard if isinstance(m, CheckpointSaved)]


async def test_every_task_s_folder_is_saved_if_the_job_says_so(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, source="each"))
        await rig.start(python("open('checkpoints/step', 'w').write('1')"))
        await rig.exit()
        saved = await rig.hear(CheckpointSaved)
        assert (tmp_path / "store/worker-0" / saved.name / "step").exists()


async def test_the_last_checkpoint_is_saved_before_the_end_is_told(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=3600))
        await rig.start(chief("open('checkpoints/step', 'w').write('9')"))
        assert (await rig.exit()).code == 0
        kinds = [type(m) for m in rig.heard if isinstance(m, (CheckpointSaved, TaskExited))]
        assert kinds == [CheckpointSaved, TaskExited]


async def test_a_program_that_saves_when_it_is_stopped_is_waited_for(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=3600))
        code = (
            "import signal, sys\n"
            "def save(*_):\n open('checkpoints/step', 'w').write('5'); sys.exit(143 - 128)\n"
            "signal.signal(signal.SIGTERM, save)\n" + FOREVER
        )
        await rig.start(chief(code))
        await until(lambda: agent.log())
        assert (await rig.stop(grace_s=20)).code == 15
        assert [m.size for m in rig.heard if isinstance(m, CheckpointSaved)] == [1]


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


async def test_what_a_killed_program_was_writing_is_not_saved_by_a_watcher_that_was_busy(
    tmp_path: Path,
) -> None:
    settle_s = 2.0
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, settle_s=settle_s))
        code = (
            "import os, time\nopen('checkpoints/step', 'w').write('1')\n"
            "while not os.path.exists('go'): time.sleep(0.01)\n"
            "f = open('checkpoints/step', 'w'); f.write('torn'); f.flush()\n" + FOREVER
        )
        started = await rig.start(chief(code))
        saved = await rig.hear(CheckpointSaved)
        (watcher,) = set(agent.marked()) - set(started.pids)
        os.kill(watcher, signal.SIGSTOP)
        (tmp_path / "containers/c1/task/go").touch()
        await until(lambda: agent.log())
        os.kill(started.pids[0], signal.SIGKILL)
        await rig.hear(TaskSaving)
        torn = (tmp_path / "containers/c1/task/checkpoints/step").stat().st_ctime
        await until(lambda: time.time() > torn + 2 * settle_s)
        os.kill(watcher, signal.SIGCONT)
        await rig.exit()
        assert [path.name for path in (tmp_path / "store").glob("0*")] == [saved.name]


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


async def test_outputs_are_copied_before_the_end_is_told(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(outputs=outputs(tmp_path))
        code = (
            "import os; open('results/a', 'w').write('1'); open('model.bin', 'w').write('2');"
            "open(os.environ['HOWDAH_OUTPUT_DIR'] + '/b', 'w').write('3')"
        )
        await rig.start(python(code))
        assert (await rig.exit()).code == 0
        found = {p.name: p.read_text() for p in (tmp_path / "out").rglob("*") if p.is_file()}
        assert found == {"a": "1", "b": "3", "model.bin": "2"}


async def test_outputs_of_a_failed_attempt_are_copied_too(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(outputs=outputs(tmp_path))
        await rig.start(python("open('results/a', 'w').write('1'); raise SystemExit(3)"))
        assert (await rig.exit()).code == 3
        assert (tmp_path / "out/results/a").exists()
