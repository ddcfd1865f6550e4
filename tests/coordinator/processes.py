"""A backend whose containers are real agents, told no more than where their coordinator is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.core.messages import ContainerEnded, ContainerEndKind
from tests.coordinator.fakes import FakeBackend, until
from tests.coordinator.world import World


class Processes(FakeBackend):
    """Containers that are real agents, which are told no more than where their coordinator is."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        self.launched.append(container_id)
        if container_id in self.processes:
            return
        there = self.announced[-1]
        launch = msgspec.structs.replace(
            launch,
            coordinator_file=None,
            coordinators=((there.host, there.port),),
            listen=True,
            host="127.0.0.1",
        )
        folder = Path(launch.work_dir)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "launch.json"
        file.write_bytes(msgspec.json.encode(launch))
        with (folder / "agent.log").open("wb") as out:
            self.processes[container_id] = subprocess.Popen(
                [sys.executable, "-m", "howdah.agent.main", str(file)], stdout=out, stderr=out
            )

    async def release(self, container_id: str) -> None:
        process = self.processes.get(container_id)
        if process is not None:
            process.terminate()
            await until(lambda: process.poll() is not None)
        if container_id in self.held:
            self.held.discard(container_id)
            self._emit(ContainerEnded(container_id=container_id, kind=ContainerEndKind.RELEASED))

    async def close(self) -> None:
        await super().close()
        for process in self.processes.values():
            await until(lambda process=process: process.poll() is not None)

    async def end(self) -> None:
        """Whatever the test came to."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
                await until(lambda process=process: process.poll() is not None)


async def all_here(job: World) -> None:
    """All agents are connected, and everything runs."""

    def there() -> bool:
        state = job.coordinator.machine.state
        present = all(container.connected for container in state.containers.values())
        begun = state.incarnation == job.coordinator.incarnation
        return begun and present and state.phase.value == "running"

    await until(there, 60.0)
