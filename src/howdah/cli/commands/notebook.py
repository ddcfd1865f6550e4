"""``howdah notebook``: JupyterLab in a container, one address away."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import click

from howdah.cli.arguments import MOST, json_option
from howdah.cli.display.terminal import echo, echo_json
from howdah.frameworks.sidecars import NOTEBOOK

if TYPE_CHECKING:
    from concurrent.futures import Future

    from howdah.spec.model import Job
    from howdah.storage.jobdir import JobDirectory

_HELPER = "frameworks/helpers/notebook_main.py"
_PROGRAM = '"$HOWDAH_PYTHON" "$HOWDAH_HELPERS/notebook_main.py"'


def _time(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """Whole seconds, at least one."""
    from howdah.spec.units import seconds

    if text is None:
        return None
    try:
        value = seconds(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}; write it as 90m or 2h") from None
    return None if value is None else max(value, 1.0)


@click.command("notebook")
@click.option(
    "--name", metavar="NAME", default=NOTEBOOK, show_default=True, help="Name of its job."
)
@click.option(
    "--backend",
    metavar="NAME",
    default="local",
    show_default=True,
    help="Where to run it; 'local' is this machine.",
)
@click.option("--source", metavar="FOLDER", default=".", help="Folder to work in.")
@click.option("--memory", metavar="SIZE", help="Memory of its container, such as 8g.")
@click.option(
    "--cores", metavar="N", type=click.IntRange(1, MOST), help="CPU cores of its container."
)
@click.option(
    "--gpus", metavar="N", type=click.IntRange(0, MOST), default=0, help="GPUs of its container."
)
@click.option("--queue", metavar="NAME", help="The cluster's queue.")
@click.option("--label", metavar="NAME", help="Label that its node must have.")
@click.option(
    "--python", metavar="PATH", help="Interpreter that has JupyterLab, on a cluster on the node."
)
@click.option("--requirements", metavar="FILE", help="Build its environment from this file.")
@click.option("--venv", metavar="FOLDER", help="Run it in this environment; clusters get a copy.")
@click.option(
    "--timeout", metavar="TIME", default="24h", show_default=True, help="End it after this time."
)
@click.option(
    "--idle-timeout",
    metavar="TIME",
    callback=_time,
    help="End it when nothing has run in it for this time, even if its page is still open.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port on this machine."
)
@click.option("--detach", is_flag=True, help="Leave it running, as 'howdah submit' does.")
@json_option
def command(
    name: str,
    backend: str,
    source: str,
    memory: str | None,
    cores: int | None,
    gpus: int,
    queue: str | None,
    label: str | None,
    python: str | None,
    requirements: str | None,
    venv: str | None,
    timeout: str,
    idle_timeout: float | None,
    port: int,
    detach: bool,
    as_json: bool,
) -> int:
    """Run JupyterLab in a container until Ctrl-C.

    It has the memory and GPUs that you ask for. On this machine it edits the folder itself. On a
    cluster it edits a copy; changed files are copied to the job's outputs when it ends. A port of
    this machine leads to it through the job's coordinator. The address, with its token, is printed
    when JupyterLab is up. 'howdah tunnel' opens another such port, from another machine too.

    With --detach it goes on without this command, until its time is up: 'howdah tunnel ID notebook:0'
    or its job's page opens it, and 'howdah stop' ends it.

    With --json: one JSON object per line, as for 'howdah run', and one with type "notebook" and the
    address; with --detach, one as for 'howdah submit'.
    """
    if detach and port:
        raise click.UsageError(
            "--port is of this command, which ends at once with --detach; leave it out, and open the "
            f"notebook with: howdah tunnel ID {NOTEBOOK}:0 --port {port}"
        )
    from howdah.backends.support import honours
    from howdah.cli.commands.run import detached
    from howdah.cli.display.attached import Tie, View, follow
    from howdah.cli.display.progress import SubmissionProgress
    from howdah.client.submission.begin import begin
    from howdah.client.submission.loading import load_object
    from howdah.client.submission.submit import submit
    from howdah.client.sync import Background
    from howdah.spec.model import Environment, Job, Mode, Outputs, Restart, Role, Timeouts

    with contextlib.closing(begin(backend)) as submission:
        in_place = honours(backend, "in-place")
        role = Role(
            memory=memory,
            cores=cores,
            gpus=gpus,
            label=label,
            ports=1,
            restart=Restart.TASK,
            command=_PROGRAM if idle_timeout is None else f"{_PROGRAM} --idle={idle_timeout:.0f}",
        )
        job = Job(
            name=name,
            tags=(NOTEBOOK,),
            framework="command",
            mode=Mode.EACH,
            source=source,
            in_place=in_place,
            outputs=None if in_place else Outputs(keep="all"),
            environment=Environment(python=python, requirements=requirements, venv=venv),
            roles={NOTEBOOK: role},
            queue=queue,
            timeouts=Timeouts(total=timeout),
        )
        loaded = load_object(job)
        if in_place and not job.environment.is_made:
            _demand_jupyterlab(job)

        progress = SubmissionProgress(quiet=as_json)

        def submitted() -> JobDirectory:
            with progress:
                return submit(loaded, backend=backend, submission=submission, progress=progress)

        if detach:
            detached(submitted, progress.notes, as_json=as_json)
            return 0

        leading: list[Future[None]] = []

        def start() -> JobDirectory:
            directory = submitted()
            leading.append(Background.start(_serve(directory, port, as_json=as_json)))
            return directory

        try:
            view = View(as_json=as_json)
            return follow(start, Tie.JOB, view, cancel=submission.cancel, notes=progress.notes)
        finally:
            for each in leading:
                each.cancel()
                Background.call(asyncio.sleep(0))  # it ends before this program does


def _demand_jupyterlab(job: Job) -> None:
    """Raise a usage error if this machine's interpreter for the job is known to be without it."""
    import subprocess
    import sys

    from howdah.backends.interpreter import interpreter
    from howdah.version import PACKAGE

    program = [interpreter(job, job.source, sys.executable), f"{PACKAGE}/{_HELPER}", "--check"]
    try:
        found = subprocess.run(program, capture_output=True, text=True, check=False)
    except OSError:
        return  # no such interpreter: the submission says so
    if "refused: " in found.stderr:
        raise click.UsageError(found.stderr.partition("refused: ")[2].strip())


async def _serve(directory: JobDirectory, port: int, *, as_json: bool) -> None:
    from howdah.client.errors import HowdahError
    from howdah.client.following.tunnel import local_base, tunnel, wait_for_page
    from howdah.core.messages import Task

    task = Task(NOTEBOOK, 0)
    try:
        path = await wait_for_page(directory, task)
        async with tunnel(directory, task, port) as own:
            address = local_base(directory.job_id, own) + path
            if as_json:
                echo_json({"type": "notebook", "address": address})
            else:
                echo(f"open {address}", err=True)
            await asyncio.Event().wait()
    except HowdahError:
        return  # the job has ended: its follower says how
    except OSError as error:
        echo(
            f"port {port} of this machine can't be used: {error}; open another with "
            f"howdah tunnel {directory.job_id} {task}",
            err=True,
        )
