"""TonY's own end-to-end tests, by name, and its command line on the test cluster.

`CASES` are the tests of ``TestTonyE2E`` of TonY 0.5.3 that state an exit code, `ROWS` these and more (of
``TestMLGenericRuntime`` for groups). Each has its like among ours: one that carries ``@pytest.mark.tony("the row")``.
``docs/generate_parity.py`` makes the parity table of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from howdah.cli.arguments import load_job
from howdah.cli.main import cli
from howdah.client.submission.submit import submit
from howdah.client.sync import JobHandle
from howdah.spec.load import LoadedJob
from tests.parity import Parity
from tests.yarn.runner import Yarn, YarnJob


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A test of ``TestTonyE2E`` that states an exit code."""

    row: str
    name: str
    there: int
    """The exit code of TonY's client that it states; -1 stands for any but 0."""
    here: int
    """That of ``howdah tony`` with the same options."""
    why: str = ""
    """Why the one is 0 and the other is not; or what else is to be said."""


_SWITCH = "it sets a switch that only TonY has"

CASES = (
    Case(row="a single node passes", name="testSingleNodeTrainingShouldPass", there=0, here=0),
    Case(
        row="missed heartbeats",
        name="testPSWorkerTrainingShouldFailMissedHeartbeat",
        there=-1,
        here=1,
        why=f"{_SWITCH}; the job fails by its program, which lacks a variable. An agent that is silent is "
        "replaced here",
    ),
    Case(
        row="a skewed worker passes",
        name="testPSSkewedWorkerTrainingShouldPass",
        there=0,
        here=0,
        why=f"{_SWITCH}, and it passes without",
    ),
    Case(
        row="ps and worker with a shipped environment and variables",
        name="testPSWorkerTrainingShouldPass",
        there=0,
        here=0,
    ),
    Case(row="PyTorch's environment", name="testWorkerTrainingPyTorchShouldPass", there=0, here=0),
    Case(
        row="ps and worker that exit with 1 fail",
        name="testPSWorkerTrainingShouldFail",
        there=-1,
        here=1,
    ),
    Case(row="a single node fails", name="testSingleNodeTrainingShouldFail", there=-1, here=1),
    Case(
        row="the application master crashes",
        name="testAMCrashTonyShouldFail",
        there=-1,
        here=0,
        why=f"{_SWITCH}. A master that dies is replaced, and the programs go on",
    ),
    Case(
        row="the application master throws an exception",
        name="testAMThrowExceptionCrashTonYShouldFail",
        there=-1,
        here=0,
        why=f"{_SWITCH}. A master that dies as often as it may fails the job",
    ),
    Case(
        row="stages: dbloader and db, then ps and worker",
        name="testTonyAMSchedulerShouldPass",
        there=0,
        here=0,
    ),
    Case(
        row="worker 0 is killed",
        name="testAMStopsJobAfterWorker0Killed",
        there=-1,
        here=0,
        why=f"{_SWITCH}. A worker that is really killed fails the job",
    ),
    Case(
        row="the client loses the application master", name="testNullAMRpcClient", there=0, here=0
    ),
    Case(
        row="a worker that is not the chief fails",
        name="testNonChiefWorkerFail",
        there=-1,
        here=1,
        why="its one worker is the chief, in spite of the name",
    ),
    Case(
        row="resources: a name, an archive, a list, a remote folder",
        name="testTonyResourcesFlag",
        there=0,
        here=0,
    ),
    Case(
        row="TensorBoard's port on the chief only",
        name="testTensorBoardPortSetOnlyOnChiefWorker",
        there=0,
        here=0,
    ),
    Case(row="standalone passes", name="testStandaloneRuntimeModeShouldPass", there=0, here=0),
    Case(
        row="standalone with several instances is refused",
        name="testStandaloneRuntimeWithMultiInstancesShouldFail",
        there=-1,
        here=2,
        why="refused before it is submitted",
    ),
    Case(
        row="a completion that is notified late",
        name="testTaskCompletionNotificationDelayed",
        there=0,
        here=0,
        why=f"{_SWITCH}, and it passes without",
    ),
    Case(row="client callbacks", name="testTonyClientCallbackHandler", there=0, here=0),
    Case(
        row="a ps that crashes stops the job",
        name="testTonyPSCrashShouldFailAndStopAM",
        there=-1,
        here=1,
    ),
    Case(
        row="a sidecar that crashes is ignored",
        name="testTonySidecarExecutorCrashShouldPass",
        there=0,
        here=0,
    ),
    Case(
        row="Horovod's driver crashes",
        name="testTonyHorovodDriverCrashShouldFailAndStopAM",
        there=-1,
        here=0,
        why=f"{_SWITCH}. A driver that really dies fails the job",
    ),
    Case(row="Horovod passes", name="testTonyHorovodShouldPass", there=0, here=0),
    Case(
        row="Horovod with a driver of one's own passes",
        name="testTonyHorovodWithDebugModeShouldPass",
        there=0,
        here=2,
        why="its driver tells TonY a port in a file and serves nothing: refused. One that serves Horovod's "
        "rendezvous on `$HOWDAH_PORT` passes",
    ),
    Case(
        row="allocation time-out: more workers than the cluster has room for",
        name="testTonyAllocationTimeoutShouldFail",
        there=-1,
        here=3,
        why="refused at once where there can never be room; exit code 4 where the time comes",
    ),
    Case(
        row="start-up time-out of the application master",
        name="testTonyAMStartupTimeoutShouldFail",
        there=-1,
        here=4,
        why="TonY's client pretends that the application never starts; the cluster is full in ours",
    ),
    Case(
        row="attached TensorBoard",
        name="testAttachedTensorboardShouldPass",
        there=0,
        here=0,
    ),
    Case(
        row="a group's time-out ends the job",
        name="testGroupDependencyTimeoutShouldPass",
        there=-1,
        here=4,
    ),
    Case(
        row="a group's time-out that is ignored",
        name="testTaskWithDependencyTimeoutButIgnoredShouldPass",
        there=0,
        here=0,
    ),
    Case(
        row="a group's time-out that is ignored, beside a ps",
        name="testTaskWithDependencyTimeoutButIgnoredAndWithPSShouldPass",
        there=0,
        here=0,
    ),
    Case(
        row="a group's time-out that is ignored, and a failure",
        name="testTaskWithDependencyTimeAndIgnoredButFailedShouldPass",
        there=-1,
        here=1,
    ),
)
"""All that state an exit code and are not switched off."""

