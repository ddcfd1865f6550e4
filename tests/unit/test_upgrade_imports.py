"""What runs for days imports nothing late: by then ``pip install -U howdah`` may have put another release where it
came from, and it would run modules of two releases, or miss one.

A process loads all at its start, or at a quiet moment soon after it; what only its start needs may be late.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from howdah.backends import registry
from howdah.cli.commands import pages
from howdah.cli.display import attached
from howdah.client.following import remote
from howdah.coordinator import job_page
from tests.unit.test_imports import imported_by, modules, parsed

pytestmark = pytest.mark.xdist_group("imports")

_OTHER_SYSTEMS = {"howdah.agent.host.portable"}
_STARTS = (
    "howdah.cli.main",
    "howdah.cli.arguments",
    "howdah.cli.tony_options",
    "howdah.cli.commands.",
)
"""These look for the command and for what it is about, before it begins."""
_PACKS = ("howdah.packing.python.", "howdah.backends.yarn.client.staging")
"""What submits has loaded these; nothing else packs."""
_ON_A_CLUSTER = {
    "howdah.coordinator.main.main_remote",
    "howdah.coordinator.remote_directory.keep_uploaded",
    "howdah.coordinator.remote_directory.bring_metrics",
    "howdah.coordinator.remote_directory.RemoteLogs._bring",
    "howdah.coordinator.service._replica",
}
"""In a coordinator whose Howdah was shipped with the job: nobody changes that."""

_AT_SUBMISSION = {
    "howdah.backends.local.container_paths.prepare",
    "howdah.backends.spark.launch_bundle.pack_source",
}
_OF_THE_COORDINATOR = {
    "howdah.storage.jobdir.JobDirectory.token",
    "howdah.storage.jobdir.JobDirectory.containers_key",
}

PROCESSES = {
    "Spark's driver": (
        (
            "howdah.backends.spark.driver",
            "howdah.backends.spark.submission",
            "howdah.backends.spark.site",
        ),
        {
            *_AT_SUBMISSION,
            *_OF_THE_COORDINATOR,
            "howdah.backends.spark.driver.slot_task.run",  # on an executor
        },
    ),
    "Spark's executor": (
        ("howdah.backends.spark.slot_task",),
        {
            *_AT_SUBMISSION,
            *_OF_THE_COORDINATOR,
            "howdah.backends.spark.__getattr__",  # for what submits
        },
    ),
    "node daemon and agents": (
        ("howdah.backends.local.node.main", "howdah.agent.main"),
        _OF_THE_COORDINATOR,
    ),
    "coordinator": (
        (
            "howdah.coordinator.main",
            "howdah.backends.local.backend",
            "howdah.coordinator.web.app",
            "howdah.coordinator.web.server",
            *job_page.NEEDED_LATER,
        ),
        {*_ON_A_CLUSTER, *_AT_SUBMISSION},
    ),
    "portal": (
        (
            "howdah.cli.main",
            "howdah.cli.commands.portal",
            "howdah.portal.app",
            "howdah.portal.jobs",
            "howdah.portal.copies",
            "howdah.coordinator.web.server",
            *pages.NEEDED_LATER,
            *registry.client_modules(),
        ),
        {
            *_ON_A_CLUSTER,
            # A portal has commands submit.
            "howdah.backends.local.submit.LocalSubmission.check",
            "howdah.backends.local.submit.LocalSubmission.go",
            "howdah.backends.spark.__getattr__",
        },
    ),
    "command that follows a job": (
        (
            "howdah.cli.main",
            "howdah.cli.commands.run",
            "howdah.cli.display.attached",
            "howdah.cli.display.screen",
            "howdah.cli.display.summary",
            "howdah.cli.display.writer",
            "howdah.client.handle",
            "howdah.client.following.remote",
            *attached.NEEDED_LATER,
            *remote.NEEDED_LATER,
        ),
        {
            *_ON_A_CLUSTER,
            "howdah.cli.display.attached._Session._open",  # the browser, once the page is served
            "howdah.client.lookup.site.site_of",  # at its beginning
            "howdah.client.submission.begin.backend_of_site",  # before it submits
            # Agents, coordinators and submissions write to stores.
            "howdah.storage.stores.destinations.HdfsDestination.__init__",
            "howdah.storage.outputs.publish",
            "howdah.storage.stores.checkpoint_stores.HdfsStore.__init__",
        },
    ),
}


@cache
def late(module: str) -> tuple[tuple[str, str], ...]:
    """Functions of a module, and what of ours each imports."""

    def look(node: ast.AST, within: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from look(child, (*within, child.name))
                continue
            if within and isinstance(child, ast.ImportFrom) and child.module:
                for alias in child.names:
                    yield ".".join(within), f"{child.module}.{alias.name}"
            yield from look(child, within)

    return tuple(look(parsed(modules()[module]), ()))


@cache
def at_the_top(module: str) -> tuple[str, ...]:
    """Modules that one imports as it is imported itself: not in a function, and not for type checkers alone."""

    def look(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                names = [f"{child.module}.{alias.name}" for alias in child.names]
                yield from (name if name in modules() else str(child.module) for name in names)
            yield from look(child)

    return tuple(look(parsed(modules()[module])))


def loaded_by(names: tuple[str, ...]) -> set[str]:
    """Modules of ours that a process has loaded once it has imported those."""
    found, next_ones = set[str](), [*names]
    while next_ones:
        name = next_ones.pop()
        if name in modules() and name not in found:
            found.add(name)
            next_ones += [name.rpartition(".")[0], *at_the_top(name)]
    return found - {"howdah"}


@pytest.mark.nightly
@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_loads_what_its_imports_say(process: str) -> None:
    names, _ = PROCESSES[process]
    loaded = {name for name in imported_by(f"import {', '.join(names)}") if name in modules()}
    assert loaded - {"howdah"} == loaded_by(names) - _OTHER_SYSTEMS


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_that_runs_long_has_loaded_what_it_will_need(process: str) -> None:
    names, allowed = PROCESSES[process]
    known, loaded = modules(), loaded_by(names)
    missing: list[str] = []
    for module in sorted(loaded & known.keys()):
        if module.startswith((*_STARTS, *_PACKS)):
            continue
        for function, name in late(module):
            found = name if name in known else name.rpartition(".")[0]
            if found in known and found not in loaded | _OTHER_SYSTEMS:
                if f"{module}.{function}" not in allowed:
                    missing.append(f"{module}.{function} imports {found}")
    assert not missing
