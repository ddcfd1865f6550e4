"""Jobs that have ended are removed, one by one or by their age; never one that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import leaks
from tests.cli.howdah import gone, job_file, lose, newest, start, until
from tests.cli.inside import howdah

WAITS = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.01)
"""


def listed() -> list[str]:
    return [view["job_id"] for view in json.loads(howdah("list", "--json").text)]


def test_a_job_that_has_ended_is_removed_and_one_that_runs_is_not(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    store = tmp_path / "store"
    script = "import os, pathlib\n"
    script += "shared = pathlib.Path(os.environ['HOWDAH_SHARED_DIR'])\n"
    script += f"(shared / 'link').symlink_to({str(outside)!r})\n"
    script += "(shared / 'big').write_bytes(bytes(2_000_000))\n"
    table = {"folder": "saved", "store": str(store)}
    howdah("run", str(job_file(tmp_path / "a", script, name="first", checkpoint=table)), code=0)
    first = newest()
    howdah("submit", str(job_file(tmp_path / "b", WAITS, name="second")))
    second = newest()
    until(lambda: "begun" in howdah("logs", second.job_id).text, "it runs")
    run = howdah("rm", "first", "second", "third", code=3)
    assert run.out[0].startswith(f"{first.job_id} removed, 2.")
    assert run.out[0].endswith(f" MB freed; its checkpoints in {store}/{first.job_id} stay")
    assert f"{second.job_id} has not ended: it is not removed" in run.told
    assert "There is no job 'third'" in run.told
    assert run.out[-1].startswith("1 job removed, 2 not removed, 2.")
    assert not first.path.exists() and (outside / "kept").exists()
    assert listed() == [second.job_id]
    (second.shared / "go").touch()
    gone(second)
    removed = json.loads(howdah("rm", second.job_id[:-2], "--json").text)
    assert [each["job_id"] for each in removed["removed"]] == [second.job_id]
    assert removed["failed"] == [] and listed() == []


def test_a_job_that_another_begins_from_stays_until_that_has_ended(tmp_path: Path) -> None:
    script = f"import os\nif 'AGAIN' in os.environ:\n    exec({WAITS!r})"
    howdah("run", str(job_file(tmp_path, script)))
    first = newest()
    howdah("rerun", first.job_id, "--detach", "--set", "env.AGAIN=1")
    again = newest()
    for command in (("rm", first.job_id), ("prune", "--older-than", "0s", "--yes")):
        refused = howdah(*command, code=3).told
        assert f"{again.job_id} runs this job again and may read its checkpoints" in refused
    # For its size it is passed over, and nothing else may go.
    assert howdah("prune", "--keep-size", "0k", "--yes").out == ["0 jobs removed, 0 bytes freed"]
    assert listed() == [again.job_id, first.job_id]
    (again.shared / "go").touch()
    gone(again)
    assert howdah("rm", first.job_id).text.startswith(f"{first.job_id} removed")


def test_old_jobs_are_listed_first_and_removed_when_that_is_asked_for(tmp_path: Path) -> None:
    for number, (name, code) in enumerate((("a", 0), ("a", 1), ("b", 0), ("a", 0))):
        file = job_file(tmp_path / str(number), f"raise SystemExit({code})", name=name)
        howdah("run", str(file), code=code)
    fourth, third, second, first = listed()
    assert howdah("prune").text.startswith("There is nothing to remove in")  # none is 30 days old

    def would_go(*options: str) -> list[str]:
        document = json.loads(howdah("prune", "--json", *options).text)
        return [each["job_id"] for each in document["would_remove"]]

    assert would_go("--older-than", "1h") == []
    assert would_go("--older-than", "0s") == [fourth, third, second, first]
    assert would_go("--keep", "1") == [second, first]
    assert would_go("--older-than", "0s", "--state", "failed") == [second]
    assert would_go("--older-than", "0s", "--name", "b") == [third]
    # Files with two names are freed with the second, which may be another job's.
    base = newest().path.parent
    (base / first / "one").write_bytes(bytes(300_000))
    os.link(base / first / "one", base / first / "two")
    (base / second / "one").write_bytes(bytes(500_000))
    os.link(base / second / "one", base / first / "three")
    would = json.loads(howdah("prune", "--keep", "1", "--json").text)["would_remove"]
    assert [each["bytes"] > 250_000 for each in would] == [False, True]
    told = howdah("prune", "--keep", "2")
    size = told.out[-1].removeprefix("1 job would be removed, ").partition(" freed")[0]
    assert first in told.text and "1 job would be removed" in told.out[-1]
    assert listed() == [fourth, third, second, first]
    done = howdah("prune", "--keep", "2", "--yes")
    assert done.out[0].startswith(f"{first} removed, ")
    assert done.out[-1] == f"1 job removed, {size} freed"
    assert listed() == [fourth, third, second]
    assert "'long' is not a time" in howdah("prune", "--older-than", "long", code=2).told


def test_the_oldest_are_removed_until_the_others_have_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from howdah.cli.main import main

    for number in range(3):
        script = "import os, pathlib\n"
        script += f"(pathlib.Path(os.environ['HOWDAH_SHARED_DIR']) / 'big').write_bytes(bytes({number + 1}_000_000))"
        howdah("run", str(job_file(tmp_path / str(number), script, name=f"job-{number}")))
    howdah("submit", str(job_file(tmp_path / "waits", WAITS, name="waits")))
    waits = newest()
    until(lambda: "begun" in howdah("logs", waits.job_id).text, "it runs")
    (waits.shared / "big").write_bytes(bytes(4_000_000))
    _, third, second, first = listed()
    capsys.readouterr()

    def would_go(*options: str) -> list[str]:
        assert main(["prune", "--json", *options]) == 0
        document = json.loads(capsys.readouterr().out)
        return [each["job_id"] for each in document["would_remove"]]

    # The running job's 4 MB count, and it stays.
    assert would_go("--keep-size", "12m") == []
    assert would_go("--keep-size", "9.5m") == [first]
    assert would_go("--keep-size", "8.5m") == [second, first]
    assert would_go("--keep-size", "1k") == [third, second, first]
    assert would_go("--keep-size", "1k", "--older-than", "1h") == []
    assert would_go("--keep-size", "1k", "--name", "job-[12]") == [third, second]
    assert would_go("--keep-size", "4m", "--name", "job-[12]") == [second]
    done = howdah("prune", "--keep-size", "8.5MB", "--yes")
    assert [line.partition(" ")[0] for line in done.out] == [second, first, "2"]
    assert listed() == [waits.job_id, third]
    (waits.shared / "go").touch()
    gone(waits)


def test_what_cannot_be_removed_is_said_and_the_job_stays_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a file system that has become read-only below one folder."""
    from howdah.cli.main import main

    howdah("run", str(job_file(tmp_path, "pass")))
    job = newest()
    (job.shared / "stuck").write_bytes(bytes(5000))
    unlink = os.unlink

    def fails(path: str, *, dir_fd: int | None = None) -> None:
        if path == "stuck":
            raise OSError(30, "Read-only file system", path)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", fails)
    assert main(["rm", job.job_id]) == 3
    told = capsys.readouterr().err
    assert f"stuck of {job.path} is left: Read-only file system" in told
    assert listed() == [job.job_id]
    monkeypatch.undo()


def test_what_a_killed_job_left_in_the_folder_for_sockets_goes_with_it(tmp_path: Path) -> None:
    folder = Path(os.environ["HOWDAH_RUNTIME_DIR"])
    before = set(leaks.sockets(folder))
    job = start(
        "run", str(job_file(tmp_path, "import time\nprint('begun', flush=True)\ntime.sleep(600)"))
    )
    job.until_line("begun")
    directory = newest()
    lose(directory)
    job.end()
    assert set(leaks.sockets(folder)) - before
    until(
        lambda: start("rm", directory.job_id).end() == 0,
        "its removal, once its programs have ended",
    )
    assert set(leaks.sockets(folder)) <= before
