"""What NodeManagers are told about a container, and what its first process makes of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.agent.launch import HERE, AgentLaunch
from howdah.backends.base import BackendError, RoleResources
from howdah.backends.gpus import Device, DeviceLocks
from howdah.backends.yarn import boot, container_launch, devices, launch_context, secretfile
from howdah.backends.yarn.container_launch import ContainerLaunch
from howdah.backends.yarn.local_resources import (
    LocalResource,
    LocalResources,
    ResourceKind,
    Visibility,
)
from howdah.backends.yarn.master import nodes
from howdah.backends.yarn.master.nodes import LaunchFailed, Nodes
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, NodeId
from howdah.hadoop.nodemanager import NodeManager
from howdah.hadoop.protos import yarn
from howdah.hadoop.security.credentials import AMRM_TOKEN, HDFS_TOKEN, Credentials, Token
from howdah.packing.python import runtime
from howdah.spec.model import Acl, Docker, Hadoop

LAUNCH = AgentLaunch(
    job_id="j-1",
    container_id="container_1_0001_01_000002",
    coordinator_file=None,
    coordinators=(("10.0.0.1", 4000),),
    ca="",
    certificate="",
    key="",
    work_dir="",
    log_dir="",
)
CONTAINER_LAUNCH = ContainerLaunch(launch=LAUNCH, python="python3")


def shipped(name: str, url: str = "hdfs://Name:8020/x.tar.gz") -> LocalResource:
    return LocalResource(name=name, url=url, size=7, mtime_ms=9)


LOCAL_RESOURCES = LocalResources(
    application_id="application_1_0001",
    user="ann",
    runtime=(shipped("runtime"), shipped("howdah"), shipped("conf")),
    source=shipped("source"),
    environment=shipped("environment"),
    python=f"{HERE}/environment/bin/python",
    files={"": (shipped("data"),), "ps": (shipped("only-ps"),)},
    env={"QUOTED": 'a "b" $c'},
    classpath=True,
)


def environment(proto: yarn.ContainerLaunchContextProto) -> dict[str, str]:
    return {item.key: item.value for item in proto.environment}


def agent(
    resources: RoleResources = RoleResources(),  # noqa: B008
    role: str = "worker",
    **container_env: str,
):
    return launch_context.agent(
        LOCAL_RESOURCES,
        role,
        resources,
        CONTAINER_LAUNCH,
        b"tokens",
        Acl(),
        Hadoop(container_env=container_env),
    )


def test_an_agents_command_begins_an_isolated_interpreter_and_logs_to_files_of_yarns() -> None:
    (command,) = agent().command
    assert command == (
        f"exec ./runtime/bin/python3 -I ./howdah/{runtime.CODE}/howdah/backends/yarn/boot.py"
        " 1><LOG_DIR>/agent.log 2><LOG_DIR>/stderr"
    )


def test_containers_get_what_is_shipped_to_their_role() -> None:
    assert [item.key for item in agent().localResources] == [
        "runtime", "howdah", "conf", "source", "environment", "data",
    ]  # fmt: skip
    assert "only-ps" in [item.key for item in agent(role="ps").localResources]


def test_what_launch_scripts_cannot_carry_travels_in_base64() -> None:
    env = environment(agent())
    told = container_launch.decode(env[container_launch.VARIABLE])
    assert told.env == {"QUOTED": 'a "b" $c'}
    assert (told.python, told.classpath) == (LOCAL_RESOURCES.python, True)
    assert told.launch == LAUNCH
    assert env["HADOOP_USER_NAME"] == "ann"


@pytest.mark.parametrize("bad", ['"', "$", "\\", "`", "\n"])
def test_a_value_yarns_shell_script_would_break_is_refused(bad: str) -> None:
    shipment = msgspec.structs.replace(LOCAL_RESOURCES, env={"NAME": f"a{bad}b"})
    with pytest.raises(BackendError, match="NAME"):
        launch_context.master(shipment, "hdfs://n/jobs/j", Credentials(), Acl())


@given(st.text(), st.dictionaries(st.text(min_size=1), st.text()))
def test_an_order_of_any_characters_is_safe_in_a_shell_script(
    text: str, env: dict[str, str]
) -> None:
    launch = msgspec.structs.replace(LAUNCH, source=text)
    told = ContainerLaunch(launch=launch, python="python3", env=env)
    encoded = container_launch.encode(told)
    assert not set('"$\\`\n ') & set(encoded)
    assert container_launch.decode(encoded) == told


def test_agents_get_tokens_and_their_own_secrets_but_never_the_masters_token(
    tmp_path: Path,
) -> None:
    credentials = Credentials(
        {"am": Token(b"i", b"p", AMRM_TOKEN), "fs": Token(b"i", b"p", HDFS_TOKEN)},
        {"howdah.coordinator.key": b"k"},
    )
    for name in (*secretfile.AGENT, "coordinator.key", "token"):
        (tmp_path / name).write_text(name)
    secrets = secretfile.of_folder(tmp_path, secretfile.AGENT)
    made = Credentials.read(launch_context.for_agents(credentials, secrets))
    assert set(made.tokens) == {"fs"}
    assert set(made.secrets) == {f"howdah.{name}" for name in secretfile.AGENT}


@given(st.dictionaries(st.text(min_size=1, max_size=40), st.binary(max_size=70_000), max_size=4))
def test_secret_keys_are_read_as_hadoop_writes_them(secrets: dict[str, bytes]) -> None:
    data = Credentials({"fs": Token(b"i" * 300, b"p", HDFS_TOKEN)}, secrets).to_bytes()
    path = Path(os.environ["HOWDAH_RUNTIME_DIR"]) / f"tokens-{os.getpid()}"
    path.write_bytes(data)
    try:
        assert secretfile.read(path) == secrets
        for cut in (4, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:cut])
            with pytest.raises(ValueError, match="credential file"):
                secretfile.read(path)
    finally:
        path.unlink()


@pytest.mark.parametrize("url", ["hdfs://n/my jobs/j", "hdfs://n/a;b&c|d/j", "hdfs://n/(j)#1?*"])
def test_a_store_of_any_name_is_one_word_of_the_masters_command(url: str, tmp_path: Path) -> None:
    shipment = msgspec.structs.replace(LOCAL_RESOURCES, env={})
    (command,) = launch_context.master(shipment, url, Credentials(), Acl()).command
    command = command.replace("<LOG_DIR>", str(tmp_path)).replace(
        "exec ./runtime/bin/python3", "printf '%s\\n'"
    )
    script = f'/bin/bash -c "{command.removeprefix("exec ")}"'  # as a NodeManager writes it
    subprocess.run(["/bin/bash", "-c", script], check=True, cwd=tmp_path)
    assert (tmp_path / "master.log").read_text().splitlines()[-1] == url
    assert launch_context.url(url).file == url.removeprefix("hdfs://n")


def test_urls_keep_the_case_of_a_name_service() -> None:
    told = launch_context.url("hdfs://MyCluster/a/b")
    assert (told.scheme, told.host, told.port, told.file) == ("hdfs", "MyCluster", -1, "/a/b")
    assert launch_context.url("hdfs://nn.example:8020/a").port == 8020
    local = launch_context.local_resource(
        LocalResource(
            name="x", url="hdfs://n/x", size=3, mtime_ms=5, kind=ResourceKind.FILE,
            visibility=Visibility.PUBLIC,
        )
    )  # fmt: skip
    assert (local.size, local.timestamp, local.type, local.visibility) == (3, 5, 2, 1)


def test_docker_is_asked_for_by_image_and_mounts() -> None:
    resources = RoleResources(image="ours:1", mounts=("/data:/data:ro", "/tmp:/scratch:rw"))
    asked = {
        "YARN_CONTAINER_RUNTIME_TYPE": "docker",
        "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE": "ours:1",
        "YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS": "/data:/data:ro,/tmp:/scratch:rw",
    }
    assert launch_context.docker(resources, Docker()) == asked
    table = Docker(network="bridge", ports=("8080:80", ":81"), delayed_removal=True)
    assert launch_context.docker(resources, table) == asked | {
        "YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK": "bridge",
        "YARN_CONTAINER_RUNTIME_DOCKER_PORTS_MAPPING": "8080:80,:81",
        "YARN_CONTAINER_RUNTIME_DOCKER_DELAYED_REMOVAL": "true",
    }
    assert launch_context.docker(RoleResources(), table) == {}


def test_variables_for_the_node_are_in_the_launch_context_as_they_are() -> None:
    docker = RoleResources(image="image")
    env = environment(agent(docker, P="$HADOOP_HOME/lib", YARN_CONTAINER_RUNTIME_TYPE="runc"))
    assert env["P"] == "$HADOOP_HOME/lib"
    assert env["YARN_CONTAINER_RUNTIME_TYPE"] == "docker"


def test_access_lists_are_users_and_groups() -> None:
    assert launch_context.access(Acl(view=("a", "b"), modify=("*",))) == {1: "a,b ", 2: "*"}
    lists = Acl(view=("a",), view_groups=("g", "h"), modify_groups=("ops",))
    assert launch_context.access(lists) == {1: "a g,h", 2: " ops"}
    assert launch_context.access(Acl()) == {}


# -- in the container ------------------------------------------------------------------------------


def container(folder: Path, told: ContainerLaunch = CONTAINER_LAUNCH) -> dict[str, str]:
    """A container's folder and environment as YARN makes them."""
    secrets = {f"howdah.{name}": name.encode() for name in secretfile.AGENT}
    secrets[secretfile.CONTAINER] = b"its own"
    Credentials({}, secrets).write(folder / "container_tokens")
    (folder / "logs").mkdir()
    (folder / "source").mkdir()
    return {
        container_launch.VARIABLE: container_launch.encode(told),
        secretfile.LOCATION: str(folder / "container_tokens"),
        "LOG_DIRS": f"{folder}/logs,/other",
        "PATH": os.environ["PATH"],
    }


