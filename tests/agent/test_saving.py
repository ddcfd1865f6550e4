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
from tests.agent.rig import TASK, Rig, python, shell, start_message, until
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
        await rig.prepare(checkpoint=settings(tmp_path))
        store = away(tmp_path)
        await rig.start(chief(WRITE + "raise SystemExit(3)"))
        saving = await rig.hear(TaskSaving)
        assert (saving.exit.code, saving.attempt) == (3, 1)
        assert 1000 < saving.limit_s <= 1800
        assert not [message for message in rig.heard if isinstance(message, TaskExited)]
        store.unlink()
        assert (await rig.exit()).unsaved == ()
        assert await rig.hear(CheckpointSaved)


async def test_saving_that_takes_long_is_said_and_is_no_hang(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), save_s=900.0)
        store = away(tmp_path)
        await rig.start(chief(WRITE))
        saving = await rig.hear(TaskSaving)
        assert (saving.exit.code, saving.exit.unsaved) == (0, ())
        assert 800 < saving.limit_s < 900
        place = len(rig.heard)
        assert (await rig.hear(Heartbeat, after=place)).progress_s == 0.0
        store.unlink()
        assert (await rig.exit()).code == 0


async def test_an_end_with_nothing_to_save_is_said_once(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), outputs=outputs(tmp_path))
        await rig.start(shell("exit 3"))  # not the chief, and without outputs
        await rig.exit()
        assert not [message for message in rig.heard if isinstance(message, TaskSaving)]


async def test_an_agent_that_saves_says_so_to_a_new_coordinator(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path))
        store = away(tmp_path)
        await rig.start(chief(WRITE + "raise SystemExit(3)"))
        await rig.hear(TaskSaving)
        await rig.vanish()
        place = len(rig.heard)
        await rig.begin()
        held = (await rig.connected(2)).held
        assert held is not None and held.exit is not None
        assert (held.phase, held.exit.code) == (HeldPhase.SAVING, 3)
        assert 1000 < held.save_s <= 1800
        await rig.hear(TaskSaving, after=place)
        store.unlink()
        assert (await rig.exit()).code == 3


async def test_a_later_stop_leaves_less_time_to_save(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), save_s=3600.0)
        store = away(tmp_path)
        await rig.start(chief(WRITE))
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


async def test_a_program_that_is_stopped_has_the_stop_s_time_to_save(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), save_s=3600.0)
        store = away(tmp_path)
        code = WRITE + "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit())\n"
        await rig.start(chief(code + "print('up')\nsignal.pause()"))
        await until(lambda: agent.log())
        await rig.hear(AgentNote)  # the watcher has met the store
        exit = await rig.stop(grace_s=20, save_s=0.5)
        assert exit.code == 0
        (line,) = exit.unsaved
        assert line.startswith(f"checkpoints: {store} can't be written: ")


async def test_a_stop_that_gives_no_time_to_save_is_obeyed(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), outputs=outputs(tmp_path))
        code = "open('results/a', 'w').write('1')\nprint('up')\nimport time\ntime.sleep(1000)"
        await rig.start(chief(code))
        await until(lambda: agent.log())
        exit = await rig.stop(grace_s=5, save_s=0)
        (line,) = exit.unsaved
        why = f"results: not copied to {tmp_path}/out; no more time than 0 s was left"
        assert line.startswith(f"{why}; kept in ")
        assert not (tmp_path / "out").exists()


# -- what can't be saved -------------------------------------------------------------------------


async def test_a_store_that_cannot_be_written_is_noted_once_before_there_is_a_checkpoint(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path, store="/proc/nowhere"))
        go = tmp_path / "go"
        wait = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        await rig.start(chief(wait + WRITE))
        await rig.hear(AgentNote)
        go.touch()
        exit = await rig.exit()
        (line,) = exit.unsaved
        assert line.startswith("checkpoints: /proc/nowhere can't be written: ")
        assert exit.code == 0
        (note,) = notes(rig)
        assert "/proc/nowhere can't be written" in note


