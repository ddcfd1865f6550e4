"""The small parts below the local backend, each by itself."""

from __future__ import annotations

import importlib.metadata
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.agent.host.processes import Stat
from howdah.backends import registry
from howdah.backends.base import BackendError, RoleResources, role_resources
from howdah.backends.local import processes, runtime_paths
from howdah.backends.local.backend import LocalBackend
from howdah.backends.local.messages import Acknowledge, Launched, Release
from howdah.backends.local.node import agents
from howdah.backends.local.processes import Seen, belonging
from howdah.backends.local.site import LocalSite
from howdah.backends.local.submit import LocalSubmission
from howdah.backends.local.unix_connection import UnixConnection
from howdah.frameworks import planning
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job, Placement, Role
from howdah.storage.jobdir import JobDirectory
from howdah.wire.frames import FrameError

# -- processes -----------------------------------------------------------------------------------


def seen(pid: int, parent: int, session: int, marker: str | None = None) -> Seen:
    stat = Stat(
        pid=pid,
        parent=parent,
        group=pid,
        session=session,
        zombie=False,
        start=1,
        cpu_s=0.0,
        rss_bytes=0,
    )
    return Seen(stat, marker)


def test_what_belongs_to_a_container_is_found_by_marker_session_and_descent() -> None:
    everything = [
        seen(1, 0, 1),
        seen(50, 1, 50),  # the daemon
        seen(100, 50, 100, "j/c2"),  # another container's program
        seen(101, 100, 100),
        seen(200, 1, 200, "j/c1"),  # a marked program, orphaned
        seen(201, 200, 200),  # its child without a marker, in its session
        seen(202, 201, 202),  # a grandchild that has left the session too
        seen(203, 1, 200),  # an orphan in the marked program's session
        seen(300, 1, 60),  # in the dead agent's session
    ]
    assert sorted(belonging(everything, "j/c1", [60])) == [200, 201, 202, 203, 300]


def test_a_marked_process_in_the_daemons_own_session_does_not_draw_the_daemon_in() -> None:
    session = os.getsid(0)
    everything = [seen(session, 1, session), seen(200, 1, session, "j/c1")]
    assert list(belonging(everything, "j/c1")) == [200]


def test_a_snapshot_shows_a_living_process_with_its_marker() -> None:
    env = {**os.environ, processes.MARKER: "some-job/c0001"}
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 10.0
        while True:  # between fork and exec it still has our environment
            found = {p.stat.pid: p for p in processes.snapshot()}
            if found[child.pid].marker == "some-job/c0001" or time.monotonic() > deadline:
                break
        assert found[child.pid].marker == "some-job/c0001"
        assert found[child.pid].stat.session == child.pid
        assert processes.alive(child.pid, found[child.pid].stat.start)
        assert not processes.alive(child.pid, found[child.pid].stat.start + 1)
    finally:
        child.communicate(b"\n")
    assert processes.start_of(child.pid) is None


# -- channel -------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[UnixConnection[Release], UnixConnection[Acknowledge]]]:
    left, right = socket.socketpair()
    channels = (
        UnixConnection[Release](left, Release),
        UnixConnection[Acknowledge](right, Acknowledge),
    )
    yield channels
    for channel in channels:
        channel.close()


def test_descriptors_arrive_with_their_messages_in_order(
    pair: tuple[UnixConnection[Release], UnixConnection[Acknowledge]], tmp_path: Path
) -> None:
    receiver, sender = pair
    for name in ("first", "second"):
        (tmp_path / name).write_text(name)
        with (tmp_path / name).open() as file:
            assert sender.send(Release(container_id=name), [file.fileno()])
    messages: list[Release] = []
    while len(messages) < 2:
        messages += receiver.receive()[0]
    for message in messages:
        (descriptor,) = receiver.take_descriptors(1)
        assert os.get_inheritable(descriptor) is False
        with open(descriptor) as file:
            assert file.read() == message.container_id
    assert receiver.take_descriptors(1) == []


