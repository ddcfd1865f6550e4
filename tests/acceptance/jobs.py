"""Jobs as a user runs them, watched from outside: their directory, processes and logs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tomllib
from pathlib import Path
from typing import Any

import psutil

from howdah.storage.jobdir import JobDirectory
from tests.cli.howdah import Run, newest, start, until

EXAMPLES = Path(__file__).parents[2] / "examples"


class Example:
    """A copy of an example, so that its runs see nothing of each other."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder / name
        shutil.copytree(EXAMPLES / name, self.folder)
        self.file = self.folder / "job.toml"
        self.command: str = tomllib.loads(self.file.read_text()).get("command", "")

    def run(self, *arguments: str, options: str = "", **fields: Any) -> Job:
        """Start it, with options for the training program and fields put over the job file's."""
        if options:
            fields["command"] = f"{self.command} {options}"
        sets = [part for key, value in fields.items() for part in ("--set", f"{key}={value}")]
        return Job(start("run", str(self.file), *sets, *arguments))


class Job:
    """One attached run of a job."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._directory: JobDirectory | None = None

    @property
    def directory(self) -> JobDirectory:
        if self._directory is None:
            name = self.run.until_line(" submitted").split()[-2]
            self._directory = until(
                lambda: JobDirectory(newest().path.parent / name), f"the directory of {name}"
            )
        return self._directory

    def end(self, code: int = 0, within_s: float = 150.0) -> Job:
        ended = self.run.end(within_s)
        assert ended == code, f"exit code {ended}, not {code}:\n{self.run.text}\n{self.run.told}"
        return self

    def lines(self, pattern: str) -> list[re.Match[str]]:
        """Matches in the logs of all tasks as they were printed."""
        return [m for line in list(self.run.out) if (m := re.search(pattern, line))]

    def until_printed(self, pattern: str, within_s: float = 90.0) -> re.Match[str]:
        return until(
            lambda: next(iter(self.lines(pattern)), None),
            f"{pattern!r} in {self.run.out[-20:]} {self.run.err[-20:]}",
            within_s,
        )

    def numbers(self, pattern: str) -> list[float]:
        return [float(match[1]) for match in self.lines(pattern)]

    def log(self, task: str, attempt: int) -> str:
        role, index = task.split(":")
        path = self.directory.path / "logs" / f"{role}-{index}" / f"{attempt}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def coordinator(self) -> psutil.Process:
        address = until(self.directory.coordinator, "a coordinator")
        return psutil.Process(address.pid)

    def node(self) -> psutil.Process:
        return psutil.Process(json.loads((self.directory.path / "node.json").read_text())["pid"])

    def programs(self, task: str) -> list[psutil.Process]:
        """The processes that carry the task's role and index, the agent's helpers left out."""
        role, index = task.split(":")
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                if (
                    environment.get("HOWDAH_JOB_ID") == self.directory.job_id
                    and environment.get("HOWDAH_ROLE") == role
                    and environment.get("HOWDAH_INDEX") == index
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return sorted(found, key=lambda process: process.create_time())

    def kill(self, task: str) -> None:
        """SIGKILL the task's program, as an outsider would."""
        until(lambda: self.programs(task), f"a program of {task}")[0].send_signal(signal.SIGKILL)

    def marked(self) -> list[str]:
        """Processes of the job, its programs and whatever they started."""
        found: list[str] = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("HOWDAH_JOB_ID") == self.directory.job_id:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
            except (psutil.Error, OSError):
                continue
        return found

    def story(self) -> list[str]:
        return [
            json.loads(line)["record"]["text"]
            for line in (self.directory.path / "events-0001.jsonl").read_text().splitlines()
            if '"record"' in line and json.loads(line).get("is") == "record"
        ]


def identity(processes: list[psutil.Process]) -> list[tuple[int, float]]:
    return [(process.pid, process.create_time()) for process in processes]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
