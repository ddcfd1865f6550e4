"""TonY's example folders as jobs on the cluster: with their keys, arguments and shape of program."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from howdah.spec.problems import JobFileError
from tests.yarn.tony import MEMORY, Tony, conf
from tests.yarn.tony_examples import EXAMPLES, RAY, Example

pytestmark = pytest.mark.nightly


def name_of(example: Example) -> str:
    return f"{example.folder}, {example.program}"


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_an_example_of_tonys_does_what_the_table_says(example: Example, tony: Tony) -> None:
    for name, text in example.files.items():
        tony.script(name, text)
        if text.startswith("#!"):
            (tony.source / name).chmod(0o755)
    properties = "".join(
        f"<property><name>{key}</name><value>{escape(value)}</value></property>"
        for key, value in example.keys.items()
    )
    (tony.folder / "tony-test.xml").write_text(f"<configuration>{properties}</configuration>")
    words = ["--conf_file=tony-test.xml", *example.arguments]
    if "commands" not in example.program:
        words.append(f"--executes={next(iter(example.files))}")
    for word in example.arguments:
        if word.startswith("--python_venv="):
            venv(tony.folder / word.partition("=")[2], example.venv)
    if example.outcome == "refused":
        with pytest.raises(JobFileError) as refused:
            tony.submit(*words)
        assert example.because in str(refused.value)
        return
    roles = {task.partition(":")[0] for task in example.tasks}
    # The cluster of the tests is small; nothing else is changed.
    job = tony.submit(*words, *conf({f"tony.{role}.memory": MEMORY for role in roles}))
    final = job.wait(150)
    told = "\n".join(f"{task}: {job.log(task)}" for task in example.tasks)
    assert final.outcome == example.outcome, f"{final.reason}\n{told}"
    assert {task.task for task in final.tasks} >= set(example.tasks)
    if example.because:
        assert example.because in job.log("worker:0")
    for task, text in example.says.items():
        assert text in job.log(task), told


def venv(path: Path, python: str) -> None:
    """What stands for a virtual environment in a zip: programs in it, none of them executable."""
    folder = python.rpartition("/")[0]
    with zipfile.ZipFile(path, "w") as archive:
        runs = zipfile.ZipInfo(python)
        runs.external_attr = 0o755 << 16
        archive.writestr(runs, '#!/bin/sh\nexec python3 "$@"\n')
        archive.writestr(f"{folder}/activate", f'export PATH="$PWD/venv/{folder}:$PATH"\n')
        archive.writestr(f"{folder}/ray", RAY)
