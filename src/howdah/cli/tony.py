"""``howdah tony``: run a job of TonY by the command line that TonY was given."""

from __future__ import annotations

import click

from howdah.cli import run
from howdah.cli.jobs import TONY, JobCommand
from howdah.compat.tony.java import NotTonY, command_line


class TonyCommand(JobCommand):
    """``howdah run`` for whoever writes TonY's command lines."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            line = command_line(args)
        except NotTonY as error:
            raise click.UsageError(str(error), ctx) from None
        ctx.meta[TONY] = line
        backend = ["--backend", line.backend] if line.backend is not None else []
        return super().parse_args(ctx, [*backend, *line.arguments])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[java -cp PATH] [SUBMITTER]", "[TONY'S OPTIONS]", "[OPTIONS]"]


command: TonyCommand = TonyCommand(
    "tony",
    params=run.run_command.params,
    callback=run.run_command.callback,
    context_settings={"help_option_names": ["-h", "--help", "-help"]},
    help="""Run a job of TonY by its own command line.

    Put 'howdah tony' before the line that started the job with TonY:

    \b
        howdah tony java -cp "MyJob/*:MyJob" com.linkedin.tony.cli.ClusterSubmitter \\
            -executes train.py -src_dir src -conf tony.worker.instances=4

    Java is not needed: what it is told is passed over, but for the class path, where tony.xml is looked
    for after the current folder. 'java' and its options may be left out, and so may the submitter.
    ClusterSubmitter stands for --backend yarn, LocalSubmitter for --backend local.

    TonY's options are taken with one dash or two and with '=' or without; the guide "From TonY" lists
    them. Everything else is as with 'howdah run': Ctrl-C, exit codes, --json.
    """,
)
