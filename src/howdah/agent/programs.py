"""The programs of one attempt: started side by side, their ends noted in order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from howdah.agent.children import Child, Children
from howdah.agent.outcome import Ended, not_started
from howdah.agent.processes import prefer_as_oom_victim
from howdah.agent.pump import Pump, Source
from howdah.storage.errors import is_transient
from howdah.wire.messages import ProcessSpec


class StartProblem(Exception):
    """A program could not be started; the text says why and what to do."""

    def __init__(self, process: int, text: str, *, transient: bool = False) -> None:
        """``process`` is its local rank; ``transient``: see `howdah.storage.errors`."""
        super().__init__(text)
        self.process = process
        self.transient = transient


class Program:
    """One running program."""

    def __init__(self, process: int, child: Child, source: Source) -> None:
        self.process = process
        """Its local rank."""
        self.child = child
        self.source = source
        self.asked = False
        """It was still running when the agent began to end the attempt."""


class Programs:
    """All of one attempt's."""

    def __init__(self, children: Children, pump: Pump, folder: Path) -> None:
        self._children = children
        self._pump = pump
        self._folder = folder
        self._programs: list[Program] = []
        self._ended: list[Program] = []
        self.changed = asyncio.Event()
        """Set when a program has ended; to be cleared by who waits."""

    @property
    def pids(self) -> tuple[int, ...]:
        """By local rank, ended ones too."""
        return tuple(program.child.pid for program in self._programs)

    @property
    def running(self) -> bool:
        """Not all have ended, as far as noted."""
        return len(self._ended) < len(self._programs)

    def still_running(self) -> bool:
        """Not all have ended."""
        self.note_ends()
        return self.running

    @property
    def failed(self) -> bool:
        """One of them has ended otherwise than with exit code 0."""
        return any(program.child.status != 0 for program in self._ended)

    def start(
        self,
        specs: Sequence[ProcessSpec],
        environment: Callable[[ProcessSpec], Mapping[str, str]],
    ) -> None:
        """Start them all.

        Raises:
            StartProblem: one can't be started; those before it run.
        """
        for process, spec in enumerate(specs):
            self._programs.append(self._start_one(process, spec, environment(spec)))

    def note_ends(self) -> None:
        """Take note of those that have ended since; called whenever children have."""
        for program in self._programs:
            if program.child.status is not None and program not in self._ended:
                self._ended.append(program)
                self.changed.set()

    def asked_to_end(self) -> None:
        """From now on an end is what the agent wanted."""
        self.note_ends()
        for program in self._programs:
            program.asked = program.asked or program not in self._ended

    def ends(self) -> list[Ended]:
        """How they ended, in order."""
        return [
            Ended(
                process=program.process,
                status=program.child.status or 0,
                asked=program.asked,
                tail=program.source.tail(),
            )
            for program in self._ended
        ]

    def _start_one(self, process: int, spec: ProcessSpec, env: Mapping[str, str]) -> Program:
        output, output_in = self._pump.pipe()
        error, error_in = self._pump.pipe()
        try:
            child = self._children.start(
                spec.argv, env=env, cwd=self._folder, stdout=output_in, stderr=error_in
            )
        except (OSError, ValueError) as problem:
            os.close(output)
            os.close(error)
            text = not_started(spec.argv, str(self._folder), problem)
            raise StartProblem(process, text, transient=is_transient(problem)) from problem
        finally:
            os.close(output_in)
            os.close(error_in)
        prefer_as_oom_victim(child.pid)
        return Program(process, child, self._pump.add(output, error, spec.label))
