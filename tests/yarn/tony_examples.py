"""TonY's example folders (``tony-examples`` of TonY 0.5.3), as jobs of the same shape.

Each has the keys of its folder's ``tony.xml`` and the arguments of its README, and a program of ours that asks
of its surroundings what the example's asks: by the same variables, over the same connections. The examples
themselves fetch data and need frameworks of their time. `test_tony_examples` runs them all;
``docs/generate_tony.py`` makes a table of them.
"""

from __future__ import annotations

import msgspec


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One ``tony.xml`` of an example folder."""

    folder: str
    program: str
    keys: dict[str, str]
    arguments: tuple[str, ...] = ()
    """Besides ``-src_dir``, ``-conf_file`` and ``-executes``."""
    does: str
    """What Howdah makes of it, for the table."""
    outcome: str = "succeeded"
    """``refused`` before it is submitted, or how the job ends."""
    because: str = ""
    """Of one that does not succeed: what the user reads."""
    note: str = ""
    files: dict[str, str] = {}
    """In the source folder. The first one is the program."""
    tasks: tuple[str, ...] = ()
    """All of them."""
    says: dict[str, str] = {}
    """By task: what it prints."""
    venv: str = ""
    """Where ``-python_venv`` has its interpreter."""


_OPEN = {"tony.application.security.enabled": "false"}
_MEET = """
import json, os, socket, sys, time

def serve(address, count):
    # As TensorFlow listens: the port stays held until it does.
    with socket.create_server((address[0], int(address[1])), reuse_port=True) as server:
        for _ in range(count):
            server.accept()[0].sendall(b"hello")

def call(address):
    while True:
        try:
            with socket.create_connection(address, timeout=30) as connection:
                return connection.recv(5).decode()
        except ConnectionRefusedError:
            time.sleep(0.1)
"""
_PS = (
    _MEET
    + """
cluster = json.loads(os.environ["CLUSTER_SPEC"])
ps, workers = cluster["ps"], cluster["worker"]
job, index = os.environ["JOB_NAME"], int(os.environ["TASK_INDEX"])
if job == "ps":
    serve(ps[index].split(":"), len(workers))
    time.sleep(600)
print("ps says", call(tuple(ps[0].split(":"))), sys.argv[1:])
if index == 0:
    with socket.create_server(("", int(os.environ["TB_PORT"]))):
        print("TensorBoard has its port")
"""
)
_CONFIG = """
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
print(len(config["cluster"]["worker"]), "workers,", config["task"]["type"], config["task"]["index"], sys.argv[1:])
"""
_PYTORCH = (
    _MEET
    + """
place, rank, world = os.environ["INIT_METHOD"], int(os.environ["RANK"]), int(os.environ["WORLD"])
scheme, _, address = place.partition("://")
host, port = address.split(":")
if rank == 0:
    serve((host, port), world - 1)
else:
    print("rank 0 says", call((host, port)))
print(scheme, "rank", rank, "of", world)
"""
)
_MXNET = (
    _MEET
    + """
role, root = os.environ["DMLC_ROLE"], (os.environ["DMLC_PS_ROOT_URI"], os.environ["DMLC_PS_ROOT_PORT"])
servers, workers = int(os.environ["DMLC_NUM_SERVER"]), int(os.environ["DMLC_NUM_WORKER"])
if role == "scheduler":
    serve(root, servers + workers)
else:
    print("scheduler says", call(root))
print(role, servers, workers, os.environ["DMLC_USE_KUBERNETES"], os.environ["PS_VERBOSE"], sys.argv[1:])
"""
)
_HOROVOD = """
import os, urllib.request
env = os.environ
place = f"http://{env['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{env['HOROVOD_GLOO_RENDEZVOUS_PORT']}/global/{env['HOROVOD_RANK']}"
urllib.request.urlopen(urllib.request.Request(place, data=b"here", method="PUT"), timeout=30).read()
answer = urllib.request.urlopen(place, timeout=30).read().decode()
print("rank", env["HOROVOD_RANK"], "of", env["HOROVOD_SIZE"], "is", answer)
"""
_RAY_KEYS = {
    "tony.worker.instances": "2",
    "tony.worker.memory": "3g",
    "tony.head.instances": "1",
    "tony.head.command": "chmod +x $PWD/venv/bin/*; source $PWD/venv/bin/activate; "
    "ray start --head --redis-port=`./discovery.py --head-port`; python example.py; ray stop",
    "tony.worker.command": "chmod +x $PWD/venv/bin/*; source $PWD/venv/bin/activate; "
    "ray start --address=`./discovery.py --head-address` --block; ray stop",
}
_DISCOVERY = """\
#!/usr/bin/env python3
import json, os, sys
head = json.loads(os.environ["TF_CONFIG"])["cluster"]["head"][0]
print(head if sys.argv[1] == "--head-address" else head.split(":")[-1])
"""
RAY = """\
#!/usr/bin/env python3
# Stands for Ray: a head that counts who has joined, and nodes that stay until it stops.
import os, signal, socket, subprocess, sys, time
HEAD = '''
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as server:
    joined = []
    print(flush=True)
    while True:
        joined.append(server.accept()[0])
        with open("joined", "a") as file:
            file.write("one more\\\\n")
'''
words = " ".join(sys.argv[1:])
if words == "stop":
    if os.path.exists("head.pid"):
        os.kill(int(open("head.pid").read()), signal.SIGKILL)
