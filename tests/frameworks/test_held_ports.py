"""Ports that the agent holds until a framework's server has bound them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.howdah import ended_at_last, job_file, start

TENSORFLOW = """
import json, os, socket
import tensorflow as tf
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
port = int(config["cluster"]["worker"][index].rpartition(":")[2])
try:
    socket.socket().bind(("127.0.0.1", port))
except OSError as error:
    print("held:", error, flush=True)
server = tf.distribute.Server(config["cluster"], job_name="worker", task_index=index)
with socket.create_connection(("127.0.0.1", port), timeout=10):
    print("bound", flush=True)
"""
JAX = """
import os, socket
import jax
host, port = os.environ["JAX_COORDINATOR_ADDRESS"].rsplit(":", 1)
if os.environ["JAX_PROCESS_ID"] == "0":
    try:
        socket.socket().bind(("127.0.0.1", int(port)))
    except OSError as error:
        print("held:", error, flush=True)
jax.distributed.initialize()
print("devices", jax.device_count(), flush=True)
"""


@pytest.mark.timeout(180)
@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_tensorflows_server_binds_the_port_that_the_agent_still_holds(tmp_path: Path) -> None:
    with ended_at_last():
        workers = {"worker": {"instances": 2}}
        run = start(
            "run", str(job_file(tmp_path, TENSORFLOW, framework="tensorflow", roles=workers))
        )
        assert run.end(120) == 0, run.text + run.told
    assert run.text.count("held:") == 2 and run.text.count("bound") == 2


@pytest.mark.timeout(180)
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
def test_jaxs_service_binds_the_port_that_the_agent_still_holds(tmp_path: Path) -> None:
    with ended_at_last():
        workers = {"worker": {"instances": 2, "env": {"JAX_PLATFORMS": "cpu"}}}
        run = start("run", str(job_file(tmp_path, JAX, framework="jax", roles=workers)))
        assert run.end(120) == 0, run.text + run.told
    assert run.text.count("held:") == 1 and run.text.count("devices 2") == 2
