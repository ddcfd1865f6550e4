"""Files that are no job files: missing, unreadable, too large."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from howdah.spec.load import load
from howdah.spec.problems import JobFileError


def told(file: Path) -> str:
    with pytest.raises(JobFileError) as error:
        load(file, env={"HOWDAH_SITE": ""})
    return str(error.value).replace(f"{file.parent}/", "")


def test_a_missing_file_is_told_with_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "job.toml").touch()
    assert told(tmp_path / "jbo.toml") == "jbo.toml: there is no such file; did you mean job.toml?"


def test_a_missing_file_is_told_with_the_job_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "digits.yaml").touch()
    assert told(tmp_path / "x.toml") == "x.toml: there is no such file; did you mean digits.yaml?"


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "job.toml"
    expected = f"job.toml: there is no such file; there is no folder {file.parent} either"
    assert told(file) == expected


def test_a_folder_is_told_with_the_job_file_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    assert told(folder) == "digits: this is a folder, not a job file; name the job file in it"
    (folder / "job.yaml").touch()
    expected = "digits: this is a folder, not a job file; did you mean digits/job.yaml?"
    assert told(folder) == expected


def test_a_script_is_told_how_to_run_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert told(tmp_path / "train.py") == (
        "train.py: this is a Python program, not a job file; to run it without one: "
        "howdah run --framework NAME --role worker=4 -- python train.py"
    )


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.toml")
    assert told(tmp_path / "job.toml") == (
        "job.toml: this is no regular file; write the job to a file and name that"
    )


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # a sparse file of a terabyte
    assert told(file) == "job.toml: larger than 1 MiB; is it really a job file?"


def test_a_file_of_just_the_limit_is_read(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    text = 'command = "x"\n[roles.worker]\n#'
    file.write_text(text + "x" * ((1 << 20) - len(text)))
    assert load(file, env={"HOWDAH_SITE": ""}).job.command == "x"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"name = 'a'\nx = '\xe9'\n", "job.toml:2: not UTF-8 text: byte 0xe9; save it as UTF-8"),
        (
            "name = 'a'".encode("utf-16"),
            "job.toml:1: not UTF-8 text: byte 0xff; it looks like UTF-16: save it as UTF-8",
        ),
        (b"\x7fELF\x80", "job.toml:1: not UTF-8 text: byte 0x80; save it as UTF-8"),
    ],
)
def test_what_is_no_text_is_told(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(content)
    assert told(tmp_path / "job.toml") == expected


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "job.toml").touch()

    def refuse(*arguments: object, **rest: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert told(tmp_path / "job.toml") == "job.toml: it cannot be read: Permission denied"


def test_a_name_no_file_can_have_is_told(tmp_path: Path) -> None:
    assert "it cannot be read" in told(tmp_path / "a\0b.toml")
    assert "it cannot be read" in told(tmp_path / ("x" * 5000))


def test_a_file_where_a_folder_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "job.toml").touch()
    expected = "x.toml: it cannot be inside something that is no folder"
    assert told(tmp_path / "job.toml" / "x.toml") == expected
