"""Each rule at its thresholds, where a real run would need hardware or hours."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from howdah.cli.display.formatting import Paint
from howdah.cli.display.summary import summary
from howdah.client.advice import (
    RULES,
    Evidence,
    Finding,
    RestartCause,
    RoleUse,
    Severity,
    StartPhase,
    advise,
)
from howdah.client.advice_inputs import _Journal
from howdah.core import messages as m
from howdah.core.messages import Task
from howdah.spec.model import Job
from howdah.storage import journal
from tests.unit.cli.views import SUCCEEDED


def found(**use: object) -> list[Finding]:
    """What is found of one role's use."""
    role = {"role": "worker", "tasks": 4, **use}
    return advise(msgspec.convert({"roles": [role], "took_s": 600.0}, Evidence))


@pytest.mark.parametrize(
    ("peak_mb", "severity"),
    [
        (4900, Severity.CRITICAL),
        (5900, Severity.SEVERE),
        (6900, Severity.MODERATE),
        (7900, Severity.LOW),
        (8100, None),
    ],
)
def test_memory_over_asked_has_the_severities_of_tony(
    peak_mb: float, severity: Severity | None
) -> None:
    findings = found(memory_mb=10_000, peak_memory_mb=peak_mb)
    assert [each.severity for each in findings] == ([] if severity is None else [severity])
    assert all(each.score == 4 * each.severity for each in findings)


def test_little_memory_is_not_over_asked() -> None:
    assert found(memory_mb=2048, peak_memory_mb=10) == []
    assert found(memory_mb=4000, peak_memory_mb=2000) == []


def test_gpus_that_are_idle_are_told_from_those_that_wait_for_input() -> None:
    (idle,) = found(gpus=1, busy_gpus=0.2, cores=4, busy_cores=2.5)
    assert (idle.rule, idle.severity) == ("gpu-idle", Severity.SEVERE)
    (starved,) = found(gpus=1, busy_gpus=0.5, cores=4, busy_cores=3.9)
    assert (starved.rule, starved.change) == ("gpu-starved", "roles.worker.cores = 8")
    assert found(gpus=1, busy_gpus=0.5, cores=4, busy_cores=3.0) == []
    assert found(gpus=1, busy_gpus=None) == []


def test_the_longest_phase_of_a_slow_start_says_what_to_do() -> None:
    slow = Evidence(
        took_s=90.0, start=(StartPhase("containers", 40.0), StartPhase("programs", 2.0))
    )
    (finding,) = advise(slow)
    assert finding.rule == "slow-start"
    assert "containers 40.0 s, programs 2.0 s" in finding.text
    assert "another `queue`" in finding.change
    assert "queue" in Job.__struct_fields__
    assert advise(msgspec.structs.replace(slow, took_s=900.0)) == []


def test_the_worst_comes_first_and_nothing_measured_is_nothing_found() -> None:
    assert advise(Evidence()) == []
    findings = found(memory_mb=10_000, peak_memory_mb=1000, cores=8, busy_cores=3.9)
    assert [each.rule for each in findings] == ["memory-over-asked", "cores-idle"]


def test_every_rule_says_what_it_looks_for() -> None:
    assert all(rule.__doc__ for rule in RULES)


def test_the_summary_has_the_three_worst_of_a_job_that_took_a_while() -> None:
    failure = RestartCause(cause="user-code", task="worker:0", what="worker:0 exited", lost_s=40.0)
    evidence = Evidence(
        roles=(RoleUse(role="worker", tasks=1, memory_mb=10_000, peak_memory_mb=9_500),),
        took_s=120.0,
        restarts=(failure,) * 3,
        checkpoints=tuple(range(6)),
        checkpoint_bytes=10**7,
    )
    findings = advise(evidence)
    assert len(findings) == 4
    long = msgspec.structs.replace(SUCCEEDED, submitted=1000.0, finished=1120.0)
    told = "\n".join(summary(long, Paint(False), width=None, findings=findings))
    assert [each.text in told for each in findings] == [True, True, True, False]
    short = msgspec.structs.replace(long, finished=1010.0)
    told = "\n".join(summary(short, Paint(False), width=None, findings=findings))
    assert told.count("→") == 1 and "3 restarts for the same reason" in told


def test_what_a_lost_attempt_took_is_no_part_of_the_start() -> None:
    """Nor is it put down to files that came slowly."""
    task = Task("worker", 0)
    seen = _Journal(0.0)

    def happens(now: float, event: m.AnyEvent) -> None:
        seen.take(journal.EventEntry(seq=1, now=now, event=event))

    def told(now: float, kind: str) -> None:
        record = m.Record(kind=kind, text=kind)
        seen.take(journal.RecordEntry(seq=1, now=now, record=record))

    prepared = m.TaskPrepared(task=task, attempt=1)
    happens(1.0, prepared)
    told(40.0, "generation-ended")
    told(41.0, "restarting")
    happens(42.0, msgspec.structs.replace(prepared, attempt=2))
    told(43.0, "running")
    assert seen.start(reported=44.0) == (StartPhase("preparing", 1.0),)
    assert [each.lost_s for each in seen.restarts] == [41.0]


def test_what_was_saved_while_there_was_no_coordinator_is_not_counted_as_lost() -> None:
    """Its time is not known, but that the tasks went on from it."""
    task = Task("worker", 0)
    for name, begun_with, lost_s in (
        ("000002", "000017 (checksum 8dfdef6e31c0)", 0.0),
        ("000017", "000017 (checksum 8dfdef6e31c0)", 40.0),
        ("000002", "000123 of digits-20270115-080000-k3f9 (checksum 8dfdef6e31c0)", 40.0),
    ):
        restored = m.TaskPrepared(task=task, attempt=2, restored=begun_with)
        seen = _Journal(0.0)
        events: list[Any] = [
            m.TaskStarted(task=task, attempt=1, pids=(1,)),
            m.CheckpointSaved(task=task, attempt=1, name=name),
            m.Record(kind="generation-ended", text=""),
            m.Record(kind="restarting", text=""),
            restored,
        ]
        for now, event in zip((1.0, 10.0, 50.0, 50.0, 51.0), events, strict=True):
            if isinstance(event, m.Record):
                seen.take(journal.RecordEntry(seq=1, now=now, record=event))
            else:
                seen.take(journal.EventEntry(seq=1, now=now, event=event))
        assert [each.lost_s for each in seen.restarts] == [lost_s]


def test_small_checkpoints_may_be_frequent() -> None:
    often = Evidence(took_s=60.0, checkpoints=tuple(range(40)), checkpoint_bytes=99 * 10**5)
    assert advise(often) == []
    (finding,) = advise(msgspec.structs.replace(often, checkpoint_bytes=10**7))
    assert finding.rule == "checkpoint-too-costly"
