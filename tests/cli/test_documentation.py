"""The page about the Python API names everything there is, and its examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import howdah
from howdah import aio

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_names_everything_public() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in howdah.__all__:
        assert f"howdah.{name}" in text, name
    named = set(re.findall(r"\bhowdah\.([A-Za-z]\w*)", text)) - {"aio", "task"}
    assert named <= set(howdah.__all__)


def test_every_public_name_is_there_and_typed() -> None:
    for name in howdah.__all__:
        assert getattr(howdah, name) is not None
    source = Path(howdah.__file__).read_text(encoding="utf-8")
    typed = source.partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    for name in howdah.__all__:
        assert re.search(rf"\b{name}\b", typed), f"{name} is not imported for type checkers"
    assert set(aio.__all__) <= set(howdah.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        howdah.nothing  # noqa: B018


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_run(number: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('epoch 1: loss 0.31')")
    (tmp_path / "job.toml").write_text('command = "python train.py"\n[roles.worker]\n')
    (tmp_path / "example.py").write_text(EXAMPLES[number])
    result = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
