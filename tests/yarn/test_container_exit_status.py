"""Why a container ended, from what YARN says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from howdah.backends.base import RoleResources
from howdah.backends.yarn.client import application_end
from howdah.backends.yarn.master import container_exit_status
from howdah.backends.yarn.master.container_table import ContainerTable
from howdah.backends.yarn.master.nodes import Nodes
from howdah.backends.yarn.master.outstanding_requests import OutstandingRequests
from howdah.core.messages import ContainerEndKind as Kind
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, NodeId
from howdah.hadoop.protos import yarn
from howdah.storage.layout import JobMeta

FAILED = """[2026-11-21 15:00:01.123]Exception from container-launch.
Container id: container_1_0001_01_000002
Exit code: 127

[2026-11-21 15:00:01.125]Container exited with a non-zero exit code 127. Error file: prelaunch.err.
Last 4096 bytes of prelaunch.err :
Last 4096 bytes of stderr :
/bin/bash: line 1: no-such-python: command not found


[2026-11-21 15:00:01.126]Container exited with a non-zero exit code 127. Error file: prelaunch.err.
"""


@pytest.mark.parametrize(
    ("status", "diagnostics", "kind"),
    [
        (0, "", Kind.EXITED),
        (1, "", Kind.EXITED),
        (137, "Killed by external signal", Kind.EXITED),
        (-100, "Container released by application", Kind.RELEASED),
        (-100, "Container released on a *lost* node", Kind.NODE_LOST),
        (-101, "", Kind.NODE_LOST),
        (-102, "Container preempted by scheduler", Kind.PREEMPTED),
        (-103, "", Kind.OUT_OF_MEMORY),
        (-104, "is running 12B beyond the 'PHYSICAL' memory limit", Kind.OUT_OF_MEMORY),
        (-106, "", Kind.PREEMPTED),
        (-1000, "File does not exist: hdfs://n/x", Kind.LAUNCH_FAILED),
        (127, FAILED, Kind.LAUNCH_FAILED),
        (container_exit_status.BOOT_FAILED, "", Kind.LAUNCH_FAILED),
    ],
)
def test_exit_statuses_have_their_meaning(status: int, diagnostics: str, kind: Kind) -> None:
    assert container_exit_status.kind(status, diagnostics, releasing=False) is kind


def test_whatever_ends_a_container_we_gave_back_it_was_released() -> None:
    for status in (0, 1, 137, 143, -100, -105):
        assert container_exit_status.kind(status, "", releasing=True) is Kind.RELEASED
    assert container_exit_status.kind(-104, "", releasing=True) is Kind.OUT_OF_MEMORY


def test_diagnostics_are_shown_without_time_stamps_and_headings() -> None:
    assert container_exit_status.detail(127, FAILED) == (
        "its command was not found: Exit code: 127\n"
        "/bin/bash: line 1: no-such-python: command not found"
    )


def test_stack_traces_are_left_out_and_the_end_is_kept() -> None:
    trace = "java.io.IOException: Filesystem closed\n\tat org.apache.Foo.bar(Foo.java:12)\n"
    assert container_exit_status.tidy(trace) == "java.io.IOException: Filesystem closed"
    assert container_exit_status.tidy("x" * 10_000 + "END").endswith("END")
    assert len(container_exit_status.tidy("x" * 10_000)) == container_exit_status.DETAIL_CHARS


OVER_MEMORY = """[2026-11-23 14:52:48.123]Container [pid=9786,containerID=container_1_0002_01_000002] is \
running 11075584B beyond the 'PHYSICAL' memory limit. Current usage: 2.0 GB of 2 GB physical memory used; \
10.2 GB of 4.2 GB virtual memory used. Killing container.
Dump of the process-tree for container_1_0002_01_000002 :
\t|- PID PPID PGRPID SESSID CMD_NAME USER_MODE_TIME(MILLIS) SYSTEM_TIME(MILLIS) VMEM_USAGE(BYTES) RSSMEM_USAGE(PAGES) FULL_CMD_LINE
\t|- 9786 9784 9786 9786 (howdah-agent) 11 18 110510080 7342 ./runtime/bin/python3 -I ./howdah/boot.py
\t|- 9858 9807 9858 9858 (python) 299 42 3643166720 186165 /opt/python/bin/python -u train.py
\t|- 27517 27515 27513 27407 (cc1plus) 740 71 803966976 165210 /usr/lib/gcc/cc1plus -quiet -I /opt/python/lib/includes

