"""The container's folder in what a coordinator wrote that does not know it."""

from __future__ import annotations

from howdah.agent.here import in_launch, in_prepare, in_start
from howdah.agent.launch import HERE, AgentLaunch
from howdah.core.messages import Task
from howdah.wire.messages import Prepare, ProcessSpec, Start

WORKER = Task("worker", 0)


def test_arguments_and_environment_of_programs_are_replaced() -> None:
    order = Start(
        task=WORKER,
        attempt=1,
        generation=1,
        processes=(
            ProcessSpec(
                argv=(f"{HERE}/env/bin/python", "train.py", f"--data={HERE}/data:{HERE}/more"),
                env={"PATH": f"{HERE}/bin:/usr/bin", "HOME": "/home/someone"},
            ),
        ),
    )
    (program,) = in_start(order, "/c").processes
    assert program.argv == ("/c/env/bin/python", "train.py", "--data=/c/data:/c/more")
    assert program.env == {"PATH": "/c/bin:/usr/bin", "HOME": "/home/someone"}


def test_places_of_checkpoints_and_outputs_are_replaced() -> None:
    order = Prepare(
        task=WORKER,
        attempt=1,
        generation=1,
        ports=1,
        checkpoint={"store": f"file://{HERE}/store", "keep": 3, "ignore": ["*.tmp", HERE]},
        outputs={"folders": [f"{HERE}/out"], "store": "hdfs://nn/out"},
    )
    order = in_prepare(order, "/c")
    assert order.checkpoint == {"store": "file:///c/store", "keep": 3, "ignore": ["*.tmp", "/c"]}
    assert order.outputs == {"folders": ["/c/out"], "store": "hdfs://nn/out"}


def test_a_launch_file_speaks_of_its_own_working_folder() -> None:
    launch = AgentLaunch(
        job_id="job",
        container_id="c1",
        coordinator_file=None,
        ca="ca",
        certificate="c",
        key="k",
        work_dir="/c",
        log_dir="/logs",
        source=f"{HERE}/source",
        python_path=f"{HERE}/python",
    )
    launch = in_launch(launch)
    assert (launch.source, launch.python_path, launch.log_dir) == (
        "/c/source",
        "/c/python",
        "/logs",
    )


def test_what_has_no_such_place_is_left_as_it_is() -> None:
    order = Prepare(task=WORKER, attempt=1, generation=1, ports=1, checkpoint={"store": "/s"})
    assert in_prepare(order, "/c") is order
