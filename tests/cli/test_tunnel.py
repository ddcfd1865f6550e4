"""Reaching pages of a job through its coordinator: `howdah tunnel` and `howdah notebook`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from howdah.storage.jobdir import base_folder
from howdah.wire.messages import OpenTunnel
from tests.cli.howdah import Run, howdah, job_file, newest, resolved, start, until
from tests.unit.client.coordinators import JOB_ID, Client, coordinator, job_directory

SERVES = """
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from howdah import task

class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        body = ("you asked for " + self.path).encode() * 20000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer((os.environ["HOWDAH_HOST"], int(os.environ["HOWDAH_PORT"])), Page)
task.announce_web("Pages", server.server_port)
print("serving", flush=True)
server.serve_forever()
"""


def address(tunnel: Run) -> str:
    line = tunnel.until_line("http://")
    return resolved(line[line.index("http") :])


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()


def end(*runs: Run) -> None:
    for run in runs:
        run.signal(signal.SIGINT)
        run.end()


def test_a_port_of_this_machine_leads_to_a_tasks_page_and_to_the_jobs_own(tmp_path: Path) -> None:
    roles = {"worker": {"ports": 1}, "other": {"command": ["sleep", "600"]}}
    run = start("run", str(job_file(tmp_path, SERVES, roles=roles)))
    run.until_line("serves Pages")
    job_id = newest().job_id
    tunnel = start("tunnel", job_id, "worker:0")
    base = address(tunnel)
    for path in ("abc", "def"):
        assert get(base + path) == f"you asked for /{path}".encode() * 20000

    own = start("tunnel", job_id)
    link = address(own)
    page = f"http://{urlsplit(link).netloc}/"
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    opener.open(link, timeout=60).close()  # lets this reader in, then the page goes on
    with opener.open(page, timeout=60) as answer:
        assert job_id in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="401|403"):
        get(page)

    told = howdah("tunnel", job_id, "other:0", code=3).told
    assert "other:0 has announced no page" in told
    assert "has no task" in howdah("tunnel", job_id, "ps:7", code=2).told
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        told = howdah("tunnel", job_id, "worker:0", "--port", port, code=2).told
    assert f"port {port} of this machine can't be used" in told
    assert "address already in use" in told
    end(own, tunnel, run)
    assert tunnel.process.returncode == 130


def test_a_coordinator_that_hangs_up_is_said_to_give_no_answer(tmp_path: Path) -> None:
    command = ("tunnel", JOB_ID, "worker:0", "--store", str(tmp_path))

    async def hang_up(client: Client) -> None:
        assert isinstance(await client.receive(), OpenTunnel)

    async def told() -> str:
        async with coordinator(job_directory(base_folder(str(tmp_path))), hang_up):
            return (await asyncio.to_thread(howdah, *command, code=3)).told

    text = asyncio.run(told())
    assert f"the coordinator of {JOB_ID} does not answer" in text
    assert "Traceback" not in text


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_notebook_in_which_nothing_runs_ends_by_itself(tmp_path: Path) -> None:
    """JupyterLab looks once a minute."""
    assert "is not a time" in howdah("notebook", "--idle-timeout", "soon", code=2).told
    run = start("notebook", "--source", str(tmp_path), "--idle-timeout", "1s")
    link = run.until_line("open http://")
    base, _, token = resolved(link[link.index("http") :]).partition("lab?token=")
    kernel = urllib.request.Request(f"{base}api/kernels?token={token}", b"{}", method="POST")
    with urllib.request.urlopen(kernel, timeout=30) as answer:
        assert answer.status == 201
    directory = newest()

    def over() -> bool:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            get(f"{base}api/kernels?token={token}")  # as a page does that is open
            run.process.wait(5)
        return directory.final() is not None

    until(over, "it ends", within_s=200)
    final = directory.final()
    assert final is not None and final.outcome == "succeeded"
    assert run.end() == 0, run.told


def test_a_notebook_without_jupyterlab_is_refused_with_what_to_install(tmp_path: Path) -> None:
    python = tmp_path / "python"  # one without any packages
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o700)
    told = howdah("notebook", "--python", str(python), "--source", str(tmp_path), code=2).told
    assert "JupyterLab is not installed for" in told
    assert "pip install jupyterlab" in told
    program = '"$HOWDAH_PYTHON" "$HOWDAH_HELPERS/notebook_main.py"'
    job = job_file(tmp_path, "", command=program, environment={"python": str(python)})
    run = howdah("run", str(job), code=1)  # as on a cluster, where only the node knows
    assert "JupyterLab is not installed for" in run.text
    assert "is started again" not in run.told


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_notebook_is_one_address_away(tmp_path: Path) -> None:
    (tmp_path / "lesson.txt").write_text("hello")
    run = start("notebook", "--source", str(tmp_path), "--cores", "4096")
    assert "cores: 4096 are asked for" in run.until_line("cores")
    link = run.until_line("open http://")
    printed = link
    link = resolved(link[link.index("http") :])
    base, _, token = link.partition("lab?token=")
    assert b"JupyterLab" in get(link)
    listed = json.loads(get(f"{base}api/contents?token={token}"))
    assert "lesson.txt" in [entry["name"] for entry in listed["content"]]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(f"{base}api/contents")
    body = json.dumps({"type": "file", "format": "text", "content": "edited"}).encode()
    edit = urllib.request.Request(
        f"{base}api/contents/lesson.txt?token={token}", body, method="PUT"
    )
    with urllib.request.urlopen(edit, timeout=30):
        assert (tmp_path / "lesson.txt").read_text() == "edited"
    again = start("tunnel", newest().job_id, "notebook:0")
    assert b"JupyterLab" in get(address(again))
    assert token not in (run.text + run.told).replace(printed, "")
    end(again, run)
    assert run.process.returncode == 130
    assert "Task was destroyed" not in run.told
    gone = newest().final()
    assert gone is not None and gone.outcome == "stopped"
