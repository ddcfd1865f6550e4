"""``howdah doctor``: what this machine offers to jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from howdah.cli.arguments import json_option, store_option
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.client.doctor import DoctorFinding

_MARKS = {"fine": ("ok", "green"), "warning": ("!!", "yellow"), "problem": ("NO", "red")}


@click.command("doctor")
@click.option(
    "--backend",
    metavar="NAME",
    help="Check only this backend: 'local' (this machine), 'yarn' (the Hadoop cluster) or "
    "'spark' (this program's Spark session, or one made for it). By default this machine, "
    "and the Hadoop cluster if HADOOP_CONF_DIR is set.",
)
@store_option
@json_option
def command(backend: str | None, store: str | None, as_json: bool) -> int:
    """Check what this machine offers to jobs, and what would get in their way.

    Changes nothing. Exits with 0, or with 3 if jobs cannot run here. If there is a Hadoop cluster,
    it is checked too.

    With --json: {"ok": true or false, "findings": [{"what", "health", "text", "hint"}, …]} where
    health is "fine", "warning" or "problem".
    """
    from howdah.cli.display.formatting import Paint, counted, wants_colour
    from howdah.client.doctor import Health
    from howdah.client.errors import ExitCode

    paint = Paint(wants_colour(sys.stdout))
    findings: list[DoctorFinding] = []
    for finding in _looks(backend, store):
        findings.append(finding)
        if as_json:
            continue
        mark, colour = _MARKS[finding.health.value]
        echo(
            f"{paint(mark, colour, bold=True)}  {finding.what}: {finding.text}", color=paint.colour
        )
        if finding.hint:
            echo(f"    {finding.hint}")
    counts = {health: sum(f.health is health for f in findings) for health in Health}
    problems, warnings = counts[Health.PROBLEM], counts[Health.WARNING]
    if as_json:
        echo_json({"ok": not problems, "findings": findings})
    elif problems:
        echo(f"\nJobs cannot run here: {counted(problems, 'problem')}, see NO above.")
    else:
        more = f", {counted(warnings, 'warning')} above" if warnings else ""
        echo(f"\nJobs can run here{more}.")
    return ExitCode.BACKEND if problems else ExitCode.SUCCEEDED


def _looks(backend: str | None, store: str | None) -> Iterator[DoctorFinding]:
    from howdah.backends import registry
    from howdah.client.doctor import examine

    clusters = registry.clusters()
    known = [registry.LOCAL, *clusters]
    if backend is not None and backend not in known:
        raise click.BadParameter(
            f"{backend!r} is none of {', '.join(map(repr, known))}", param_hint="--backend"
        )
    if backend not in clusters:
        yield from examine(store)
    for name, configured in clusters.items():
        if backend == name or (backend is None and configured):
            yield from registry.examine(name)