def test_what_the_peer_does_not_take_yet_waits_and_nothing_is_lost(
    pair: tuple[UnixConnection[Release], UnixConnection[Acknowledge]],
) -> None:
    receiver, sender = pair
    count = 0
    while sender.send(Release(container_id=f"c{count}")):
        count += 1
    count += 1
    with open(os.devnull) as file:
        assert not sender.send(Release(container_id=f"c{count}"), [file.fileno()])
    messages: list[Release] = []
    while len(messages) <= count:
        messages += receiver.receive()[0]
        sender.flush()
    assert [m.container_id for m in messages] == [f"c{n}" for n in range(count + 1)]
    assert len(receiver.take_descriptors(5)) == 1


def test_a_closed_peer_is_told_from_a_silent_one(
    pair: tuple[UnixConnection[Release], UnixConnection[Acknowledge]],
) -> None:
    receiver, sender = pair
    assert receiver.receive() == ([], True)
    sender.close()
    assert receiver.receive() == ([], False)


def test_a_message_of_the_wrong_kind_is_refused(
    pair: tuple[UnixConnection[Release], UnixConnection[Acknowledge]],
) -> None:
    receiver, sender = pair
    sender.send(Launched(container_id="c1", pid=1))
    with pytest.raises(FrameError):
        receiver.receive()


# -- loop and forks ------------------------------------------------------------------------------


def test_the_loop_tells_of_children_timers_and_signals() -> None:
    """In a process of its own, since a loop takes the process's signals."""
    script = """
import os, signal, sys
from howdah.backends.local.node.forking import fork
from howdah.backends.local.node.event_loop import EventLoop

loop = EventLoop()
told = []
def tell(what):
    told.append(what)
    if len(told) == 3:
        loop.stop()
loop.on_signal(signal.SIGTERM, lambda: tell("signal"))
loop.later(0.0, lambda: tell("timer"))
loop.later(0.0, lambda: tell("never")).cancel()
loop.on_child(fork(lambda: 7), lambda status: tell(f"child {status >> 8}"))
orphan = fork(lambda: 0)
os.kill(os.getpid(), signal.SIGTERM)
loop.run()
print(sorted(told))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "['child 7', 'signal', 'timer']\n", done.stderr


def test_a_signal_for_a_new_child_is_never_taken_for_our_own() -> None:
    script = """
import os, signal
from howdah.backends.local.node.forking import fork
from howdah.backends.local.node.event_loop import EventLoop

loop = EventLoop()
told, children = [], 200
def ended(status):
    global children
    assert status == signal.SIGTERM, status
    children -= 1
    if children:
        begin()
    else:
        loop.stop()
def begin():
    pid = fork(signal.pause)
    loop.on_child(pid, ended)
    os.kill(pid, signal.SIGTERM)
