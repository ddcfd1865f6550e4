"""What TensorFlowOnSpark's own tests see, without Spark."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from howdah.agent import ports
from howdah.compat.tensorflowonspark import TFNode, running


@pytest.mark.parametrize("default_fs", ["hdfs://", "viewfs://", "hdfs:///"])
def test_a_default_file_system_without_a_host_keeps_its_slashes(default_fs: str) -> None:
    ctx = SimpleNamespace(defaultFS=default_fs, working_dir="/w", user="ann")
    scheme = default_fs.partition(":")[0]
    assert TFNode.hdfs_path(ctx, "/foo/bar") == f"{scheme}:///foo/bar"
    assert TFNode.hdfs_path(ctx, "foo/bar") == f"{scheme}:///user/ann/foo/bar"


def test_a_port_that_the_agent_holds_is_kept_for_the_program_too() -> None:
    """As of nodes whose servers of TensorFlow share it; who does not share it is kept away."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with (
        ports._hold(port),
        running._bound(f"host:{port}") as kept,
        socket.socket() as other,
        pytest.raises(OSError, match="in use"),
    ):
        assert kept.getsockname()[1] == port
        other.bind(("0.0.0.0", port))