def test_a_container_is_laid_out_for_its_agent(tmp_path: Path) -> None:
    entry, file, changes = boot.prepare(tmp_path, container(tmp_path))
    launch = msgspec.json.decode(file.read_bytes(), type=AgentLaunch)
    assert entry.__module__ == "howdah.agent.main"
    assert Path(launch.key).read_bytes() == b"agent.key"
    assert Path(launch.key).stat().st_mode & 0o777 == 0o600
    assert (launch.secret, file.stat().st_mode & 0o777) == ("its own", 0o600)
    assert {path.name for path in (tmp_path / "secrets").iterdir()} == set(secretfile.AGENT)
    assert (launch.work_dir, launch.log_dir) == (str(tmp_path), f"{tmp_path}/logs")
    assert launch.source == f"{tmp_path}/source"
    assert [p.name for p in Path(launch.python_path).rglob("*") if p.is_file()] == ["task.py"]
    assert changes["HADOOP_CONF_DIR"] == f"{tmp_path}/conf"
    assert changes["HOWDAH_CONTAINER"] == "j-1/container_1_0001_01_000002"


def test_the_nodes_own_configuration_is_left(tmp_path: Path) -> None:
    own = tmp_path / "etc"
    own.mkdir()
    (own / "core-site.xml").write_text("<configuration/>")
    env = container(tmp_path) | {"HADOOP_CONF_DIR": str(own)}
    assert "HADOOP_CONF_DIR" not in boot.prepare(tmp_path, env)[2]


