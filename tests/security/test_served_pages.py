"""Pages that tasks serve: who listens where one was announced, and whom the page itself answers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from howdah.core.messages import Task
from howdah.wire.messages import AgentNote, Heartbeat, WebAddress, WebWithdrawn
from tests.agent.rig import Rig, python, until
from tests.changing_folders import contents
from tests.cli.howdah import Run, ended_at_last, job_file, newest, resolved, start
from tests.cli.howdah import until as wait_for
from tests.security import strangers
from tests.unit.web.serving import serving
from tests.unit.web.upstream import program

SRC = str(Path(__file__).parents[2] / "src")


def serving_when_told(folder: Path, port: int, announce: str) -> Any:
    """A program that announces its page at once, and listens while a file ``go`` is there."""
    return python(
        "import os, socket, sys, time\nfrom howdah import task\n"
        f"{announce}\nprint('up')\n"
        "while True:\n"
        f"  while not os.path.exists({str(folder / 'go')!r}): time.sleep(0.01)\n"
        f"  with socket.create_server(('127.0.0.1', {port})):\n"
        f"    while os.path.exists({str(folder / 'go')!r}): time.sleep(0.01)\n",
        PYTHONPATH=SRC,
    )


def announced(rig: Rig) -> list[Any]:
    return [m for m in rig.heard if isinstance(m, (WebAddress, WebWithdrawn))]


async def test_a_page_that_somebody_else_serves_is_not_announced(tmp_path: Path) -> None:
    """Finding 1: Someone binds an announced port before the program does. No reader is sent there:
    a page is announced only once the task's own processes listen."""
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (port,) = (await rig.prepare()).ports
        stranger = socket.socket()
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        announce = f"task.announce_web('Notebook', {port}, path='/lab', locked=True)"
        await rig.start(serving_when_told(tmp_path, port, announce))
        await until(lambda: rig.agents[0].log())
        stranger.bind(("127.0.0.1", port))
        stranger.listen()
        note = await rig.hear(AgentNote)
        assert f"Notebook at 127.0.0.1:{port} is not published: a process of user" in note.text
        assert not announced(rig)
        stranger.close()
        (tmp_path / "go").touch()
        page = await rig.hear(WebAddress)
        assert (page.port, page.uid, len(page.secret)) == (port, os.getuid(), 43)


async def test_a_page_that_changes_hands_is_withdrawn(tmp_path: Path) -> None:
    """Finding 1: A stranger takes the port when the program lets it go. The page is withdrawn, and
    no reader is sent there."""
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (port,) = (await rig.prepare()).ports
        (tmp_path / "go").touch()
        announce = f"task.announce_web('Notebook', {port})"
        await rig.start(serving_when_told(tmp_path, port, announce))
        page = await rig.hear(WebAddress)
        (tmp_path / "go").unlink()

        def taken() -> socket.socket | None:
            try:
                return socket.create_server(("127.0.0.1", port))
            except OSError:
                return None

        with await until(taken):
            gone = await rig.hear(WebWithdrawn)
            assert (gone.task, gone.attempt, gone.name) == (page.task, 1, "Notebook")
            place = len(rig.heard)
            await rig.hear(Heartbeat, after=place)
            assert len(announced(rig)) == 2
        (tmp_path / "go").touch()
        assert await rig.hear(WebAddress, after=place) == page
        await rig.stop(grace_s=0)
        assert len([m for m in announced(rig) if isinstance(m, WebWithdrawn)]) == 2, "with its end"


async def test_each_attempt_has_a_page_token_of_its_own_in_a_private_file(tmp_path: Path) -> None:
    """Finding 1: The secret of a page is new for each attempt. It is in a file that only its owner
    can read, and in no environment."""
    told = (
        "import os\nfrom howdah import task\npath = os.environ['HOWDAH_PAGE_TOKEN_FILE']\n"
        "print(oct(os.stat(path).st_mode & 0o777), task.page_token())"
        "\nassert task.page_token() not in str(os.environ)"
    )
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        found: set[bytes] = set()
        for attempt in (1, 2):
            assert (await rig.run(python(told, PYTHONPATH=SRC), attempt=attempt)).code == 0
            mode, token = agent.log(attempt=attempt).split()
            assert (mode, len(token)) == (b"0o600", 43)
            found.add(token)
        assert len(found) == 2


def notebook(port: int) -> WebAddress:
    """A task's page there, as its agent announced it."""
    return WebAddress(
        task=Task("worker", 0),
        attempt=1,
        name="Notebook",
        host="127.0.0.1",
        port=port,
        secret="the-secret",
        uid=os.getuid(),
    )


# -- the proxy -----------------------------------------------------------------------------------

LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
link, _ = server.accept()
link.settimeout(5)
try:
    print("heard", link.recv(65536), flush=True)
except OSError as error:
    print("heard", b"", flush=True)
"""


@strangers.needs_root
def test_the_proxy_tells_nothing_to_another_users_listener() -> None:
    """Finding 1: A program of another user listens where a task announced its page. It gets no
    request and no secret, not even before the agent withdraws the page."""
    with serving() as served, strangers.program(LISTENS) as thief:
        port = int(strangers.line(thief))
        served.do(lambda job: job.link("worker:0", notebook(port)))
        answer = served.get("/proxy/worker:0/")
        assert answer.status == 502
        assert f"a process of user {strangers.NOBODY}" in answer.body.decode()
        assert strangers.line(thief) == "heard b''"


ANSWERS_AT_ONCE = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    link, _ = server.accept()
    link.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 7\\r\\n\\r\\nforged!")
    link.close()
"""