ROWS = {case.row: case.name for case in CASES} | {
    "a group's time-out that is not reached": "testGroupDependencyWithoutTimeoutMultipleGroup",
    "time-outs of several groups": "testGroupDependencyWithMultipleGroup",
    "lost connection with the application master": "testLostConnectionWithAMJobShouldFail",
    "the final configuration": "testTonyFinalConf",
}

PARITY = Parity(
    mark="tony",
    rows=ROWS,
    row="a test of TonY's",
    fixtures=frozenset({"hadoop", "hadoop_cluster", "hadoop_module_cluster"}),
    real="the real cluster",
    files=("yarn/test_tony.py", "yarn/test_faults.py"),
    further=("compat/test_tony_cases.py",),
    further_suffice=True,
)

SMALL = (
    *("-container_env", "SKIP_HADOOP_PATH=true"),
    *("--set", "master.memory=256m", "--set", "timeouts.stop-grace=1s"),
)
MEMORY = "256m"


class Tony:
    """TonY's client, as far as its users know it, in a folder of its own."""

    def __init__(self, yarn: Yarn, folder: Path) -> None:
        """``folder`` is the current one."""
        self.yarn = yarn
        self.folder = folder
        self.source = folder / "scripts"
        self.source.mkdir()

    def script(self, name: str, text: str) -> None:
        """A program in the folder of ``-src_dir``."""
        (self.source / name).write_text(text)

    def load(self, *arguments: str, **types: int | str) -> LoadedJob:
        """The job of a command line; ``worker=2`` are instances of a type, with little memory."""
        words = [*SMALL, "-src_dir", "scripts"]
        for name, number in types.items():
            words += conf({f"tony.{name}.instances": number, f"tony.{name}.memory": MEMORY})
        if not types:
            words += conf({"tony.am.memory": MEMORY})
        words += arguments
        # As the command line makes it: click keeps a command's help option as it is made first.
        context = click.Context(cli, **cli.context_settings)
        command = cli.get_command(context, "submit")
        assert command is not None
        with command.make_context("submit", words, parent=context) as made:
            options: dict[str, Any] = dict(made.params)
            for own in ("backend", "as_json", "wait"):
                options.pop(own)
            return load_job(made, **options)

    def submit(self, *arguments: str, **types: int | str) -> YarnJob:
        """Submit it."""
        loaded = self.load(*arguments, **types)
        job = YarnJob(self.yarn.cluster, JobHandle(submit(loaded, backend="yarn")))
        self.yarn.jobs.append(job)
        return job

    def executes(self, text: str, *arguments: str, **types: int | str) -> YarnJob:
        """Submit a job whose tasks all run that Python program."""
        self.script("main.py", text)
        python = ("-executes", "main.py", "-python_binary_path", "python3")
        return self.submit(*python, *arguments, **types)


def conf(values: Mapping[str, object]) -> list[str]:
    """``-conf`` for each."""
    return [word for key, value in values.items() for word in ("-conf", f"{key}={value}")]
