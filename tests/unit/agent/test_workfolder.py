"""The working folder: what of the source is copied and what linked; and its path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from howdah.agent import workfolder
from howdah.agent.launch import HERE, AgentLaunch
from howdah.agent.workfolder import COPIED_BYTES, changed, fill, make, place, substitute
from howdah.core.messages import Task
from howdah.storage.folders import Signature
from howdah.wire.messages import Prepare, ProcessSpec, Start


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)")
    (folder / "pkg/model.py").write_text("")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/old").write_text("of another run")
    return folder


def test_small_files_are_copies_and_large_ones_links(tmp_path: Path, source: Path) -> None:
    (source / "data.bin").write_bytes(b"x" * (COPIED_BYTES + 1))
    task = tmp_path / "task"
    made = make(task, source, [])
    assert made == {"train.py", "pkg/model.py", "checkpoints/old", "data.bin"}
    assert not (task / "train.py").is_symlink()
    assert (task / "train.py").stat().st_mtime_ns == (source / "train.py").stat().st_mtime_ns
    assert (task / "data.bin").samefile(source / "data.bin")
    assert not (task / "data.bin").is_symlink()


def test_links_within_the_source_stay_within_and_others_lead_where_they_led(
    tmp_path: Path, source: Path
) -> None:
    (source / "pkg/latest").symlink_to("../checkpoints")
    (source / "pkg/out").symlink_to("../../elsewhere")
    task = tmp_path / "task"
    make(task, source, [])
    assert (task / "pkg/latest").resolve() == (task / "checkpoints").resolve()
    assert (task / "pkg/out").readlink() == source / "pkg/out"


def test_files_beyond_the_limit_are_links_and_folders_never(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workfolder, "MOST_COPIES", 1)
    task = tmp_path / "task"
    (source / "pkg/deep").mkdir()
    (source / "pkg/deep/data").write_text("")
    make(task, source, ["pkg/deep/own"])
    assert sorted(os.walk(task, topdown=False))[-1][0] == str(task / "pkg/deep")
    assert (task / "pkg/deep/data").samefile(source / "pkg/deep/data")


def test_a_link_made_elsewhere_to_a_file_of_the_source_is_no_change_of_it(
    tmp_path: Path, source: Path
) -> None:
    """It sets the file's ``ctime``."""
    (source / "data.bin").write_bytes(b"x" * (COPIED_BYTES + 1))
    given: dict[str, Signature] = {}
    fill(tmp_path / "one", source, [], {}, given)
    fill(tmp_path / "other", source, [], {}, {})
    assert changed(tmp_path / "one", given) == {}
    with (tmp_path / "one/data.bin").open("ab") as file:
        file.write(b"more")
    assert list(changed(tmp_path / "one", given)) == ["data.bin"]


def test_what_a_program_writes_stays_out_of_the_source(tmp_path: Path, source: Path) -> None:
    task = tmp_path / "task"
    make(task, source, ["checkpoints"])
    (task / "checkpoints").mkdir()
    (task / "new.txt").write_text("x")
    (task / "checkpoints/step-1").write_text("x")
    assert sorted(p.name for p in source.iterdir()) == ["checkpoints", "pkg", "train.py"]
    assert [p.name for p in (task / "checkpoints").iterdir()] == ["step-1"]


def test_a_folder_inside_a_source_folder_leaves_the_rest_of_that_visible(
    tmp_path: Path, source: Path
) -> None:
    task = tmp_path / "task"
    make(task, source, ["pkg/out/checkpoints"])
    assert (task / "pkg/model.py").exists()
    assert not (task / "pkg").is_symlink()
    assert (task / "pkg/out").is_dir()
    assert not (source / "pkg/out").exists()


def test_making_it_again_keeps_what_is_there(tmp_path: Path, source: Path) -> None:
    task = tmp_path / "task"
    make(task, source, ["checkpoints"])
    (task / "checkpoints").mkdir()
    (task / "checkpoints/step-1").write_text("x")
    (task / "train.py").unlink()
    (task / "train.py").write_text("changed by the program")
    (source / "late.py").write_text("")
    make(task, source, ["checkpoints"])
    assert (task / "checkpoints/step-1").exists()
    assert (task / "train.py").read_text() == "changed by the program"
    assert (task / "late.py").exists()


