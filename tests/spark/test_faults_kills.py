"""What is killed on a Standalone cluster while rows are fed, and how the cluster goes on."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from howdah.spark import Cluster
from howdah.spark.reports import TrainReport
from tests import leaks
from tests.spark import programs
from tests.spark.faulty import ended, eventually, of_job, slowly_with_notes
from tests.spark.servers import Standalone, feeders

pytestmark = pytest.mark.timeout(400)

ROWS = 4000


class Fed:
    """A cluster that is being fed, slowly, until `finish`."""

    def __init__(self, spark: Any, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.cluster = Cluster.start(
            spark, slowly_with_notes, str(folder), workers=2, on_log=None, **options
        )
        self._report: TrainReport | BaseException | None = None
        self._thread = threading.Thread(target=self._feed, args=(spark,), daemon=True)
        self._thread.start()
        try:
            self.wait_generation(1)
        except BaseException:
            self.close()
            raise

    def _feed(self, spark: Any) -> None:
        try:
            self._report = self.cluster.train(spark.range(0, ROWS, 1, 4), align="none")
        except BaseException as error:
            self._report = error

    def wait_generation(self, number: int) -> None:
        """Wait until both ranks of it are fed."""

        def there() -> bool:
            if self._report is not None:
                raise AssertionError(f"feeding has ended: {self._report!r}")
            return all((self.folder / f"{rank}.{number}").exists() for rank in (0, 1))

        eventually(f"rows in both ranks of generation {number}", there, 200)

    def trainer(self, rank: int, generation: int = 1) -> psutil.Process:
        """That rank's training process."""
        return psutil.Process(int((self.folder / f"{rank}.{generation}").read_text()))

    def finish(self) -> tuple[TrainReport, int]:
        """Let it go on at full speed to its end; the report, and the rows its functions counted."""
        (self.folder / "go").touch()
        self._thread.join(120)
        assert isinstance(self._report, TrainReport), repr(self._report)
        return self._report, sum(self.cluster.results(timeout_s=60).values())

    def close(self) -> None:
        (self.folder / "go").touch()
        self.cluster.stop()
        self._thread.join(30)


@contextlib.contextmanager
def fed(spark: Any, folder: Path, **options: Any) -> Iterator[Fed]:
    feeding = Fed(spark, folder, **options)
    try:
        yield feeding
    finally:
        feeding.close()
    ended(feeding.cluster.job_id)


def test_a_killed_training_process_makes_a_new_gang_that_gets_every_row(
    standalone_spark: Any, tmp_path: Path
) -> None:
    with fed(standalone_spark, tmp_path) as feeding:
        feeding.trainer(1).kill()
        feeding.wait_generation(2)
        report, counted = feeding.finish()
        assert (report.restarts, report.rows, report.dropped, counted) == (1, ROWS, 0, ROWS)
        assert feeding.cluster.status().restarts == 1


def test_a_killed_agent_makes_a_new_gang_that_gets_every_row(
    standalone_spark: Any, tmp_path: Path
) -> None:
    with fed(standalone_spark, tmp_path) as feeding:
        trainer = feeding.trainer(0)
        agent = next(each for each in trainer.parents() if each.name() == "howdah-agent")
        agent.kill()
        feeding.wait_generation(2)
        assert not programs.wait_ended([trainer.pid]), "its program ended with it"
        report, counted = feeding.finish()
        assert (report.restarts, counted) == (1, ROWS)


def test_a_killed_python_worker_of_spark_costs_no_row_and_no_gang(
    standalone_spark: Any, standalone: Standalone, tmp_path: Path
) -> None:
    with fed(standalone_spark, tmp_path) as feeding:
        killed = [each for worker in standalone.workers for each in feeders(worker)]
        assert killed
        for each in killed:
            with contextlib.suppress(psutil.Error):
                each.kill()
        report, counted = feeding.finish()
        assert (report.restarts, report.repeated, report.rows, counted) == (0, 0, ROWS, ROWS)
        assert not (tmp_path / "0.2").exists()


def test_a_killed_executor_costs_no_row_and_no_gang(
    standalone_spark: Any, standalone: Standalone, tmp_path: Path
) -> None:
    with fed(standalone_spark, tmp_path) as feeding:
        standalone.executors()[0].kill()
        report, counted = feeding.finish()
        assert (report.restarts, report.repeated, report.rows, counted) == (0, 0, ROWS, ROWS)
        assert not (tmp_path / "0.2").exists()


_DRIVER = """
from howdah.spark import Cluster
from tests.spark.faulty import slowly_with_notes

cluster = Cluster.start(spark, slowly_with_notes, {folder!r}, workers=2, on_log=None)
print(f"job={{cluster.job_id}}", flush=True)
cluster.train(spark.range(0, 1_000_000, 1, 4))
"""


def test_nothing_remains_of_a_cluster_whose_driver_was_killed(tmp_path: Path) -> None:
    text = _DRIVER.format(folder=str(tmp_path))
    program = programs.start_program(text, tmp_path / "program")
    try:
        job_id = program.wait_line(r"^job=(\S+)", 90)
        eventually(
            "rows in both ranks", lambda: all((tmp_path / f"{r}.1").exists() for r in (0, 1))
        )
        assert of_job(job_id)
        program.kill()
        ended(job_id, timeout_s=120)
    finally:
        program.end()


def test_a_cluster_forms_anew_on_another_worker_when_a_host_is_lost(
    standalone_spark: Any, standalone: Standalone, tmp_path: Path
) -> None:
    with fed(standalone_spark, tmp_path) as feeding:
        lost = standalone.workers[-1]
        processes = lost.processes()
        for each in processes:
            with contextlib.suppress(psutil.Error):
                each.kill()
        standalone.add_worker()
        feeding.wait_generation(2)
        _, counted = feeding.finish()
        assert counted == ROWS
    # A lost host takes its disk along; here nobody is left who would tidy up.
    pids = {str(each.pid) for each in processes}
    for socket in leaks.sockets(Path(os.environ["HOWDAH_RUNTIME_DIR"])):
        if pids & set(re.findall(r"\d+", socket.name)):
            socket.unlink()
