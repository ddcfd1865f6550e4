"""The call of a function job, as a rank makes it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from howdah.agent.outcome import defect
from howdah.client.submission import function_script


@pytest.fixture
def call(tmp_path: Path) -> Callable[[Any], subprocess.CompletedProcess[str]]:
    folder = tmp_path / "function"
    folder.mkdir()
    (tmp_path / "results").mkdir()
    script = folder / "call.py"
    script.write_bytes(Path(function_script.__file__).read_bytes())

    def made(function: Any) -> subprocess.CompletedProcess[str]:
        sent = {"path": [], "call": cloudpickle.dumps((function, (), {}))}
        (folder / "call.pkl").write_bytes(pickle.dumps(sent))
        env = {**os.environ, "HOWDAH_RANK": "0"}
        return subprocess.run(
            [sys.executable, script], env=env, capture_output=True, text=True, check=False
        )

    return made


def test_a_value_comes_back_as_it_was(call: Any, tmp_path: Path) -> None:
    assert call(lambda: {"a": [1, 2]}).returncode == 0
    assert pickle.loads((tmp_path / "results" / "0.pkl").read_bytes()) == (True, {"a": [1, 2]})


def test_a_value_that_cannot_be_pickled_is_told_and_tried_once(call: Any, tmp_path: Path) -> None:
    done = call(threading.Lock)
    assert done.returncode == 1
    found = defect(done.stderr.splitlines(), str(tmp_path), sys.executable)
    assert found is not None and found.certain
    assert "returned a lock in rank 0, which cannot be sent back: TypeError" in found.text
    ok, trace, _ = pickle.loads((tmp_path / "results" / "0.pkl").read_bytes())
    assert not ok and "PicklingError" in trace and "Return what can be pickled" in trace
