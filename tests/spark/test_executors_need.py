"""What has to be installed on executors, as docs/install.md has it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packing.environments import program
from tests.spark.conftest import RunProgram
from tests.spark.servers import Standalone
from tests.spark.versions import ROOT

PAGE = Path(__file__).parents[2] / "docs" / "install.md"
PROGRAM = """
import sys
before = set(sys.modules)
import howdah.agent.main
import howdah.backends.spark.container
import howdah.backends.spark.slot_task
import howdah.client.submission.function_script
import howdah.spark.context
import howdah.spark.feed.feed
import howdah.spark.feed.tasks.scorer
import howdah.spark.feed.trainer
import howdah.spark.scoring.worker
import cloudpickle
for name in set(sys.modules) - before:
    file = getattr(sys.modules[name], "__file__", None) or ""
    if "site-packages" in file:
        print(name.partition(".")[0])
"""


def test_what_runs_there_needs_no_more_than_the_page_says() -> None:
    command = re.search(r"^pip install (msgspec .*)$", PAGE.read_text(), re.M)
    assert command is not None
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    # numpy and pyarrow are compiled by Cython, and take this along where it is there.
    taken_along = {"typing_extensions", "cython_runtime"}
    found = set(ran.stdout.split()) - {"howdah"} - taken_along
    assert found == set(command[1].split())


@pytest.fixture(scope="module")
def executors_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has ``howdah[executor]``, as it is pinned, and no more."""
    folder = tmp_path_factory.mktemp("executor")
    python = folder / "bin" / "python"
    subprocess.run([program(), "venv", "--quiet", "--python", sys.executable, folder], check=True)
    install = [program(), "pip", "install", "--quiet", "--python", python]
    install += ["--constraints", ROOT / "constraints.txt", f"{ROOT}[executor]"]
    if subprocess.run([*install, "--offline"], capture_output=True, check=False).returncode:
        subprocess.run(install, check=True)  # not all of it is in uv's cache
    return python


CLUSTER = """
from howdah.spark import Cluster
from howdah.spark.scoring import predict_udf

def train(args, ctx):
    import sys
    feed = ctx.feed()
    return sys.prefix, sum(int(batch["id"].sum()) for batch in feed.batches(100))

def classify(args, ctx):
    feed = ctx.feed("inference")
    for batch in feed.batches(64):
        feed.results(batch["id"] * 2)

with Cluster.start(spark, train, workers=2, on_log=None) as cluster:
    cluster.train(spark.range(1000), align="none")
    values = cluster.results().values()
print("prefixes=" + " ".join(sorted({prefix for prefix, _ in values})))
print("sum=" + str(sum(total for _, total in values)))
with Cluster.start(spark, classify, workers=1, on_log=None) as cluster:
    scored = cluster.inference(spark.range(100), schema="prediction bigint").collect()
print("scored=" + str(sum(row.prediction for row in scored)))
twice = predict_udf(spark, lambda batch: batch["id"] * 2, "long", inputs=["id"])
predicted = spark.range(100).select(twice("id")).collect()
print("predicted=" + str(sum(row[0] for row in predicted)))
"""


@pytest.mark.nightly
def test_a_cluster_trains_and_answers_on_executors_that_have_the_extra_alone(
    executors_python: Path, run_program: RunProgram, tmp_path: Path
) -> None:
    with Standalone(tmp_path / "standalone") as cluster:
        done = run_program(
            CLUSTER,
            spark=cluster,
            conf={"spark.cores.max": "2"},
            env={"PYSPARK_PYTHON": str(executors_python), "HOWDAH_HOME": str(tmp_path / "home")},
            timeout_s=150,
        )
    assert done.code == 0, done.out
    assert done.told("prefixes") == str(executors_python.parents[1])
    assert (done.told("sum"), done.told("scored")) == ("499500", "9900")
    assert done.told("predicted") == "9900"