def test_a_folder_that_is_removed_meanwhile_is_left_out_and_the_rest_is_put_there(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def listed(folder: Path) -> Any:
        if folder == str(source / "checkpoints"):
            shutil.rmtree(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", listed)
    make(tmp_path / "task", source, [])
    assert not (source / "checkpoints").exists()
    assert (tmp_path / "task/train.py").is_file() and (tmp_path / "task/pkg/model.py").is_file()


@pytest.mark.parametrize("as_it_is", ["looked at", "opened"])
def test_a_file_that_is_removed_meanwhile_is_left_out_and_the_rest_is_put_there(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, as_it_is: str
) -> None:
    passing = {source / "train.py.swp", source / "pkg/model.py.swp"}
    for path in passing:
        path.write_text("of an editor")
    lstat, os_open = os.lstat, os.open

    def looked_at(path: Any) -> os.stat_result:
        status = lstat(path)
        if Path(path) in passing:
            Path(path).unlink()
        return status

    def opened(path: Any, *args: int) -> int:
        if Path(path) in passing:
            Path(path).unlink()
        return os_open(path, *args)

    if as_it_is == "opened":
        monkeypatch.setattr(os, "open", opened)
    else:
        monkeypatch.setattr(os, "lstat", looked_at)
    made = make(tmp_path / "task", source, [])
    assert not [path for path in passing if path.exists()]
    assert made == {"train.py", "pkg/model.py", "checkpoints/old"}
    assert all((tmp_path / "task" / name).is_file() for name in made)
    assert not list((tmp_path / "task").glob("**/*.swp"))


def test_folders_outside_the_working_folder_are_left_alone(tmp_path: Path, source: Path) -> None:
    task = tmp_path / "task"
    make(task, source, ["/elsewhere/x", "../up", "."])
    assert not (tmp_path / "up").exists()
    assert place(task, "/elsewhere/x") == Path("/elsewhere/x")
    assert place(task, "a/../b") == task / "b"


def test_without_a_source_there_are_the_folders_only(tmp_path: Path) -> None:
    make(tmp_path / "task", None, ["out/checkpoints"])
    assert [p.name for p in (tmp_path / "task").iterdir()] == ["out"]


# -- the container's folder in what a coordinator wrote that does not know it ---------------------

WORKER = Task("worker", 0)


def test_arguments_and_environment_of_programs_are_replaced() -> None:
    start = Start(
        task=WORKER,
        attempt=1,
        generation=1,
        processes=(
            ProcessSpec(
                argv=(f"{HERE}/env/bin/python", "train.py", f"--data={HERE}/data:{HERE}/more"),
                env={"PATH": f"{HERE}/bin:/usr/bin", "HOME": "/home/someone"},
            ),
        ),
    )
    (program,) = substitute(start, "/c").processes
    assert program.argv == ("/c/env/bin/python", "train.py", "--data=/c/data:/c/more")
    assert program.env == {"PATH": "/c/bin:/usr/bin", "HOME": "/home/someone"}


def test_places_of_checkpoints_and_outputs_are_replaced() -> None:
    prepare = Prepare(
        task=WORKER,
        attempt=1,
        generation=1,
        ports=1,
        checkpoint={"store": f"file://{HERE}/store", "keep": 3, "ignore": ["*.tmp", HERE]},
        outputs={"folders": [f"{HERE}/out"], "store": "hdfs://nn/out"},
    )
    prepare = substitute(prepare, "/c")
    assert prepare.checkpoint == {"store": "file:///c/store", "keep": 3, "ignore": ["*.tmp", "/c"]}
    assert prepare.outputs == {"folders": ["/c/out"], "store": "hdfs://nn/out"}


def test_a_launch_file_speaks_of_its_own_working_folder() -> None:
    launch = AgentLaunch(
        job_id="job",
        container_id="c1",
        coordinator_file=None,
        ca="ca",
        certificate="c",
        key="k",
        work_dir="/c",
        log_dir="/logs",
        source=f"{HERE}/source",
        python_path=f"{HERE}/python",
    )
    launch = substitute(launch, launch.work_dir)
    assert (launch.source, launch.python_path, launch.log_dir) == (
        "/c/source",
        "/c/python",
        "/logs",
    )


def test_what_has_no_such_path_is_left_as_it_is() -> None:
    prepare = Prepare(task=WORKER, attempt=1, generation=1, ports=1, checkpoint={"store": "/s"})
    assert substitute(prepare, "/c") == prepare


def test_what_the_system_writes_at_a_crash_is_no_work_of_a_program(tmp_path: Path) -> None:
    for name, content in (("core", b"\x7fELF\2"), ("core.123", b"\x7fELF\2"), ("a/core", b"mine")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert list(changed(tmp_path, {})) == ["a/core"]
