"""``howdah tony``: run a job of TonY by the command line that TonY was given."""

from __future__ import annotations

import click

from howdah.cli.arguments import TONY, JobCommand
from howdah.cli.commands import run
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

    Java is not needed. Of its options only the class path is used: tony.xml is looked for in the current
    folder, and then there. You may leave out 'java' with its options, and the submitter.
    ClusterSubmitter means --backend yarn, and LocalSubmitter means --backend local.

    TonY's options may have one dash or two, and '=' or none; the guide "From TonY" lists them.
    Everything else is as for 'howdah run': Ctrl-C, exit codes, --json.
    """,
)
