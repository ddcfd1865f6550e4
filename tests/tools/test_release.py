"""`tools/release` on a small checkout of its own, and the bill of materials of this one."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools/release"
CHANGES = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-26\n\n- It is there.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One that could be released, but for its checks."""
    (tmp_path / "src/howdah").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    shutil.copy(SCRIPT, tmp_path / "tools/release")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "howdah"\nversion = "1.2.3"\n')
    (tmp_path / "src/howdah/version.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / "Makefile").write_text("check:\n\t@echo checked\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "made")


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, folder / "tools/release"]
    # A make below another one says which folders it enters.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_what_agrees_can_be_built(checkout: Path) -> None:
    run = release(checkout)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == [
        "checked",
        "release: 1.2.3 can be built: tools/release --build",
    ]


def test_everything_that_does_not_agree_is_said_before_anything_runs(checkout: Path) -> None:
    (checkout / "src/howdah/version.py").write_text('__version__ = "1.2.2"\n')
    changes = CHANGES.replace("1.2.3", "1.2.2").replace("## [1.2.2]", "- New.\n\n## [1.2.2]")
    (checkout / "CHANGELOG.md").write_text(changes)
    run = release(checkout)
    assert (run.returncode, run.stdout) == (1, "")
    said = run.stderr.splitlines()
    assert len(said) == 3
    assert "the tree is not clean (2 files)" in said[0]
    assert "pyproject.toml has version 1.2.3, src/howdah/version.py 1.2.2" in said[1]
    assert "CHANGELOG.md has no section '## [1.2.3] - YYYY-MM-DD'" in said[2]


def test_a_version_is_released_once_and_says_all_its_changes(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.3")
    (checkout / "CHANGELOG.md").write_text(CHANGES.replace("## [1.2.3]", "- New.\n\n## [1.2.3]"))
    commit(checkout)
    said = release(checkout).stderr.splitlines()
    assert len(said) == 2
    assert "changes under [Unreleased]" in said[0]
    assert "the tag v1.2.3 is another commit" in said[1]


def test_the_bill_of_materials_has_what_is_installed_with_its_digests() -> None:
    tool = loaded()
    bill = tool.bill_of_materials("1.2.3", "0" * 64, 1_764_150_000)
    assert bill == tool.bill_of_materials("1.2.3", "0" * 64, 1_764_150_000)
    by_name = {each["name"]: each for each in bill["components"]}
    assert by_name["msgspec"]["scope"] == "required"
    assert by_name["pyarrow"]["scope"] == "optional"
    assert by_name["h11"]["externalReferences"][0]["hashes"]
    assert by_name["uPlot"]["hashes"]
    assert "pytest" not in by_name and "howdah" not in by_name
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    told = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    own = told["pkg:pypi/howdah@1.2.3"]
    assert by_name["click"]["bom-ref"] in own and by_name["uPlot"]["bom-ref"] in own
    assert {each for on in told.values() for each in on} <= set(refs)


def test_markers_are_read_as_installers_read_them() -> None:
    holds = loaded().holds
    assert holds("python_version >= '3.9' and sys_platform != 'none'", frozenset())
    assert not holds("python_version < '3.9'", frozenset())  # as numbers: 3.11 is no less
    assert not holds('extra == "gpu"', frozenset())
    assert holds('(os_name == "x" or extra == "gpu")', frozenset({"gpu"}))


def loaded() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("release", str(SCRIPT))
    spec = importlib.util.spec_from_loader("release", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
