"""TonY's own end-to-end tests, by name, and its command line on the test cluster.

`ROWS` are the tests of ``TestTonyE2E`` (and of ``TestMLGenericRuntime`` for groups) of TonY 0.5.3. Each
has its like among ours: one that carries ``@pytest.mark.tony("the row")`` and runs on the real cluster.
``docs/generate_parity.py`` makes the parity table of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from howdah.cli.jobs import load_job
from howdah.cli.main import cli
from howdah.client.submit import submit
from howdah.client.sync import JobHandle
from howdah.spec.load import LoadedJob
from tests.parity import Parity
from tests.yarn.runner import Yarn, YarnJob

ROWS = {
    "a single node passes": "testSingleNodeTrainingShouldPass",
    "a single node fails": "testSingleNodeTrainingShouldFail",
    "missed heartbeats": "testPSWorkerTrainingShouldFailMissedHeartbeat",
    "a skewed worker passes": "testPSSkewedWorkerTrainingShouldPass",
    "ps and worker with a shipped environment and variables": "testPSWorkerTrainingShouldPass",
    "PyTorch's environment": "testWorkerTrainingPyTorchShouldPass",
    "ps and worker that exit with 1 fail": "testPSWorkerTrainingShouldFail",
    "the application master crashes": "testAMCrashTonyShouldFail",
    "the application master throws an exception": "testAMThrowExceptionCrashTonYShouldFail",
    "stages: dbloader and db, then ps and worker": "testTonyAMSchedulerShouldPass",
    "worker 0 is killed": "testAMStopsJobAfterWorker0Killed",
    "the client loses the application master": "testNullAMRpcClient",
    "a worker that is not the chief fails": "testNonChiefWorkerFail",
    "resources: a name, an archive, a list, a remote folder": "testTonyResourcesFlag",
    "TensorBoard's port on the chief only": "testTensorBoardPortSetOnlyOnChiefWorker",
    "standalone passes": "testStandaloneRuntimeModeShouldPass",
    "standalone with several instances is refused": "testStandaloneRuntimeWithMultiInstancesShouldFail",
    "a completion that is notified late": "testTaskCompletionNotificationDelayed",
    "client callbacks": "testTonyClientCallbackHandler",
    "a ps that crashes stops the job": "testTonyPSCrashShouldFailAndStopAM",
    "a sidecar that crashes is ignored": "testTonySidecarExecutorCrashShouldPass",
    "Horovod's driver crashes": "testTonyHorovodDriverCrashShouldFailAndStopAM",
    "Horovod passes": "testTonyHorovodShouldPass",
    "Horovod with a driver of one's own passes": "testTonyHorovodWithDebugModeShouldPass",
    "allocation time-out: more workers than the cluster has room for": "10,000 workers",
    "start-up time-out of the application master": "AM start-up time-out",
    "attached TensorBoard": "testAttachedTensorboardShouldPass",
    "a group's time-out ends the job": "testGroupDependencyShouldPass",
    "a group's time-out that is not reached": "testGroupDependencyWithoutTimeoutMultipleGroup",
    "time-outs of several groups": "testGroupDependencyWithMultipleGroup",
    "a group's time-out that is ignored": "testTaskTimeoutWithIgnoredShouldPass",
    "lost connection with the application master": "lost connection with AM",
    "the final configuration": "testTonyFinalConf",
}

PARITY = Parity(
    mark="tony",
    rows=ROWS,
    row="a test of TonY's",
    fixtures=frozenset({"hadoop", "hadoop_cluster", "hadoop_module_cluster"}),
    real="the real cluster",
    files=("yarn/test_tony_*.py",),
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
