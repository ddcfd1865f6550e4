"""What programs report."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.agent.monitoring.reports import Report, ReportedValues, ReportSocket, Web, understand
from howdah.storage import runtime


def said(**document: object) -> Report | None:
    return understand(json.dumps(document).encode())


def test_numbers_are_understood() -> None:
    assert said(step=3, loss=0.5, best=True) == Report(step=3.0, values={"loss": 0.5, "best": 1.0})
    assert said(step=3, total=9) == Report(step=3.0, total=9.0)


def test_what_is_no_finite_number_is_left_out() -> None:
    report = understand(b'{"loss": NaN, "x": Infinity, "note": "hi", "y": [1], "z": 2}')
    assert report == Report(values={"z": 2.0})


def test_a_checkpoint_a_page_and_having_joined_are_understood() -> None:
    assert said(checkpoint=True) == Report(checkpoint=True)
    assert said(joined=True) == Report(joined=True)
    page = {"name": "TensorBoard", "port": 6006, "keeps_prefix": True}
    assert said(web=page) == Report(web=Web(name="TensorBoard", port=6006, keeps_prefix=True))
    assert said(web={"name": "x"}) == Report()


@given(st.binary(max_size=300))
def test_any_bytes_are_a_report_or_none(data: bytes) -> None:
    assert understand(data) is None or isinstance(understand(data), Report)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
    )
)
def test_any_document_is_a_report_or_none(document: object) -> None:
    report = understand(json.dumps(document).encode())
    assert (report is not None) == isinstance(document, dict)


def test_deep_nesting_is_no_report() -> None:
    assert understand(b"[" * 60_000) is None


def test_the_newest_value_of_each_name_counts_until_taken() -> None:
    reported = ReportedValues()
    reported.add(Report(step=1, values={"loss": 2.0, "lr": 0.1}))
    reported.add(Report(step=2, values={"loss": 1.0}))
    assert reported.take() == {"loss": 1.0, "lr": 0.1}
    assert reported.take() == {}
    assert reported.step == 2


def test_names_are_bounded() -> None:
    reported = ReportedValues()
    for number in range(1000):
        reported.add(Report(values={f"v{number}": 1.0}))
    assert len(reported.take()) == 200


def test_datagrams_arrive_and_the_last_ones_are_taken_at_the_end(tmp_path: Path) -> None:
    folder = runtime.private_folder(runtime.base())
    path = folder / f"test-{os.getpid()}"

    async def scenario() -> list[Report]:
        got: list[Report] = []
        receiver = ReportSocket(path, got.append)
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b'{"step": 1}', str(path))
            while not got:
                await asyncio.sleep(0.01)
            sender.sendto(b"rubbish", str(path))
            sender.sendto(b'{"step": 2}', str(path))
            receiver.close()
            receiver.close()
        return got

    got = asyncio.run(scenario())
    assert [report.step for report in got] == [1, 2]
    assert not path.exists()


async def test_reports_are_taken_though_another_jobs_last_process_has_removed_the_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between an agent's begin and that of its program, which it may be long until."""
    monkeypatch.setenv(runtime.VARIABLE, str(tmp_path))
    folder = runtime.private_folder(tmp_path)
    folder.rmdir()
    got: list[Report] = []

    receiver = ReportSocket(folder / "t", got.append)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b'{"step": 1}', str(folder / "t"))
    receiver.close()
    assert [report.step for report in got] == [1]


def test_all_that_waits_is_taken_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("howdah.agent.monitoring.reports._BATCH", 2)  # hosts queue 10 or 512
    path = runtime.private_folder(runtime.base()) / f"test-{os.getpid()}"

    async def scenario() -> list[Report]:
        got: list[Report] = []
        receiver = ReportSocket(path, got.append)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            for step in range(7):
                sender.sendto(json.dumps({"step": step}).encode(), str(path))
        receiver.close()
        return got

    assert [report.step for report in asyncio.run(scenario())] == list(range(7))