@pytest.mark.parametrize("own", ["/nowhere", "n" * 300])
def test_a_configuration_of_the_node_that_cannot_be_looked_at_is_left_alone(
    tmp_path: Path, own: str
) -> None:
    env = container(tmp_path) | {"HADOOP_CONF_DIR": own}
    assert boot.prepare(tmp_path, env)[2]["HADOOP_CONF_DIR"] == f"{tmp_path}/conf"


def test_an_interpreter_of_another_name_is_python_for_commands(tmp_path: Path) -> None:
    interpreter = tmp_path / "environment" / "bin" / "python3.12"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text("#!/bin/sh\necho mine\n")
    interpreter.chmod(0o700)
    told = msgspec.structs.replace(CONTAINER_LAUNCH, python=f"{HERE}/environment/bin/python3.12")
    boot.prepare(tmp_path, container(tmp_path, told))
    assert os.popen(str(tmp_path / "bin" / "python")).read() == "mine\n"


def localized(folder: Path, *names: str) -> ContainerLaunch:
    """An environment with interpreters at these places, as a NodeManager unpacks and links it."""
    for name in names:
        interpreter = folder / "filecache" / name
        interpreter.parent.mkdir(parents=True)
        interpreter.write_text(f"#!/bin/sh\necho {name}\n")
        interpreter.chmod(0o700)
    (folder / "filecache").mkdir(exist_ok=True)
    (folder / "environment").symlink_to(folder / "filecache")
    return msgspec.structs.replace(CONTAINER_LAUNCH, python=f"{HERE}/environment/bin/python")


