"""After the programs' end: what is saved, for how long, and what is said of it."""

from __future__ import annotations

import contextlib
import os
import random
from pathlib import Path
from typing import Any

import psutil

from howdah.agent import ports
from howdah.core.messages import CheckpointSaved, HeldPhase, TaskExited, TaskSaving
from howdah.wire.messages import AgentNote, Heartbeat, Prepare
from tests.agent.rig import TASK, Rig, python, until
from tests.agent.test_checkpoints import chief, outputs, saved_before, settings

WRITE = "open('checkpoints/step', 'w').write('500')\n"


def away(folder: Path) -> Path:
    """The store is away until this path is unlinked."""
    store = folder / "store"
    store.write_text("not mounted")
    return store


def notes(rig: Rig) -> list[str]:
    return [message.text for message in rig.heard if isinstance(message, AgentNote)]


async def test_a_failure_is_said_before_what_is_left_is_saved(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), save_s=900.0)
        store = away(tmp_path)
        await rig.start(chief(WRITE + "raise SystemExit(3)"))
        saving = await rig.hear(TaskSaving)
        assert (saving.exit.code, saving.attempt) == (3, 1)
        assert 500 < saving.limit_s <= 900
        assert not [message for message in rig.heard if isinstance(message, TaskExited)]
        beat = await rig.hear(Heartbeat, after=len(rig.heard))
        assert beat.progress_s == 0.0, "saving is no hang"
        # A new coordinator hears the same.
        await rig.vanish()
        place = len(rig.heard)
        await rig.begin()
        held = (await rig.connected(2)).held
        assert held is not None and held.exit is not None
        assert (held.phase, held.exit.code) == (HeldPhase.SAVING, 3)
        assert 500 < held.save_s <= 900
        await rig.hear(TaskSaving, after=place)
        store.unlink()
        assert (await rig.exit()).unsaved == ()
        assert await rig.hear(CheckpointSaved)


async def test_a_later_stop_leaves_less_time_to_save(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), outputs=outputs(tmp_path), save_s=3600.0)
        store = away(tmp_path)
        await rig.start(chief(WRITE + "open('results/a', 'w').write('1')"))
        # The store of checkpoints is away: outputs are copied nevertheless.
        await until((tmp_path / "out/results/a").exists)
        await until(lambda: not copying(tmp_path))
        await rig.hear(TaskSaving)
        await rig.hear(AgentNote)  # the watcher has met the store
        place = len(rig.heard)
        rig.tell_stop(grace_s=30, save_s=300)
        assert (await rig.hear(TaskSaving, after=place)).limit_s <= 300
        place = len(rig.heard)
        rig.tell_stop(grace_s=30, save_s=3000)
        assert (await rig.hear(TaskSaving, after=place)).limit_s <= 300, "more is not given"
        rig.tell_stop(grace_s=0, save_s=0)
        exit = await rig.exit()
        assert exit.code == 0
        (line,) = exit.unsaved
        assert line.startswith(f"checkpoints: {store} can't be written: ")
        assert not agent.marked()


# -- what can't be saved -------------------------------------------------------------------------


