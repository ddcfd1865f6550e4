"""A job file from somebody else: looking at it runs nothing of theirs and calls nobody."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from howdah.cli.main import main
from howdah.packing.archives import ArchiveKind, PackingError, quiet
from howdah.packing.files import fetched
from howdah.spec.urls import url_problem
from howdah.storage.stores.checkpoint_stores import open_store
from howdah.storage.stores.destinations import open_destination
from howdah.storage.stores.write_probe import try_to_write

JOB = 'name = "theirs"\n[roles.worker]\ncommand = "true"\n'


@pytest.mark.parametrize(
    "url",
    [
        "reference::http://127.0.0.1:9/ref.json",
        "reference://x",
        "zip://a::http://127.0.0.1:9/a.zip",
        "simplecache::s3://bucket/a",
        "github://owner:repo@/a",
        "Reference://x",
        "dir://x",
        "sftp://host/a",
    ],
)
def test_no_url_is_opened_that_could_run_code_or_lead_through_others(
    url: str, tmp_path: Path
) -> None:
    """Finding 20: a store is ``reference::http://…``: fsspec fetches it and runs the template in it. Every door to
    fsspec refuses chained URLs and protocols that are not meant."""
    for opened in (open_store, open_destination, try_to_write):
        with pytest.raises(ValueError, match=r"are not followed|none of the protocols"):
            opened(url)
    with pytest.raises(PackingError, match=r"are not followed|none of the protocols"):
        fetched(url, ArchiveKind.FILES, tmp_path, quiet)


def test_stores_and_sources_that_are_meant_are_taken() -> None:
    for url in ("hdfs://nn/a", "viewfs://c/a", "s3://b/a", "gs://b/a", "abfs://c@a/b", "file:///a"):
        assert url_problem(url) == ""
    assert url_problem("https://host/a.zip", written=False) == ""
    assert url_problem("https://host/a") == "https:// can only be read"


def test_such_urls_are_problems_of_the_job_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        JOB
        + 'files = ["zip://a::http://127.0.0.1:9/a.zip -> a"]\n'
        + '[checkpoint]\nstore = "reference::http://127.0.0.1:9/ref.json"\n'
        + '[outputs]\nfolders = ["out"]\nstore = "http://127.0.0.1:9/out"\n'
    )
    assert main(["check", str(file), "--json"]) == 2
    told = [problem["key"] for problem in json.loads(capsys.readouterr().out)["problems"]]
    assert told == ["checkpoint.store", "outputs.store"]
    file.write_text(JOB + 'files = ["zip://a::http://127.0.0.1:9/a.zip -> a"]\n')
    assert main(["check", str(file), "--json"]) == 2
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert problem["key"] == "roles.worker.files" and "not followed" in problem["message"]


@pytest.mark.parametrize("command", [("check",), ("run", "--dry-run")])
def test_looking_at_a_job_file_calls_no_other_machine(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finding 20: ``howdah check`` called the hosts that a job file names. Without --probe it calls none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        file = tmp_path / "job.toml"
        store = f"hdfs://127.0.0.1:{server.getsockname()[1]}/saved"
        file.write_text(JOB + f'[checkpoint]\nstore = "{store}"\n')
        assert main([*command, str(file)]) == 0
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    told = capsys.readouterr()
    assert "was not tried; `howdah check --probe`" in told.out + told.err
