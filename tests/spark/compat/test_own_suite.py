"""TensorFlowOnSpark's own tests, as they are, with `install()` before them.

A checkout of https://github.com/yahoo/TensorFlowOnSpark (2.2.5) is where ``HOWDAH_TENSORFLOWONSPARK`` says. What
patches private functions of theirs, which ours has not, is left out.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.spark.servers import Standalone

SOURCE = os.environ.get("HOWDAH_TENSORFLOWONSPARK", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not SOURCE, reason="HOWDAH_TENSORFLOWONSPARK names no checkout"),
]
_RUN = (
    "import unittest; from howdah.compat import tensorflowonspark; tensorflowonspark.install(); "
    "unittest.main(module=None)"
)


def wanted(folder: Path) -> Iterator[str]:
    """The tests that patch nothing private, by module, class and name."""
    for file in sorted(folder.glob("test*.py")):
        cases = [
            each for each in ast.parse(file.read_text()).body if isinstance(each, ast.ClassDef)
        ]
        for case in cases:
            for each in case.body:
                if isinstance(each, ast.FunctionDef) and each.name.startswith("test"):
                    patches = " ".join(map(ast.unparse, each.decorator_list))
                    if "._" not in patches:
                        yield f"{file.stem}.{case.name}.{each.name}"


def test_tensorflowonsparks_own_tests_pass(standalone: Standalone, tmp_path: Path) -> None:
    folder = Path(SOURCE, "tests")
    jar = next(Path(pyspark.__file__).parent.joinpath("jars").glob("spark-tags_*.jar"))
    env = {
        **os.environ,
        "MASTER": standalone.url,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_INSTANCES": "2",
        "SPARK_CLASSPATH": str(jar),  # theirs needs a jar for TFRecords, ours none
        "PYTHONPATH": str(folder),
        "TF_USE_LEGACY_KERAS": "1",
    }
    tests = [*wanted(folder)]
    log = tmp_path / "log"
    with log.open("w") as out:
        code = subprocess.run(
            [sys.executable, "-c", _RUN, "-v", *tests],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
        ).returncode
    text = log.read_text(errors="replace")
    assert code == 0 and re.search(rf"^Ran {len(tests)} tests", text, re.M), text[-20_000:]