async def test_outputs_that_cannot_be_copied_are_in_the_exit_and_fail_nothing(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(outputs=outputs(tmp_path) | {"store": "/proc/nowhere"})
        await rig.start(python("open('results/a', 'w').write('1')"))
        exit = await rig.exit()
        assert exit.code == 0
        (line,) = exit.unsaved
        assert line.startswith("results: 1 of 1 files not copied to /proc/nowhere: results/a: ")


async def test_outputs_are_copied_once_their_store_is_back(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (tmp_path / "out").write_text("not mounted")
        await rig.prepare(outputs=outputs(tmp_path))
        await rig.start(python("open('results/a', 'w').write('1')"))
        assert (
            f"results: 1 of 1 files not copied to {tmp_path}/out"
            in (await rig.hear(AgentNote)).text
        )
        (tmp_path / "out").unlink()
        exit = await rig.exit()
        assert (exit.code, exit.unsaved) == (0, ())
        assert (tmp_path / "out/results/a").read_text() == "1"


def copying(folder: Path) -> bool:
    """Whether a process still copies outputs of an agent in that folder."""
    found = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any("copy-outputs" in line and str(folder) in " ".join(line) for line in found)


async def test_a_store_that_is_away_for_checkpoints_costs_no_outputs(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path), outputs=outputs(tmp_path), save_s=3600.0)
        away(tmp_path)
        await rig.start(chief(WRITE + "open('results/a', 'w').write('1')"))
        await until((tmp_path / "out/results/a").exists)
        await until(lambda: not copying(tmp_path))
        exit = await rig.stop(grace_s=0, save_s=0)
        assert [line.partition(":")[0] for line in exit.unsaved] == ["checkpoints"]


async def test_a_newer_checkpoint_than_the_store_s_is_not_thrown_away(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=settings(tmp_path))
        store = away(tmp_path)
        await rig.start(chief(WRITE))
        await until((Path(agent.launch.work_dir) / "unsaved-checkpoint").exists)
        assert (await rig.stop(grace_s=0, save_s=0)).unsaved
        rig.tell(
            Prepare(task=TASK, attempt=2, generation=2, ports=0, checkpoint=settings(tmp_path))
        )
        assert (await rig.exit(2)).transient, "the store is still away"
        store.unlink()
        again = {"generation": 3, "ports": 0, "checkpoint": settings(tmp_path)}
        rig.tell(Prepare(task=TASK, attempt=3, **again))
        assert "000001" in (await rig.exit(3)).failed_to_start, "others may have begun without it"
        assert (await rig.hear(CheckpointSaved)).name == "000001"
        prepared = await rig.prepare(attempt=4, checkpoint=settings(tmp_path))
        assert prepared.restored is not None and prepared.restored.startswith("000001 ")
        folder = Path(agent.launch.work_dir) / "task/checkpoints"
        assert (folder / "step").read_text() == "500"


async def test_what_is_saved_at_a_restore_is_what_the_job_goes_on_from(tmp_path: Path) -> None:
    """An older version was named, for all members of the gang alike: they begin anew from the newer one."""
    spec = settings(tmp_path, version=saved_before(tmp_path, step="400"))
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(checkpoint=spec)
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        store = away(tmp_path)
        await rig.start(chief(WRITE))
        await until((Path(agent.launch.work_dir) / "unsaved-checkpoint").exists)
        assert (await rig.stop(grace_s=0, save_s=0)).unsaved
        store.unlink()
        (tmp_path / "elsewhere").rename(store)
        rig.tell(Prepare(task=TASK, attempt=2, generation=2, ports=0, checkpoint=spec))
        exit = await rig.exit(2)
        assert exit.transient and "000002" in exit.failed_to_start
        saved = await rig.hear(CheckpointSaved)
        assert (saved.name, saved.attempt) == ("000002", 2)
        ended = await rig.hear(TaskExited, lambda m: m.attempt == 2)
        assert rig.heard.index(saved) < rig.heard.index(ended)
        prepared = await rig.prepare(attempt=3, checkpoint={**spec, "version": saved.name})
        assert prepared.restored is not None and prepared.restored.startswith("000002 ")
        folder = Path(agent.launch.work_dir) / "task/checkpoints"
        assert (folder / "step").read_text() == "500"


async def test_an_attempt_saves_nothing_more_once_its_successor_elsewhere_has(
    tmp_path: Path,
) -> None:
    spec = settings(tmp_path, source="each", job_id="digits-1")
    go = tmp_path / "go"
    code = (
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "open('checkpoints/step', 'w').write('101, cut off')\ntime.sleep(1000)"
    )
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare(checkpoint=spec)
        await rig.start(python(code))
        await rig.agent(container_id="c2")
        rig.tell(Prepare(task=TASK, attempt=2, generation=1, ports=0, checkpoint=spec))
        rig.tell(start_message(python(WRITE), attempt=2))
        assert (await rig.exit(2)).code == 0
        go.touch()
        note = await rig.hear(AgentNote, lambda message: message.attempt == 1)
        assert "attempt 2 in generation 1" in note.text
        (version,) = (tmp_path / "store/worker-0").iterdir()
        assert (version / "step").read_text() == "500"


# -- what may pass -------------------------------------------------------------------------------


async def prepared_badly(rig: Rig, attempt: int = 1, **more: Any) -> Any:
    """How an attempt that can't be prepared ended."""
    rig.tell(Prepare(task=TASK, attempt=attempt, generation=1, **{"ports": 0} | more))
    return await rig.exit(attempt)


async def test_a_store_that_is_away_at_a_restore_may_come_back(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        store = away(tmp_path)
        exit = await prepared_badly(rig, checkpoint=settings(tmp_path))
        assert exit.failed_to_start.startswith("its checkpoint can't be restored: ")
        assert exit.transient
        store.unlink()
        await rig.prepare(attempt=2, checkpoint=settings(tmp_path))


async def test_a_store_s_wrong_name_and_a_lost_checkpoint_are_final(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        wrong = await prepared_badly(rig, checkpoint=settings(tmp_path, store="nosuch://place/x"))
        assert wrong.failed_to_start.startswith("its checkpoint can't be restored: ")
        assert not wrong.transient
        lost = await prepared_badly(rig, 2, checkpoint=settings(tmp_path, version="000017"))
        assert "checkpoint 000017, which the job has saved, is not in" in lost.failed_to_start
        assert not lost.transient


async def test_a_restore_whose_process_is_killed_may_work_the_next_time(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        version = tmp_path / "store/000001"
        version.mkdir(parents=True)
        os.mkfifo(version / "manifest.json")  # reading it waits for a writer
        agent = await rig.agent()
        rig.tell(
            Prepare(task=TASK, attempt=1, generation=1, ports=0, checkpoint=settings(tmp_path))
        )
        (helper,) = await until(agent.marked)
        os.kill(helper, 9)
        assert (await rig.exit()).transient


def neighbours() -> tuple[int, int]:
    """Two ports beside each other that are free now."""
    while True:
        first = random.randrange(11000, 19000)
        with contextlib.suppress(ports.PortsError):
            ports.reserve(2, "127.0.0.1", (first, first + 1)).release()
            return first, first + 1


async def test_ports_that_are_all_taken_may_be_free_later(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        two = neighbours()
        await rig.agent(ports=two)
        await rig.prepare(ports=2)
        await rig.agent(container_id="c2", ports=two)
        exit = await prepared_badly(rig, 2, ports=1)
        assert "widen `[network] ports`" in exit.failed_to_start
        assert exit.transient


async def test_a_source_folder_that_is_gone_is_final(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent(source=str(tmp_path / "nowhere"))
        exit = await prepared_badly(rig)
        assert "working folder can't be made" in exit.failed_to_start
        assert not exit.transient


async def test_a_file_of_the_job_file_that_is_gone_is_final(tmp_path: Path) -> None:
    """A task that has it in its folder does not need it again."""
    words = tmp_path / "words.txt"
    words.write_text("hello")
    async with Rig(tmp_path) as rig:
        await rig.agent(files={"words.txt": str(words)})
        await rig.prepare()
        words.unlink()
        await rig.prepare(attempt=2)
        await rig.agent(container_id="c2", files={"words.txt": str(words)})
        exit = await prepared_badly(rig, attempt=3)
        assert str(words) in exit.failed_to_start
        assert not exit.transient