[2026-11-23 14:52:48.130]Container killed on request. Exit code is 137
"""


def test_what_used_the_memory_is_told_in_one_line() -> None:
    assert container_exit_status.detail(-104, OVER_MEMORY) == (
        "YARN ended it over its memory: 2.0 GB of 2 GB physical memory used; 10.2 GB of 4.2 GB virtual "
        "memory used, most of it by python -u train.py (52%), cc1plus -quiet -I /opt/python/lib/inclu… "
        "(46%)"
    )


def test_an_unknown_status_is_named() -> None:
    assert container_exit_status.detail(42, "") == "exit status 42"


def test_a_master_whose_token_is_worthless_is_told_so_in_words() -> None:
    ended = application_end.ApplicationEnd(
        application_id="application_1795200000000_0001",
        state="FAILED",
        diagnostics="Application application_1795200000000_0001 failed 2 times due to AM Container "
        "for appattempt_1795200000000_0001_000002 exited with  exitCode: -1000\n"
        "Failing this attempt.Diagnostics: [2026-11-21 17:37:45.039]Token for real user: , can't be "
        "found in cache\nFor more detailed output, check the application tracking page: "
        "http://rm:8088/. Failing the application.",
    )
    meta = JobMeta(job_id="j", user="ada", submitted=1.0, backend="yarn")
    told = application_end.view(meta, "j", "command", "hdfs://nn/j", ended, ())
    assert told.reason == (
        "no new master could be started: HDFS does not accept the job's delegation token any more: "
        "Token for real user: , can't be found in cache"
    )
    assert "rerun --resume" in told.advice


def test_a_master_on_a_node_whose_clock_is_far_ahead_is_told_so_in_words() -> None:
    ended = application_end.ApplicationEnd(
        application_id="application_1795200000000_0001",
        state="FAILED",
        diagnostics="Application application_1795200000000_0001 failed 2 times due to Error launching "
        "appattempt_1795200000000_0001_000002. Got exception: "
        "org.apache.hadoop.yarn.exceptions.YarnException: Unauthorized request to start container. \n"
        "This token is expired. current time is 1795202000000 found 1795200600000\n"
        "Note: System times on machines may be out of sync. Check system time and time zones.\n"
        ". Failing the application.",
    )
    meta = JobMeta(job_id="j", user="ada", submitted=1.0, backend="yarn")
    told = application_end.view(meta, "j", "command", "hdfs://nn/j", ended, ())
    assert told.reason == (
        "the master could not be started 2 times: the clock of a node is more than ten minutes ahead of "
        "the ResourceManager's"
    )
    assert "chrony" in told.advice


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (125, True),  # docker: no such image
        (container_exit_status.BOOT_FAILED, True),
        (-1000, False),  # nothing ran
        (-104, False),  # the agent has told what its programs wrote
    ],
)
def test_a_container_that_failed_is_told_with_the_command_that_shows_what_it_wrote(
    status: int, told: bool
) -> None:
    """Before its agent begins, only YARN has that."""
    attempt = AttemptId(ApplicationId(1795200000000, 1), 1)
    identity = ContainerId(attempt, 2)
    events: list[Any] = []

    async def end() -> None:
        roles = {"worker": RoleResources(memory_mb=64, cores=1)}
        table = ContainerTable(
            OutstandingRequests(roles),
            roles,
            Nodes(Configuration({}), "ann"),
            events.append,
            lambda: None,
            attempt=1,
            with_port=False,
            notice_s=1.0,
        )
        begun = yarn.RegisterApplicationMasterResponseProto()
        begun.containers_from_previous_attempts.add(
            id=identity.to_proto(), nodeId=NodeId("node7", 1).to_proto()
        )
        table.take_over(begun)
        answer = yarn.AllocateResponseProto(response_id=1)
        answer.completed_container_statuses.add(
            container_id=identity.to_proto(),
            state=3,
            exit_status=status,
            diagnostics="no such image",
        )
        table.answered(answer)
        await table.all_ended(10)
        await asyncio.sleep(0)  # the end is told in the next turn

    asyncio.run(end())
    (ended,) = events
    command = (
        "yarn logs -applicationId application_1795200000000_0001 "
        "-containerId container_1795200000000_0001_01_000002"
    )
    assert "no such image" in ended.detail
    assert (f"All that it wrote: {command}" in ended.detail) == told
