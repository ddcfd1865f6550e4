"""What a program writes to its working folder: never to the user's folder, told at the end, and kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.howdah import gone, job_file, newest
from tests.cli.inside import howdah

WRITES_EVERYWHERE = """
import os
from pathlib import Path

me = os.environ["HOWDAH_RANK"]
Path("results.json").write_text(me)
Path("pkg/out.txt").write_text(me)
Path("runs/old/log.txt").open("a").write(me)
with open("data.bin", "r+b") as file:
    file.write(b"changed")
Path("lightning_logs").mkdir()
Path("lightning_logs/model.pt").write_text("weights of " + me)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that jobs of yesterday have been run in by hand."""
    folder = tmp_path / "job"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg/model.py").write_text("")
    (folder / "results.json").write_text("of yesterday")
    (folder / "runs/old").mkdir(parents=True)
    (folder / "runs/old/log.txt").write_text("of yesterday\n")
    (folder / "data.bin").write_bytes(b"x" * (2 << 20))
    return folder


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_nothing_a_program_writes_reaches_the_users_folder_and_all_of_it_is_kept(
    folder: Path,
) -> None:
    (folder / "helper.py").write_text("")  # its cache is nothing that was made
    script = f"import helper\n{WRITES_EVERYWHERE}"
    file = job_file(folder.parent, script, roles={"worker": {"instances": 2}})
    before = _files(folder)
    run = howdah("run", str(file))
    assert _files(folder) == before
    view = gone(newest())
    kept = Path(view.directory, "outputs")
    for rank in ("0", "1"):
        own = _files(kept / f"worker-{rank}")
        assert own["lightning_logs/model.pt"] == f"weights of {rank}".encode()
        assert own["results.json"] == rank.encode()
        assert own["pkg/out.txt"] == rank.encode()
        assert own["runs/old/log.txt"].endswith(rank.encode())
        assert own["data.bin"].startswith(b"changed")
        assert "pkg/model.py" not in own
    assert "worker:0 made 5 files" in run.text, run.text
    assert str(kept / "worker-0") in run.text.replace("\n", "")


@pytest.mark.parametrize(
    ("keep", "names"),
    [
        (["lightning_logs/*.pt", "pkg"], {"lightning_logs/model.pt", "pkg/out.txt"}),
        ([], set[str]()),
    ],
)
def test_the_job_file_says_what_is_kept(folder: Path, keep: list[str], names: set[str]) -> None:
    file = job_file(folder.parent, WRITES_EVERYWHERE, outputs={"keep": keep})
    run = howdah("run", str(file))
    view = gone(newest())
    assert set(_files(Path(view.directory, "outputs/worker-0"))) == names
    left = f"{5 - len(names)} of them are not kept" if names else "not kept"
    assert left in run.text.replace("\n", " "), run.text


def test_a_job_runs_as_it_was_submitted_whatever_becomes_of_the_folder(folder: Path) -> None:
    script = """
import os, pathlib, sys
me = pathlib.Path(os.environ["SOURCE"], "train.py")
if me.read_text() != "raise SystemExit(9)":
    me.write_text("raise SystemExit(9)")
    sys.exit(5)
print("as submitted")
"""
    file = job_file(folder.parent, script, env={"SOURCE": str(folder)}, attempts=2)
    run = howdah("run", str(file))
    assert "worker:0 | as submitted" in run.text
    assert gone(newest()).restarts == 1


def test_the_working_folder_as_checkpoint_is_what_is_new_in_it(folder: Path) -> None:
    """Programs that write beside their script, as minGPT does, resume when the folder is "."."""
    script = """
import os, pathlib, sys
changed, new = pathlib.Path("results.json"), pathlib.Path("snapshot.txt")
before = changed.read_text() if new.exists() else "0"
print("resumed at", before)
for path in (changed, new):
    path.write_text(str(int(before) + 1))
