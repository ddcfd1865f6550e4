"""Launch specs: commands of the machine to agents, filled in from the job file.

Pure but for the paths of the job directory, which are only put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import Places
from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.coordinator.agents.heartbeats import BEAT_S
from howdah.core.messages import LaunchAgent, Member, PrepareTask, StartTask, Task, Topology
from howdah.core.plan import Join, Plan
from howdah.frameworks import programs
from howdah.frameworks.sidecars import ANSWER, PREPROCESS, is_preprocess, is_tensorboard
from howdah.spec.model import Job, Outputs, Tracking
from howdah.spec.units import mebibytes, port_range, seconds
from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory
from howdah.storage.outputs import job_place
from howdah.wire.messages import Mirror, Prepare, Start


class LaunchSpecs:
    """Makes messages and launch files for one job.

    Args:
        places: where its containers find things.
        variables: what ``[secrets]`` stands for.
    """

    def __init__(
        self,
        job: Job,
        plan: Plan,
        directory: JobDirectory,
        lease_s: float,
        places: Places,
        secrets: ContainerSecrets,
        variables: Mapping[str, str] | None = None,
        *,
        umask: int | None = None,
    ) -> None:
        """``umask``: the programs'."""
        self._job = job
        self._plan = plan
        self._directory = directory
        self._lease_s = lease_s
        self._secrets = secrets
        self._variables = variables or {}
        self._inside = places
        self._umask = umask
        self._places = programs.ProgramPaths(
            python=places.python,
            bin=places.bin,
            path=places.path,
            shared_dir=places.shared_dir,
            tensorboard_dir=places.tensorboard_dir,
            helpers=places.helpers or programs.HELPERS,
            application=places.application,
            container_env=places.container_env,
        )
        self._peers = _Peers()
        self.master: tuple[str, int] | None = None
        """Where agents reach this coordinator, once it is known."""

    def launch(self, command: LaunchAgent) -> AgentLaunch:
        """The launch file of a container's agent; the backend adds what it alone knows."""
        job, directory, files = self._job, self._directory, self._inside.files
        return AgentLaunch(
            job_id=self._plan.job_id,
            container_id=command.container_id,
            coordinator_file=str(directory.path / layout.COORDINATOR),
            ca=str(directory.secrets / "ca.pem"),
            certificate=str(directory.secrets / "agent.pem"),
            key=str(directory.secrets / "agent.key"),
            secret=self._secrets.of(command.container_id),
            work_dir=str(directory.container_path(command.container_id)),
            log_dir=str(directory.logs),
            source=self._inside.source,
            origin=self._inside.origin,
            in_place=job.in_place,
            umask=self._umask,
            files={**files.get("", {}), **files.get(command.task.role, {})},
            shared_dir=self._inside.shared_dir,
            python_path=self._inside.python_path,
            host=job.network.address,
            interface=job.network.interface,
            ports=port_range(job.network.ports),
            beat_s=BEAT_S,
            lease_s=self._lease_s,
            log_max_bytes=mebibytes(job.logs.max_size) * 1024 * 1024,
            log_segments=job.logs.segments,
        )

    def prepare(self, command: PrepareTask) -> Prepare:
        """Restore the checkpoint, reserve ports."""
        return Prepare(
            task=command.task,
            attempt=command.attempt,
            generation=command.generation,
            ports=command.ports,
            keep_ports=command.keep_ports,
            checkpoint=checkpoint(
                self._job, self._plan, self._directory, self._inside.home, command
            ),
            outputs=outputs(
                self._job, self._plan, self._directory.job_id, self._inside, command.task
            ),
            save_s=self._plan.role(command.task.role).save_s,
        )

    def start(self, command: StartTask) -> Start:
        """Run the task's programs.

        Raises:
            Exception: whatever a framework raises that cannot make an environment of the topology.
        """
        task, topology = command.task, command.topology
        role = self._plan.role(task.role)
        memory = self._job.roles[task.role].memory
        return Start(
            task=task,
            attempt=command.attempt,
            generation=topology.generation,
            processes=tuple(
                msgspec.structs.replace(spec, env={**self._variables, **spec.env})
                for spec in programs.programs(
                    self._job,
                    self._plan,
                    topology,
                    task,
                    command.attempt,
                    self._places,
                    answer=command.answer,
                    master=self.master,
                )
            ),
            probe=role.join.value,
            peers=self._peers.of(topology, task) if role.join is Join.NETWORK else (),
            run_s=role.run_s,
            memory_mb=mebibytes(memory) if memory is not None else None,
            web=programs.web(self._job, topology, task),
            mirror=mirror(self._job, self._inside, task),
            answer_mark=ANSWER if is_preprocess(self._job, task.role) else "",
        )


