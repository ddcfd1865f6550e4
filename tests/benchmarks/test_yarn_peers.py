"""What Howdah is measured against on YARN runs there."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.yarn import bare_command, distributed_shell, timing
from tests.hadoop.cluster import Cluster

pytestmark = pytest.mark.nightly


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An environment that leads to this interpreter."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as made:
        made.add(python, "bin/python")
    return tmp_path / "environment.tar.gz"


def test_distributed_shell_runs_the_program_in_every_container(
    hadoop: Cluster, archive: Path
) -> None:
    with timing.notes() as there:
        told = distributed_shell.submit(
            hadoop, there, 2, python="bin/python", archive=archive, weigh=True
        )
    assert 0 < told.first_ran <= told.last_ran < told.exit
    assert told.master_mib is not None
    assert 20 < told.master_mib < timing.MASTER_MIB


def test_a_bare_command_runs_and_its_submitter_ends(hadoop: Cluster) -> None:
    with timing.notes() as there:
        told = bare_command.submit(hadoop, there, 1, python="python3")
    assert 0 < told.first_ran < told.exit