sys.exit(0 if before == "1" else 4)
"""
    file = job_file(
        folder.parent,
        script,
        attempts=5,
        checkpoint={"folder": ".", "settle": "50ms"},
    )
    run = howdah("run", str(file))
    assert "resumed at 1" in run.text
    view = gone(newest())
    versions = Path(view.directory, "checkpoints")
    newest_version = max(path for path in versions.iterdir() if path.is_dir())
    manifest = json.loads((newest_version / "manifest.json").read_bytes())
    assert [each["path"] for each in manifest["files"]] == [
        "results.json",
        "snapshot.txt",
    ]


def test_what_is_in_no_checkpoint_of_the_working_folder_is_kept_as_ever(folder: Path) -> None:
    """A file that [checkpoint] ignores and one in the folder for outputs, also of a program that fails."""
    script = """
import os, pathlib
for path in ("snapshot.pt", "model.onnx", "logs/train.log", os.environ["HOWDAH_OUTPUT_DIR"] + "/scores.onnx"):
    path = pathlib.Path(path)
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
raise SystemExit(3)
"""
    file = job_file(
        folder.parent,
        script,
        checkpoint={"folder": ".", "settle": "50ms", "ignore": ["*.log"]},
        attempts=1,
    )
    run = howdah("run", str(file), code=1)
    view = gone(newest())
    (manifest,) = Path(view.directory, "checkpoints").glob("*/manifest.json")
    saved = {each["path"] for each in json.loads(manifest.read_bytes())["files"]}
    assert saved == {"snapshot.pt", "model.onnx"}
    kept = set(_files(Path(view.directory, "outputs/worker-0")))
    assert kept == {"logs/train.log", "outputs/scores.onnx"}
    assert "worker:0 made 2 files" in run.text, run.text


def test_earlier_jobs_are_not_copied_where_their_folder_is_named_through_a_link(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a home folder that is a link to a file server's. Job directories have private keys."""
    (folder.parent / "home").symlink_to(folder)
    monkeypatch.setenv("HOWDAH_HOME", str(folder.parent / "home/state"))
    script = "from pathlib import Path; print(*Path('state').rglob('*'))"
    file = job_file(folder.parent, script)
    for _ in range(2):
        assert "agent.key" not in howdah("run", str(file)).text
        gone(newest())


def test_in_place_runs_in_the_users_own_folder_and_several_tasks_there_are_warned_of(
    folder: Path,
) -> None:
    file = job_file(folder.parent, WRITES_EVERYWHERE, roles={"worker": {"instances": 2}})
    (folder / "lightning_logs").mkdir()
    file.with_name("train.py").write_text(
        WRITES_EVERYWHERE.replace("mkdir()", "mkdir(exist_ok=True)")
    )
    run = howdah("run", "--in-place", str(file))
    assert "2 tasks write to one folder" in run.told
    assert (folder / "results.json").read_text() in ("0", "1")
    assert (folder / "lightning_logs/model.pt").exists()
    assert "made" not in run.text


def test_in_place_keeps_no_checkpoints_and_says_so(folder: Path) -> None:
    file = job_file(folder.parent, "", checkpoint={})
    run = howdah("run", "--in-place", str(file), code=2)
    assert "in-place" in run.told
    assert "[checkpoint]" in run.told


def test_programs_have_the_submitters_umask(tmp_path: Path) -> None:
    """What they write to a folder that a team shares can be read there."""
    shared = tmp_path / "shared"
    program = f"import pathlib\npathlib.Path({str(shared)!r}).mkdir()\nopen({str(shared / 'data')!r}, 'w')\n"
    file = job_file(tmp_path, program)
    before = os.umask(0o027)
    try:
        howdah("run", str(file))
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (shared, shared / "data")]
    assert modes == [0o750, 0o640]
    assert newest().path.stat().st_mode & 0o777 == 0o700


def test_files_whose_names_are_no_text_are_saved_and_kept(tmp_path: Path) -> None:
    name = b"caf\xe9.bin"
    program = (
        f"for folder in (b'made/', b'results/', b''): open(folder + {name!r}, 'w').write('1')\n"
    )
    tables = {"checkpoint": {"folder": "made"}, "outputs": {"folders": ["results"], "keep": "all"}}
    howdah("run", str(job_file(tmp_path, program, **tables)))
    view = gone(newest())
    assert view.unsaved == ()
    for folder in ("checkpoints/000001", "outputs/worker-0/results", "outputs/worker-0"):
        assert os.path.exists(os.fsencode(newest().path / folder) + b"/" + name)