@pytest.mark.parametrize("place", ["bin/python", "train/bin/python", "train/bin/python3"])
def test_an_archive_of_the_cluster_may_have_its_interpreter_a_folder_below(
    tmp_path: Path, place: str
) -> None:
    """Nobody has looked into it before."""
    boot.prepare(tmp_path, container(tmp_path, localized(tmp_path, place, "more/lib/python")))
    path = f"{tmp_path}/bin:{tmp_path}/environment/bin"
    for name in ("python", "python3"):
        found = shutil.which(name, path=path)
        assert found is not None
        assert subprocess.check_output([found], text=True).strip() == place


@pytest.mark.parametrize("places", [(), ("one/bin/python", "two/bin/python")])
def test_an_archive_without_one_interpreter_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], places: tuple[str, ...]
) -> None:
    """The node's own would run the programs otherwise."""
    env = container(tmp_path, localized(tmp_path, *places))
    assert boot.main(tmp_path, env) == boot.BOOT_FAILED
    told = capsys.readouterr().err
    assert "[environment] archive" in told and "bin/python" in told
    assert all(name in told for name in ("one", "two") if places)


def test_without_what_a_master_gives_it_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = container(tmp_path)
    for name in (container_launch.VARIABLE, secretfile.LOCATION, "LOG_DIRS"):
        less = {key: value for key, value in env.items() if key != name}
        assert boot.main(tmp_path, less) == boot.BOOT_FAILED
        assert name in capsys.readouterr().err


def test_devices_are_locked_and_never_fewer_than_granted(tmp_path: Path) -> None:
    some = [Device(uuid=f"GPU-{n}", index=str(n)) for n in range(3)]
    locks = DeviceLocks(tmp_path / "locks")
    first, held = devices.take(2, {}, lambda: some, locks)
    assert len(first) == len(held) == 2
    second, more = devices.take(1, {}, lambda: some, locks)
    assert not set(first) & set(second)
    with pytest.raises(ValueError, match="other jobs"):
        devices.take(1, {}, lambda: some, locks, wait_s=0.0)
    with pytest.raises(ValueError, match="only 3"):
        devices.take(4, {}, lambda: some, locks)
    assert devices.take(1, {}, list, locks) == ((), ())
    lost = Device(uuid="", index="3", problem="GPU is lost")
    with pytest.raises(ValueError, match=r"only 3: .* \(GPU 3 can't be used: GPU is lost\)"):
        devices.take(4, {}, lambda: [*some, lost], locks)
    assert devices.take(1, {}, lambda: [lost], locks) == ((), ())
    for descriptor in (*held, *more):
        os.close(descriptor)


class Broken(NodeManager):
    async def start_containers(self, requests: Any, *, timeout_s: float | None = None) -> Any:
        raise ValueError("a record that cannot be read")


def test_a_launch_that_fails_in_a_way_nobody_thought_of_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have come to the node all the same."""
    monkeypatch.setattr(nodes, "NodeManager", Broken)
    attempt = AttemptId(ApplicationId(1, 1), 1)

    async def launch() -> list[Any]:
        launching = Nodes(Configuration({}), "ann")
        token = yarn.NMTokenProto()
        token.nodeId.host, token.nodeId.port = "node", 1
        launching.use_token(token)
        where = NodeId("node", 1)
        starts = (
            launching.start(where, ContainerId(attempt, n), yarn.StartContainerRequestProto())
            for n in range(2)
        )
        async with asyncio.timeout(20):
            found = await asyncio.gather(*starts, return_exceptions=True)
        await launching.close()
        return found

    for problem in asyncio.run(launch()):
        assert isinstance(problem, LaunchFailed) and problem.uncertain
        assert str(problem) == "the node node:1: ValueError: a record that cannot be read"
    assert "ValueError" in caplog.text, "with where it came from"
