"""The examples of examples/spark, run as main programs, learn the digits.

They run one after the other in one process of their own, whose JVM they share: that is what takes time.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.programs import run_program
from tests.spark.versions import ROOT

EXAMPLES = ROOT / "examples" / "spark"
NAMES = (
    "inference",
    "streaming",
    "pipeline",
    "foreground",
    "torch_feed",
    "steps/step1_single",
    "steps/step2_distributed",
    "steps/step3_spark",
    "keras_feed",
)

_PROGRAM = f"""
import os, runpy, socket, sys, traceback
sys.path.insert(0, {str(EXAMPLES)!r})
for name in {NAMES!r}:
    print(f"=== {{name}}", flush=True)
    if name == "steps/step2_distributed":  # alone in its world
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    sys.argv = [name]
    try:
        runpy.run_path(f"{EXAMPLES}/{{name}}.py", run_name="__main__")
    except BaseException:
        traceback.print_exc(file=sys.stdout)
    for variable in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(variable, None)
print("===", flush=True)
"""

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]


@pytest.fixture(scope="module")
def examples_ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each has printed."""
    done = run_program(
        _PROGRAM,
        tmp_path_factory.mktemp("examples"),
        session=False,
        timeout_s=840,
    )
    parts = re.split(r"^=== ?(\S*)\n", done.out, flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2]))


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("steps/")])
def test_an_example_learns_the_digits(name: str, examples_ran: dict[str, str]) -> None:
    assert accuracy(examples_ran[name]) > (0.85 if name == "inference" else 0.9)


@pytest.mark.tfos("example: ResNet and segmentation, step by step")
def test_a_program_is_converted_step_by_step(examples_ran: dict[str, str]) -> None:
    """The file of each step differs little from the one before, and learns as well."""
    steps = [name for name in NAMES if name.startswith("steps/")]
    assert all(accuracy(examples_ran[name]) > 0.93 for name in steps)


def test_the_examples_say_what_they_have_done(examples_ran: dict[str, str]) -> None:
    assert "columns image,label,prediction" in examples_ran["inference"]
    assert "zeros and ones: [178, 182]" in examples_ran["inference"]
    assert "trained on 1440 rows of the stream" in examples_ran["streaming"]
    for name in ("keras_feed", "torch_feed"):
        found = re.search(r"^fed (\d+) rows, dropped (\d+)", examples_ran[name], re.M)
        assert found and int(found[1]) + int(found[2]) == 14400


def test_every_example_is_run() -> None:
    helpers = {"digits_frames"}
    files = {str(path.relative_to(EXAMPLES))[:-3] for path in Path(EXAMPLES).rglob("*.py")}
    assert files - helpers == set(NAMES)


def accuracy(printed: str) -> float:
    found = re.search(r"^final accuracy (\d\.\d{4})", printed, re.M)
    assert found, printed
    return float(found[1])