class _Peers:
    """Reserved addresses of everybody else, for each member of a topology.

    All of them are listed for the first one who asks: with thousands of members, doing it for each
    would be most of what a start costs.
    """

    def __init__(self) -> None:
        self._members: tuple[Member, ...] | None = None
        self._addresses: tuple[tuple[str, int], ...] = ()
        self._own: dict[Task, tuple[int, int]] = {}
        """Where a task's own addresses begin and end."""

    def of(self, topology: Topology, task: Task) -> tuple[tuple[str, int], ...]:
        """The addresses of all but that task."""
        if topology.members is not self._members:
            self._list(topology)
        begin, end = self._own[task]
        return self._addresses[:begin] + self._addresses[end:]

    def _list(self, topology: Topology) -> None:
        found: list[tuple[str, int]] = []
        self._own = {}
        for member in topology.members:
            begin = len(found)
            found += [(member.host, port) for port in member.ports]
            self._own[member.task] = begin, len(found)
        self._members, self._addresses = topology.members, tuple(found)


def checkpoint(
    job: Job, plan: Plan, directory: JobDirectory, home: str, command: PrepareTask
) -> dict[str, Any] | None:
    """What of `howdah.storage.checkpoints.versions.CheckpointSpec` the agent does not know itself.

    Where the chief's folder is the job's, all members restore the version the command names, so
    that none begins from a newer one that was saved meanwhile.
    """
    table = job.checkpoint
    role = plan.role(command.task.role)
    if table is None or role.tracking is Tracking.SIDECAR or role.name == PREPROCESS:
        return None
    return {
        "job_id": directory.job_id,
        "folder": table.folder,
        "store": directory.checkpoint_store(table, home),
        "source": table.source or "chief",
        "keep": table.keep,
        "settle_s": seconds(table.settle) or 0.0,
        "ignore": list(table.ignore),
        "signal": table.signal,
        "version": command.restore if table.source != "each" else None,
    }


def mirror(job: Job, places: Places, task: Task) -> Mirror | None:
    """How the container's TensorBoard folder is kept like the job's: each task has a folder of its
    own there, and TensorBoard sees all of them."""
    url = places.tensorboard_url
    if url is None:
        return None
    if is_tensorboard(job, task.role):
        return Mirror(way="pull", folder=places.tensorboard_dir, place=url)
    place = f"{url.rstrip('/')}/{task.role}-{task.index}"
    return Mirror(way="push", folder=places.tensorboard_dir, place=place)


def outputs(job: Job, plan: Plan, job_id: str, places: Places, task: Task) -> dict[str, Any] | None:
    """What of a task's working folder is copied to where."""
    sidecar = plan.role(task.role).tracking is Tracking.SIDECAR
    if sidecar or (job.in_place and job.outputs is None):
        return None
    table = job.outputs or Outputs()
    keep = table.keep
    if keep is None and places.keeps and not job.in_place:
        keep = "all"
    if table.store is None:
        place = f"{places.home}/{layout.OUTPUTS}/{task.role}-{task.index}"
    else:
        place = f"{job_place(table.store, job_id)}/{task.role}-{task.index}"
    wanted: dict[str, Any] = {
        "folders": list(table.folders),
        "keep": ["*"] if keep == "all" else list(keep or ()),
        "store": place,
    }
    if keep != table.keep:  # nobody asked for two copies of what is in a checkpoint
        wanted["keep_saved"] = False
    return wanted