loop.on_signal(signal.SIGTERM, lambda: told.append(1))
loop.later(0.0, begin)
loop.run()
print(told)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_forked_childs_end_is_its_functions() -> None:
    script = """
import os, sys
from howdah.backends.local.node.forking import fork

os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
for run in (lambda: 3, lambda: sys.exit(4), lambda: sys.exit("no"), lambda: 1 // 0):
    print(os.waitstatus_to_exitcode(os.waitpid(fork(run), 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["3", "4", "1", "1"]


# -- places --------------------------------------------------------------------------------------


def test_sockets_have_short_paths_that_differ_by_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(runtime_paths.FOLDER_VARIABLE)
    one, other = (
        runtime_paths.socket_path(tmp_path / ("a" * 100)),
        runtime_paths.socket_path(tmp_path / "b"),
    )
    assert one != other
    assert len(os.fsencode(one)) < 60
    assert runtime_paths.socket_path(tmp_path / "b") == other


def test_a_folder_for_sockets_that_is_too_deep_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setenv(runtime_paths.FOLDER_VARIABLE, str(deep))
    with pytest.raises(BackendError, match="too long for a Unix socket"):
        runtime_paths.socket_path(tmp_path)


def test_a_missing_place_for_sockets_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(runtime_paths.FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(BackendError, match=runtime_paths.FOLDER_VARIABLE):
        runtime_paths.runtime_folder()


def test_sockets_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "howdah"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as living, socket.socket(socket.AF_UNIX) as young:
        living.bind(str(folder / "node-living"))
        living.listen()
        young.bind(str(folder / "node-young"))
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(folder / "node-dead"))
        for name in ("living", "dead"):
            os.utime(folder / f"node-{name}", (0, 0))
        runtime_paths.tidy(folder)
        assert sorted(p.name for p in folder.iterdir()) == ["node-living", "node-young"]
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    runtime_paths.tidy(folder)
    assert not folder.exists()


# -- resources and registry ----------------------------------------------------------------------


def test_resources_of_every_role_are_numbers() -> None:
    job = Job(
        command="true",
        roles={
            "worker": Role(
                memory="1.5g",
                cores=2,
                gpus=1,
                resources={"fpga": 1},
                label="fast",
                placement=Placement(spread=True),
            ),
            "ps": Role(),
        },
    )
    resources = role_resources(planning.expand(job))
    assert resources["ps"] == RoleResources()
    assert resources["worker"] == RoleResources(
        memory_mb=1536,
        cores=2,
        gpus=1,
        resources={"fpga": 1},
        label="fast",
        placement=Placement(spread=True),
    )


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-27 12:00:00,123 ERROR howdah.agent.agent: no room: give it more",
        "2026-11-27 12:00:00.123 WARNING no room: give it more",
        "2026-11-27 12:00:00 no room: give it more",
        "no room: give it more",
    ],
)
def test_the_last_words_of_a_log_are_told_without_its_stamp(line: str, tmp_path: Path) -> None:
    (tmp_path / "agent.log").write_text(f"earlier\n{line}\n\n")
    assert agents.last_words(tmp_path) == "no room: give it more"


def test_an_unknown_backend_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"no backend 'lokal'.*Did you mean 'local'"):
        registry.create("lokal", JobDirectory(tmp_path))


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins of other packages: one that works, two that do not, one with our name."""
    points = [
        importlib.metadata.EntryPoint(name, value, registry.GROUP)
        for name, value in {
            "mine": f"{__name__}:make_mine",
            "absent": "no_such_module:Backend",
            "broken": f"{__name__}:make_broken",
            "local": f"{__name__}:make_mine",
        }.items()
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def make_mine(directory: JobDirectory) -> str:
    return f"mine for {directory.path.name}"


def make_broken(directory: JobDirectory) -> str:
    raise RuntimeError("its licence has expired")


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_brings_a_backend_and_never_hides_ours(tmp_path: Path) -> None:
    assert registry.create("mine", JobDirectory(tmp_path / "j")) == "mine for j"
    assert isinstance(registry.create("local", JobDirectory(tmp_path)), LocalBackend)
    assert registry.names() == ["local", "yarn", "spark", "absent", "broken", "mine"]


@pytest.mark.usefixtures("plugins")
def test_a_plug_in_without_a_clients_side_has_its_coordinator_on_this_machine(
    tmp_path: Path,
) -> None:
    submission = registry.submission("mine")
    try:
        assert isinstance(submission, LocalSubmission)
        roles = {"worker": Role(gpus=4000)}
        submission.check(Job(command="true", roles=roles), LoadedJob(job=Job()))
    finally:
        submission.close()
    assert isinstance(registry.site("mine", JobDirectory(tmp_path)), LocalSite)


class Mine:
    """A plug-in with all three parts."""

    def __init__(self, directory: JobDirectory) -> None: ...

    submission = staticmethod(lambda: "my submission")
    site = staticmethod(lambda directory: f"my site of {directory.path.name}")


def test_a_plug_in_may_bring_a_clients_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = importlib.metadata.EntryPoint("mine", f"{__name__}:Mine", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert registry.submission("mine") == "my submission"
    assert registry.site("mine", JobDirectory(tmp_path / "j")) == "my site of j"


@pytest.mark.usefixtures("plugins")
def test_a_broken_plug_in_is_reported_where_it_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no_such_module"):
        registry.create("absent", JobDirectory(tmp_path))
    with pytest.raises(BackendError, match="its licence has expired"):
        registry.create("broken", JobDirectory(tmp_path))
    broken = registry.broken()
    assert sorted(broken) == ["absent", "local"]
    assert "built in" in broken["local"]
