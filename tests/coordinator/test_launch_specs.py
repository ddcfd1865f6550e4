"""What agents are told: from a job file and a command of the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from howdah.backends.base import Places
from howdah.backends.interpreter import interpreter
from howdah.backends.job_paths import tensorboard_folder
from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.coordinator.agents.launch_specs import LaunchSpecs
from howdah.core.messages import LaunchAgent, Member, PrepareTask, StartTask, Task, Topology
from howdah.frameworks import planning
from howdah.spec.model import (
    Checkpoint,
    Environment,
    Job,
    Network,
    Outputs,
    Role,
    RoleTimeouts,
    TensorBoard,
)
from howdah.storage.checkpoints.versions import CheckpointSpec
from howdah.storage.jobdir import JobDirectory


def orders(job: Job, home: str = "/jobs/j") -> LaunchSpecs:
    job = planning.expand(job)
    places = Places(
        python=sys.executable,
        path="/usr/bin",
        python_path="/jobs/j/containers/python",
        source="/src",
        shared_dir="/jobs/j/shared",
        home=home,
        tensorboard_dir=tensorboard_folder(job, home),
    )
    return LaunchSpecs(
        job, planning.plan(job, "j"), JobDirectory("/jobs/j"), 20.0, places, ContainerSecrets(None)
    )


def prepare(job: Job, role: str = "worker", restore: str | None = None) -> dict[str, object] | None:
    command = PrepareTask(
        container_id="c1",
        task=Task(role, 0),
        attempt=2,
        generation=3,
        ports=1,
        restore=restore,
    )
    return orders(job).prepare(command).checkpoint


def worker(**details: object) -> Job:
    return Job(command="true", roles={"worker": Role(instances=2)}, **details)  # type: ignore[arg-type]


def test_a_launch_has_the_files_of_the_job_directory_and_no_secrets() -> None:
    job = worker(network=Network(address="10.0.0.7", interface="eth1", ports="31000-31010"))
    launch = orders(job).launch(LaunchAgent(container_id="c1", task=Task("worker", 0)))
    assert launch.coordinator_file == "/jobs/j/coordinator.json"
    assert launch.key == "/jobs/j/secrets/agent.key"
    assert launch.work_dir == "/jobs/j/containers/c1"
    assert launch.log_dir == "/jobs/j/logs"
    assert (launch.host, launch.interface, launch.ports) == ("10.0.0.7", "eth1", (31000, 31010))
    assert (launch.source, launch.lease_s) == ("/src", 20.0)


def test_members_restore_the_version_the_command_names() -> None:
    job = worker(checkpoint=Checkpoint(folder="ckpt", keep=5, settle="2s"))
    told = prepare(job, restore="000007")
    assert told is not None
    # The agent adds the absolute folder; the rest is a whole specification.
    spec = msgspec.convert({**told, "folder": "/w/task/ckpt"}, CheckpointSpec)
    assert (spec.version, spec.keep, spec.settle_s) == ("000007", 5, 2.0)
    assert spec.store == "/jobs/j/checkpoints"
    assert told["folder"] == "ckpt"


def test_tasks_with_folders_of_their_own_restore_their_own_newest() -> None:
    told = prepare(worker(checkpoint=Checkpoint(source="each")), restore="000007")
    assert told is not None
    assert told["version"] is None


def test_sidecars_and_the_preprocess_step_have_no_checkpoint() -> None:
    job = worker(checkpoint=Checkpoint(), tensorboard=TensorBoard())
    assert prepare(job, "tensorboard") is None
    assert prepare(job, "worker") is not None
    assert prepare(worker(), "worker") is None


def test_outputs_go_to_a_place_of_each_task() -> None:
    command = PrepareTask(
        container_id="c1", task=Task("worker", 1), attempt=1, generation=1, ports=0
    )
    own = orders(worker(outputs=Outputs(folders=("out",)))).prepare(command).outputs
    assert own == {"folders": ["out"], "keep": [], "store": "/jobs/j/outputs/worker-1"}
    url = orders(worker(outputs=Outputs(folders=("out",), store="s3://b/x/"))).prepare(command)
    assert url.outputs == {"folders": ["out"], "keep": [], "store": "s3://b/x/j/worker-1"}
    kept = orders(worker(outputs=Outputs(keep=("*.pt",)))).prepare(command).outputs
    assert kept == {"folders": [], "keep": ["*.pt"], "store": "/jobs/j/outputs/worker-1"}


def test_a_start_has_programs_peers_and_limits() -> None:
    job = Job(
        framework="pytorch",
        command="python train.py",
        roles={"worker": Role(instances=2, memory="2g", timeouts=RoleTimeouts(run="90s"))},
    )
    members = tuple(
        Member(task=Task("worker", n), attempt=1, host=f"h{n}", ports=(100 + n, 200 + n), rank=n)
        for n in range(2)
    )
    topology = Topology(generation=4, world_size=2, members=members)
    told = orders(job).start(
        StartTask(container_id="c1", task=Task("worker", 1), attempt=1, topology=topology)
    )
    assert told.peers == (("h0", 100), ("h0", 200))
    assert (told.generation, told.run_s, told.memory_mb, told.probe) == (4, 90.0, 2048, "network")
    assert told.processes[0].env["RANK"] == "1"


def test_interpreters_are_found_where_the_job_file_says() -> None:
    def python(name: str | None) -> str:
        return interpreter(Job(environment=Environment(python=name)), "/src", sys.executable)

    assert python(None) == sys.executable
    assert python("venv/bin/python") == "/src/venv/bin/python"
    assert python("/opt/py/bin/python") == "/opt/py/bin/python"
    assert Path(python("sh")).is_absolute()
    assert python("no-such-interpreter") == "no-such-interpreter"


def test_summaries_go_into_the_job_directory_unless_told_otherwise() -> None:
    def folder(name: str) -> str:
        return tensorboard_folder(Job(tensorboard=TensorBoard(folder=name)), "/jobs/j")

    assert folder("tensorboard") == "/jobs/j/tensorboard"
    assert folder("/elsewhere") == "/elsewhere"
    assert folder("s3://bucket/tb") == "s3://bucket/tb"
    assert tensorboard_folder(Job(), "/jobs/j") == "/jobs/j/tensorboard"
    assert tensorboard_folder(Job(), "hdfs://n/jobs/j") == "hdfs://n/jobs/j/tensorboard"


def test_checkpoints_and_outputs_are_in_the_job_directory_as_its_tasks_see_it() -> None:
    maker = orders(
        worker(checkpoint=Checkpoint(), outputs=Outputs(folders=("out",))), home="hdfs://n/jobs/j"
    )
    told = maker.prepare(
        PrepareTask(container_id="c1", task=Task("worker", 1), attempt=1, generation=1, ports=0)
    )
    assert told.checkpoint is not None
    assert told.outputs is not None
    assert told.checkpoint["store"] == "hdfs://n/jobs/j/checkpoints"
    assert told.outputs["store"] == "hdfs://n/jobs/j/outputs/worker-1"
