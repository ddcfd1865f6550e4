"""The framework that a function's own code says it uses."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from howdah.spark.framework_inference import infer

WHOLE = """
import torch
def helper(): return torch.ones(1)
class Net(torch.Module): pass
class Plain:
    def fit(self): return torch.ones(1)
def unused(): import tensorflow
"""
"""A program's module; each function is put behind it."""

CASES = {
    "def train(args, ctx): pass": "command",
    "def train(args, ctx):\n  import torch.distributed as dist": "pytorch",
    "def train(args, ctx):\n  from torch.nn import Linear": "pytorch",
    "def train(args, ctx):\n  import lightning, torch": "pytorch",
    "def train(args, ctx):\n  import tensorflow as tf": "tensorflow",
    "def train(args, ctx):\n  from keras import layers": "tensorflow",
    "def train(args, ctx):\n  import keras, jax": "jax",
    "def train(args, ctx):\n  import keras\n  import torch": "pytorch",
    "def train(args, ctx):\n  import horovod.torch, torch": "horovod",
    "def train(args, ctx):\n  import jax\n  import tensorflow": "command",
    "def train(args, ctx):\n  def step():\n    import jax\n  step()": "jax",
    "def train(args, ctx): return torch.ones(1)": "pytorch",
    "def train(args, ctx): return helper()": "pytorch",
    "def train(args, ctx): return Net()": "pytorch",
    "def train(args, ctx): return Plain().fit()": "pytorch",
    "def train(args, ctx, kind=Net): pass": "pytorch",
    "def train(args, ctx): return mine.loop()": "pytorch",
    "def train(args, ctx): return mine.other": "command",
    "def train(args, ctx): return recursive()\ndef recursive(): return train(1, 2)": "command",
    "train = lambda args, ctx: helper()": "pytorch",
    "import functools\ntrain = functools.partial(lambda fn, args, ctx: fn(), helper)": "pytorch",
    "train = (lambda fn: lambda args, ctx: fn())(helper)": "pytorch",
    "train = Plain().fit": "pytorch",
}


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """``train`` of a program that imports a stand-in for torch, whose ``mine`` is a module of its own."""
    torch = ModuleType("torch")
    exec("class Module: pass\ndef ones(n): pass", vars(torch))
    monkeypatch.setitem(sys.modules, "torch", torch)

    def compiled(text: str) -> Any:
        mine = ModuleType("mine")
        exec(WHOLE.replace("helper", "loop") + "\nother = 1", vars(mine))
        names: dict[str, Any] = {"__name__": "program", "mine": mine}
        exec(f"{WHOLE}\n{text}", names)
        return names["train"]

    return compiled


@pytest.mark.parametrize(("text", "framework"), CASES.items(), ids=CASES)
def test_the_framework_is_the_one_that_the_code_uses(
    program: Callable[[str], Any], text: str, framework: str
) -> None:
    assert infer(program(text)).framework == framework


def test_what_is_assumed_is_told_with_the_reason(program: Callable[[str], Any]) -> None:
    assert infer(program("def train(args, ctx): pass")).text == ""
    assert infer(program("def train(args, ctx): import torch")).text == (
        'framework="pytorch" is assumed, as the function uses torch; give framework= for another'
    )
    both = infer(program("def train(args, ctx): import torch, tensorflow"))
    assert both.text.startswith("The function uses tensorflow and torch: no framework is assumed")


def test_a_decorated_function_counts_as_what_it_is() -> None:
    def train(args: Any, ctx: Any) -> None:
        import torch  # noqa: F401

    @functools.wraps(train)
    def around(args: Any, ctx: Any) -> None:
        return train(args, ctx)

    assert infer(around).framework == "pytorch"