@strangers.needs_root
def test_the_proxy_shows_nothing_of_a_listener_that_has_hung_up_already() -> None:
    """Finding 15: A program of another user listens where a task announced its page. It sends an
    answer before it is asked and hangs up, so that nobody is found at the other end. Its answer,
    with scripts of its own, is not shown as the job's."""
    with serving() as served, strangers.program(ANSWERS_AT_ONCE) as thief:
        port = int(strangers.line(thief))
        served.do(lambda job: job.link("worker:0", notebook(port)))
        for _ in range(50):
            answer = served.get("/proxy/worker:0/")
            assert (answer.status, b"forged!" in answer.body) == (502, False)


def test_the_proxy_shows_a_locked_page_to_its_owner() -> None:
    """Finding 8: A page demands the attempt's secret. The job page opens it for a reader, who never
    sees the secret and cannot send another one."""
    with serving() as served, program() as port:
        served.do(lambda job: job.link("worker:0", notebook(port)))
        sent = served.get("/proxy/worker:0/").json()["headers"]
        assert sent["authorization"] == "Bearer the-secret"
        for path in ("/", "/api/v1/job", "/api/v1/records", "/api/v1/changes"):
            assert b"the-secret" not in served.get(path).body


# -- TensorBoard and tunnels ---------------------------------------------------------------------


def ask(link: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """An answer as it is: no redirect is followed."""
    parts = urlsplit(link)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
    query = f"?{parts.query}" if parts.query else ""
    connection.request("GET", parts.path + query, headers=headers or {})
    return connection.getresponse()


@pytest.fixture
def tensorboard(tmp_path: Path) -> Iterator[Run]:
    """A running job with TensorBoard beside it, which is served."""
    script = "import time\nprint('up', flush=True)\ntime.sleep(300)\n"
    with ended_at_last():
        run = start("run", str(job_file(tmp_path, script, tensorboard={})))
        run.until_line("serves TensorBoard")
        yield run
        run.signal(signal.SIGINT)
        run.end()


def tunnelled(*arguments: str) -> tuple[Run, str]:
    run = start("tunnel", *arguments)
    line = run.until_line("http://")
    return run, line[line.index("http") :]


def tensorboard_port() -> int:
    """The port it listens on, as the event log has it."""
    run = start("events", "--json")
    assert run.end() == 0
    found = [each for each in run.documents() if each["kind"] == "page-announced"]
    return int(found[-1]["data"]["port"])


CONNECTS = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
try:
    link.sendall(b"GET " + sys.argv[2].encode() + b" HTTP/1.0\\r\\n\\r\\n")
    print("got", link.recv(20), flush=True)
except OSError:
    print("got", b"", flush=True)
"""


def test_tensorboard_answers_nobody_without_the_attempts_secret(tensorboard: Run) -> None:
    """Finding 8: Someone calls TensorBoard's own port, or a tunnel to it, without the attempt's
    secret, and is refused. The address that `howdah tunnel` prints contains the secret; the
    browser then forgets it."""
    port = tensorboard_port()
    base = "/proxy/tensorboard:0/"
    data = f"{base}data/environment"
    assert ask(f"http://127.0.0.1:{port}{data}").status == 403
    run, link = tunnelled(newest().job_id, "tensorboard:0")
    parts = urlsplit(link)
    assert parts.hostname == f"{newest().job_id}.localhost"
    own = f"http://127.0.0.1:{parts.port}"
    assert ask(own + data).status == 403
    wrong = {"Authorization": "Bearer " + "x" * 43, "Cookie": "tensorboard-session=" + "0" * 64}
    assert ask(own + data, wrong).status == 403
    entered = ask(resolved(link))
    assert (entered.status, entered.headers["Location"]) == (302, base)
    cookie = entered.headers["Set-Cookie"].partition(";")[0]
    token = parts.query.removeprefix("token=")
    assert token not in cookie
    answer = ask(own + data, {"Cookie": cookie})
    assert answer.status == 200
    assert "version" in json.loads(answer.read())
    if os.getuid() == 0:
        with strangers.program(CONNECTS, str(parts.port), f"{data}?token={token}") as thief:
            assert strangers.line(thief) == "got b''", "the tunnel is its owner's"
    for path, content in contents(newest().path):
        assert path.name == "page-token" or token.encode() not in content, path
    run.signal(signal.SIGINT)
    run.end()


@pytest.mark.nightly
def test_a_notebooks_token_is_in_no_environment_and_no_document(tmp_path: Path) -> None:
    """Finding 1: Someone looks for a notebook's token in the job file, in environments, argument
    lists and logs, and does not find it. Without it, the notebook's own port and the tunnel
    refuse them."""
    with ended_at_last():
        run = start("notebook", "--source", str(tmp_path))
        link = wait_for(
            lambda: next((x for x in run.err if "open http://" in x), None), "the link", 90
        )
        link = link[link.index("http") :]
        base, _, token = link.partition("lab?token=")
        assert ask(resolved(f"{base}api/contents")).status == 403
        assert ask(resolved(f"{base}api/contents?token={token}")).status == 200
        for process in Path("/proc").glob("[0-9]*"):
            try:
                seen = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            except OSError:
                continue
            assert token.encode() not in seen, process
        for path, content in contents(newest().path):
            assert path.name == "page-token" or token.encode() not in content, path
        run.signal(signal.SIGINT)
        run.end()
