"""Following a job: events as they come, and the same by asking again."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from tests.unit.web.fake_job import TOKEN, FakeJob
from tests.unit.web.serving import Served, wait_until

STREAM = "/api/v1/stream"


def test_the_first_status_is_whole_and_a_change_comes_alone(served: Served) -> None:
    with served.stream(STREAM) as events:
        assert events.next()[0] == "hello"
        first = events.until("status")
        assert first["full"]
        assert len(first["tasks"]) == 4
        served.do(lambda job: job.task("worker:1", state="running"))
        change = events.until("status", lambda patch: patch["tasks"])
        assert change["tasks"] == [{"task": "worker:1", "state": "running"}]


def test_records_so_far_come_first_and_each_once(served: Served) -> None:
    served.do(lambda job: [job.say("note", str(i)) for i in range(5)])
    with served.stream(STREAM) as events:
        seen = [events.until("record") for _ in range(5)]
        assert [record["text"] for record in seen] == list("01234")
        served.do(lambda job: job.say("note", "5"))
        assert events.until("record")["text"] == "5"
    with served.stream(f"{STREAM}?after={seen[2]['seq']}") as events:
        assert events.until("record")["text"] == "3"


def test_thousands_of_records_all_come(served: Served) -> None:
    served.do(lambda job: [job.say("note", str(i)) for i in range(3500)])
    with served.stream(STREAM) as events:
        assert [int(events.until("record")["text"]) for _ in range(3500)] == list(range(3500))


def test_a_reader_who_comes_back_gets_what_it_missed_only(served: Served) -> None:
    with served.stream(STREAM) as events:
        version = events.until("status")["version"]
    served.do(lambda job: job.task("worker:0", state="launching"))
    with served.stream(f"{STREAM}?since={version}") as events:
        patch = events.until("status")
        assert not patch["full"]
        assert patch["tasks"] == [{"task": "worker:0", "state": "launching"}]


def test_a_log_is_followed_as_it_grows(served: Served) -> None:
    served.job.print("worker:0", "before\n", attempt=1)
    with served.stream(f"{STREAM}?log=worker:0&offset=-1000") as events:
        first = events.until("log")
        assert (first["text"], first["next_offset"]) == ("before\n", 7)
        served.do(lambda job: job.print("worker:0", "after\n", attempt=1))
        assert events.until("log")["text"] == "after\n"


def test_a_new_attempts_log_follows_the_old_one(served: Served) -> None:
    served.job.print("worker:0", "one\n", attempt=1)
    with served.stream(f"{STREAM}?log=worker:0") as events:
        assert events.until("log")["attempt"] == 1
        served.do(lambda job: job.print("worker:0", "two\n", attempt=2))
        change = events.until("log")
        assert (change["attempt"], change["offset"], change["text"]) == (2, 0, "two\n")


def test_a_pinned_attempt_stays(served: Served) -> None:
    served.job.print("worker:0", "one\n", attempt=1)
    served.job.print("worker:0", "two\n", attempt=2)
    with served.stream(f"{STREAM}?log=worker:0&attempt=1&pinned=1") as events:
        assert events.until("log")["text"] == "one\n"


def test_a_reader_in_an_older_attempt_goes_on_with_the_newest_whole(served: Served) -> None:
    served.job.print("worker:0", "one\n", attempt=1)
    served.job.print("worker:0", "second attempt\n", attempt=2)
    with served.stream(f"{STREAM}?log=worker:0&attempt=1&offset=4") as events:
        assert events.until("log")["text"] == "second attempt\n"


def test_a_strange_log_is_refused_before_the_stream_begins(served: Served) -> None:
    assert served.get(f"{STREAM}?log=boss:0").status == 404


def test_the_job_is_listened_to_only_while_somebody_watches(served: Served) -> None:
    assert served.job.listeners == 0
    with served.stream(f"{STREAM}?log=worker:0") as events:
        events.until("status")
        with served.stream(STREAM) as others:
            others.until("status")
            assert served.job.listeners == 2
    wait_until(lambda: served.job.listeners == 0, "the end of the subscription")


def test_many_watchers_cost_one_document(served: Served) -> None:
    before = served.job.views
    streams = [served.stream(STREAM) for _ in range(10)]
    events = [stream.__enter__() for stream in streams]
    for each in events:
        each.until("status")
    began, views = time.monotonic(), served.job.views
    for _ in range(20):
        served.do(lambda job: job.say("note", "x"))
    for each in events:
        for _ in range(20):
            each.until("record")
    assert served.job.views - views <= 2 + (time.monotonic() - began) / 0.1
    for stream in streams:
        stream.__exit__(None, None, None)
    assert before <= views


def test_more_streams_than_sensible_are_sent_to_polling(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("howdah.coordinator.web.api.STREAMS_MAX", 1)
    with served.stream(STREAM) as events:
        events.until("status")
        answer = served.get(STREAM)
        assert answer.status == 503
        assert "changes" in answer.error


def test_streams_end_with_a_goodbye_when_the_server_closes() -> None:
    served = Served(FakeJob())
    served.start()
    with served.stream(STREAM) as events:
        events.until("status")
        served.stop()
        events.until("bye")
        with pytest.raises(EOFError):
            while True:
                events.next()


def test_the_end_of_the_job_is_told_before_the_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("howdah.coordinator.web.stream.LAST_LINES_S", 0.2)
    served = Served(FakeJob())
    served.start()
    with served.stream(f"{STREAM}?log=worker:0") as events:
        events.until("status")

        def finish(job: FakeJob) -> None:
            job.print("worker:0", "last words", attempt=1)
            job.task("worker:0", state="succeeded")
            job.change(phase="finished", outcome="succeeded")
            job.say("finished", "succeeded")

        served.do(finish)
        served.stop()
        told: list[tuple[str, Any]] = []
        while not told or told[-1][0] != "bye":
            told.append(events.next())
    assert [content["text"] for name, content in told if name == "log"] == ["last words"]
    assert [content["kind"] for name, content in told if name == "record"] == ["finished"]
    job: dict[str, Any] = {}
    for name, content in told:
        if name == "status":
            job.update(content["job"])
    assert job["outcome"] == "succeeded"


def test_a_reader_that_reads_nothing_stalls_nobody(served: Served) -> None:
    served.job.print("worker:0", "x" * 99 + "\n", attempt=1)
    with socket.create_connection(("127.0.0.1", served.port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = f"GET {STREAM}?log=worker:0 HTTP/1.1\r\nHost: localhost\r\n"
        lazy.sendall(f"{request}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        with served.stream(f"{STREAM}?log=worker:0") as events:
            events.until("log")
            for _ in range(50):
                served.do(lambda job: job.print("worker:0", b"y" * 100_000 + b"\n", attempt=1))
            events.until("log", lambda change: change["next_offset"] >= 5_000_000)


def test_polling_tells_the_same(served: Served) -> None:
    served.do(lambda job: job.say("note", "one"))
    served.job.print("worker:0", "line\n", attempt=1)
    first = served.get("/api/v1/changes?log=worker:0&offset=-100").json()
    assert first["status"]["full"]
    assert [record["text"] for record in first["records"]] == ["one"]
    assert first["log"]["text"] == "line\n"
    version, after = first["status"]["version"], first["records_after"]
    rest = f"log=worker:0&attempt=1&offset={first['log']['next_offset']}"
    again = served.get(f"/api/v1/changes?since={version}&after={after}&{rest}").json()
    assert again == {"status": None, "records": [], "records_after": after, "log": None}
    served.job.print("worker:0", "more\n", attempt=1)
    assert served.get(f"/api/v1/changes?{rest}").json()["log"]["text"] == "more\n"
    served.job.print("worker:0", "anew\n", attempt=2)
    change = served.get(f"/api/v1/changes?{rest}").json()["log"]
    assert (change["attempt"], change["text"]) == (2, "anew\n")


def test_polling_a_task_that_has_no_log_yet(served: Served) -> None:
    assert served.get("/api/v1/changes?log=worker:0").json()["log"] is None