async def test_what_cannot_be_saved_is_in_the_exit_and_noted_once(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        spec = settings(tmp_path, store="/proc/nowhere")
        kept = outputs(tmp_path) | {"store": "/proc/nowhere"}
        await rig.prepare(checkpoint=spec, outputs=kept)
        go = tmp_path / "go"
        wait = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        await rig.start(chief(wait + WRITE + "open('results/a', 'w').write('1')"))
        # Before there is a checkpoint.
        assert "/proc/nowhere can't be written" in (await rig.hear(AgentNote)).text
        go.touch()
        exit = await rig.exit()
        assert exit.code == 0
        checkpoints, results = exit.unsaved
        assert checkpoints.startswith("checkpoints: /proc/nowhere can't be written: ")
        assert results.startswith("results: 1 of 1 files not copied to /proc/nowhere: results/a: ")
        assert len([note for note in notes(rig) if note.startswith("checkpoints")]) <= 1


async def test_outputs_are_copied_once_their_store_is_back(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (tmp_path / "out").write_text("not mounted")
        await rig.prepare(outputs=outputs(tmp_path))
        await rig.start(python("open('results/a', 'w').write('1')"))
        note = await rig.hear(AgentNote)
        assert f"results: 1 of 1 files not copied to {tmp_path}/out" in note.text
        (tmp_path / "out").unlink()
        exit = await rig.exit()
        assert (exit.code, exit.unsaved) == (0, ())
        assert (tmp_path / "out/results/a").read_text() == "1"


def copying(folder: Path) -> bool:
    """Whether a process still copies outputs of an agent in that folder."""
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any("copy-outputs" in line and str(folder) in " ".join(line) for line in found)


async def test_what_is_saved_at_a_restore_is_what_the_job_goes_on_from(tmp_path: Path) -> None:
    """An older version was named, for all members of the gang alike: they begin anew from the newer one,
    which the store did not have when its attempt was stopped."""
    spec = settings(tmp_path, version=saved_before(tmp_path, step="400"))
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=spec)
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        store = away(tmp_path)
        await rig.start(chief(WRITE))
        await until((Path(agent.launch.work_dir) / "unsaved-checkpoint").exists)
        assert (await rig.stop(grace_s=0, save_s=0)).unsaved
        assert (await prepared_badly(rig, 2, checkpoint=spec)).transient, "it is still away"
        store.unlink()
        (tmp_path / "elsewhere").rename(store)
        exit = await prepared_badly(rig, 3, checkpoint=spec)
        assert exit.transient and "000002" in exit.failed_to_start, "others may have begun without"
        saved = await rig.hear(CheckpointSaved)
        assert (saved.name, saved.attempt) == ("000002", 3)
        ended = await rig.hear(TaskExited, lambda m: m.attempt == 3)
        assert rig.heard.index(saved) < rig.heard.index(ended)
        prepared = await rig.prepare(attempt=4, checkpoint={**spec, "version": saved.name})
        assert prepared.restored is not None and prepared.restored.startswith("000002 ")
        folder = Path(agent.launch.work_dir) / "task/checkpoints"
        assert (folder / "step").read_text() == "500"


# -- what may pass -------------------------------------------------------------------------------


async def prepared_badly(rig: Rig, attempt: int = 1, **more: Any) -> Any:
    """How an attempt that can't be prepared ended."""
    rig.tell(Prepare(task=TASK, attempt=attempt, generation=1, **{"ports": 0} | more))
    return await rig.exit(attempt)


def neighbours() -> tuple[int, int]:
    """Two ports beside each other that are free now."""
    while True:
        first = random.randrange(11000, 19000)
        with contextlib.suppress(ports.PortsError):
            ports.reserve(2, "127.0.0.1", (first, first + 1)).release()
            return first, first + 1


async def test_what_cannot_be_prepared_is_final_or_may_pass(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        wrong = await prepared_badly(rig, checkpoint=settings(tmp_path, store="nosuch://place/x"))
        assert wrong.failed_to_start.startswith("its checkpoint can't be restored: ")
        assert not wrong.transient
        lost = await prepared_badly(rig, 2, checkpoint=settings(tmp_path, version="000017"))
        assert "checkpoint 000017, which the job has saved, is not in" in lost.failed_to_start
        assert not lost.transient
        # The helper that restores is killed: it may work the next time.
        version = tmp_path / "store/000001"
        version.mkdir(parents=True)
        os.mkfifo(version / "manifest.json")  # reading it waits for a writer
        rig.tell(
            Prepare(task=TASK, attempt=3, generation=1, ports=0, checkpoint=settings(tmp_path))
        )
        (helper,) = await until(agent.marked)
        os.kill(helper, 9)
        assert (await rig.exit(3)).transient


async def test_a_host_that_lacks_what_the_task_needs_says_so(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("hello")
    async with Rig(tmp_path) as rig:
        two = neighbours()
        await rig.agent(ports=two, files={"words.txt": str(words)})
        await rig.prepare(ports=2)
        await rig.agent(container_id="c2", ports=two)
        exit = await prepared_badly(rig, 2, ports=1)
        assert "widen `[network] ports`" in exit.failed_to_start
        assert exit.transient, "others may give some back"
        words.unlink()
        await rig.agent(container_id="c3", files={"words.txt": str(words)})
        exit = await prepared_badly(rig, 3)
        assert str(words) in exit.failed_to_start
        assert not exit.transient
        await rig.agent(container_id="c4", source=str(tmp_path / "nowhere"))
        exit = await prepared_badly(rig, 4)
        assert "working folder can't be made" in exit.failed_to_start
        assert not exit.transient