elif "--head" in words:
    port = words.partition("--redis-port=")[2].split()[0]
    head = subprocess.Popen([sys.executable, "-c", HEAD, port], stdout=subprocess.PIPE)
    head.stdout.readline()
    open("head.pid", "w").write(str(head.pid))
else:
    host, port = words.partition("--address=")[2].split()[0].split(":")
    while True:
        try:
            with socket.create_connection((host, int(port))) as connection:
                connection.recv(1)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
        except ConnectionResetError:
            break
    print("the head has stopped")
"""
_RAY_EXAMPLE = """
import json, os, time
workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
while not os.path.exists("joined") or len(open("joined").readlines()) < workers:
    time.sleep(0.1)
print(workers + 1, "nodes: Success!")
"""
_GCP = _OPEN | {
    "tony.worker.instances": "2",
    "tony.ps.instances": "1",
    "tony.worker.gpus": "0",
}
_GCP_ARGUMENTS = (
    "--python_venv=tf.zip",
    "--python_binary_path=tf/bin/python3.5",
    '--task_params="--steps 1500 --working_dir out"',
)
_VENV = ("--python_venv=venv.zip", "--python_binary_path=venv/bin/python")

EXAMPLES = (
    Example(
        folder="mnist-tensorflow",
        program="mnist_distributed.py",
        keys=_OPEN | {"tony.worker.instances": "3", "tony.worker.memory": "4g"},
        arguments=(*_VENV, '--task_params="--steps 1000 --working_dir out"'),
        venv="venv/bin/python",
        does="3 `worker`; `CLUSTER_SPEC` has no `ps`, as its README's `tony.xml` has none, and the program asks for one",
        outcome="failed",
        because="KeyError: 'ps'",
        note="as with TonY; add `tony.ps.instances`, and it runs (see `tony-in-gcp`)",
        files={"mnist_distributed.py": _PS},
        tasks=("worker:0", "worker:1", "worker:2"),
    ),
    Example(
        folder="mnist-tensorflow",
        program="mnist_estimator_distributed.py",
        keys=_OPEN | {"tony.worker.instances": "3", "tony.worker.memory": "4g"},
        arguments=(*_VENV, '--task_params="--learning_rate 0.001 --model_dir out --dropout 0.5"'),
        venv="venv/bin/python",
        does="3 `worker` with `TF_CONFIG`",
        note="the Estimator itself asks for a `chief` (`tony.chief.instances`), and TensorFlow 2.16 and newer have none",
        files={"mnist_estimator_distributed.py": _CONFIG},
        tasks=("worker:0", "worker:1", "worker:2"),
        says={
            "worker:2": "3 workers, worker 2 ['--learning_rate', '0.001', '--model_dir', 'out', '--dropout', '0.5']"
        },
    ),
    Example(
        folder="mnist-tensorflow",
        program="mnist_keras_distributed.py",
        keys=_OPEN | {"tony.worker.instances": "3", "tony.worker.memory": "4g"},
        arguments=(*_VENV, '--task_params="--working-dir out"'),
        venv="venv/bin/python",
        does="3 `worker` with `TF_CONFIG`",
        files={"mnist_keras_distributed.py": _CONFIG},
        tasks=("worker:0", "worker:1", "worker:2"),
        says={"worker:1": "3 workers, worker 1 ['--working-dir', 'out']"},
    ),
    Example(
        folder="mnist-pytorch",
        program="mnist_distributed.py",
        keys=_OPEN
        | {
            "tony.ps.instances": "0",
            "tony.worker.instances": "2",
            "tony.application.framework": "pytorch",
        },
        arguments=("--python_venv=venv.zip", "--python_binary_path=bin/python"),
        venv="bin/python",
        does="2 `worker`, no `ps`; `INIT_METHOD`, `RANK`, `WORLD`, and PyTorch's own names",
        note="its default `--backend tcp` is gone from PyTorch: `-task_params '--backend gloo'`",
        files={"mnist_distributed.py": _PYTORCH},
        tasks=("worker:0", "worker:1"),
        says={"worker:0": "tcp rank 0 of 2", "worker:1": "rank 0 says hello"},
    ),
    Example(
        folder="horovod-on-tony",
        program="tensorflow2_mnist.py",
        keys={
            "tony.worker.instances": "4",
            "tony.worker.memory": "3g",
            "tony.docker.enabled": "true",
            "tony.docker.containers.image": "docker.io/bigdata/horovod-test-1:v1",
            "tony.application.framework": "horovod",
        },
        arguments=("--python_binary_path=python3",),
        does="4 `worker` in the image, and a rendezvous server of Howdah's own",
        files={"tensorflow2_mnist.py": _HOROVOD},
        tasks=("worker:0", "worker:1", "worker:2", "worker:3"),
        says={f"worker:{index}": f"rank {index} of 4 is here" for index in range(4)},
    ),
    Example(
        folder="horovod-on-tony",
        program="tensorflow2_mnist.py, with horovod_debug_driver.py",
        keys={
            "tony.worker.instances": "4",
            "tony.worker.memory": "3g",
            "tony.docker.enabled": "true",
            "tony.docker.containers.image": "docker.io/bigdata/horovod-test-1:v1",
            "tony.application.framework": "horovod",
            "tony.horovod.driver.mode.debug": "true",
            "tony.driver.instances": "1",
            "tony.driver.vcores": "2",
            "tony.application.untracked.jobtypes": "driver",
            "tony.driver.command": "python horovod_debug_driver.py -t -p 9999",
        },
        arguments=("--python_binary_path=python3",),
        does="its driver tells TonY a port in a file, which nobody reads here",
        outcome="refused",
        because="have the role driver serve Horovod's rendezvous on $HOWDAH_PORT and leave the key out",
        files={"tensorflow2_mnist.py": _HOROVOD},
    ),
    Example(
        folder="linearregression-mxnet",
        program="mxnet_dist_ex.py",
        keys=_OPEN
        | {
            "tony.scheduler.instances": "1",
            "tony.server.instances": "2",
            "tony.ps.instances": "0",
            "tony.worker.instances": "2",
            "tony.worker.vcores": "2",
            "tony.worker.memory": "4G",
            "tony.application.framework": "mxnet",
            "tony.application.name": "mxnet - linearregression",
        },
        arguments=(
            "--python_venv=./MxNetPython3.5.zip",
            "--shell_env=DMLC_USE_KUBERNETES=1",
            "--shell_env=PS_VERBOSE=0",
            '--task_params="--param1 --param2"',
            "--python_binary_path=Python3.5/bin/python3",
        ),
        venv="Python3.5/bin/python3",
        does="1 `scheduler`, 2 `server`, 2 `worker` with `DMLC_…`; spaces in the name become `-`",
        files={"mxnet_dist_ex.py": _MXNET},
        tasks=("scheduler:0", "server:0", "server:1", "worker:0", "worker:1"),
        says={
            "server:1": "server 2 2 1 0 ['--param1', '--param2']",
            "worker:0": "scheduler says hello",
        },
    ),
    Example(
        folder="ray-on-tony",
        program="commands of `head` and `worker`",
        keys=_RAY_KEYS,
        arguments=("--python_venv=venv.zip",),
        venv="bin/python",
        does="1 `head`, 2 `worker`, each with a command of several lines for `bash`; `discovery.py` finds the head in "
        "`TF_CONFIG`",
        files={"example.py": _RAY_EXAMPLE, "discovery.py": _DISCOVERY},
        tasks=("head:0", "worker:0", "worker:1"),
        says={"head:0": "3 nodes: Success!", "worker:1": "the head has stopped"},
    ),
    Example(
        folder="tony-in-gcp",
        program="mnist_distributed.py (`TFJob/tony.xml`)",
        keys=_GCP | {"tony.worker.memory": "4g", "tony.ps.memory": "2g"},
        arguments=_GCP_ARGUMENTS,
        venv="tf/bin/python3.5",
        does="2 `worker` and an untracked `ps`; `TB_PORT` for `worker:0`",
        files={"mnist_distributed.py": _PS},
        tasks=("ps:0", "worker:0", "worker:1"),
        says={
            "worker:0": "TensorBoard has its port",
            "worker:1": "ps says hello ['--steps', '1500', '--working_dir', 'out']",
        },
    ),
    Example(
        folder="tony-in-gcp",
        program="mnist_distributed.py (`TFJob/tony_medium.xml`)",
        keys=_GCP | {"tony.worker.memory": "8", "tony.ps.memory": "4"},
        arguments=_GCP_ARGUMENTS,
        venv="tf/bin/python3.5",
        does="8 without a unit is 8 MB, which YARN raised to its smallest container",
        outcome="refused",
        because='roles.worker.memory: "8m" is too little for any program',
        note='write "8g"',
        files={"mnist_distributed.py": _PS},
    ),
)
