"""The JSON API over real HTTP."""

from __future__ import annotations

import msgspec
import pytest

from howdah.backends.base import BackendError, PageReaders
from howdah.coordinator.web import api
from howdah.core.messages import Level
from howdah.spec.model import Job, Preprocess, Role
from howdah.wire.status import JobView, TaskView
from tests.unit.web.fake_job import FakeJob
from tests.unit.web.serving import BEARER, Served, serving, wait_until


def test_the_job_is_the_status_document(served: Served) -> None:
    answer = served.get("/api/v1/job")
    assert answer.status == 200
    assert msgspec.json.decode(answer.body, type=JobView) == served.job.view()


def test_an_unchanged_job_is_not_sent_again(served: Served) -> None:
    tag = served.get("/api/v1/job").headers["ETag"]
    again = served.get("/api/v1/job", headers={**BEARER, "If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    served.do(lambda job: job.change(generation=1))

    def changed() -> bool:
        answer = served.get("/api/v1/job", headers={**BEARER, "If-None-Match": tag})
        return answer.status == 200 and answer.json()["generation"] == 1

    wait_until(changed, "the change is seen")


def test_tasks_by_role_and_state(served: Served) -> None:
    served.job.task("worker:1", state="running")
    tasks = msgspec.json.decode(served.get("/api/v1/tasks").body, type=list[TaskView])
    assert [task.task for task in tasks] == ["chief:0", "worker:0", "worker:1", "worker:2"]
    running = served.get("/api/v1/tasks?role=worker&state=running").json()
    assert [task["task"] for task in running] == ["worker:1"]


def test_one_task(served: Served) -> None:
    assert served.get("/api/v1/tasks/worker:2").json()["index"] == 2
    assert served.get("/api/v1/tasks/worker%3A2").json()["index"] == 2


@pytest.mark.parametrize("path", ["tasks", "logs", "metrics"])
@pytest.mark.parametrize("name", ["worker:9", "boss:0", "worker", "worker:-1", "worker:x", ":0"])
def test_a_task_there_is_not_is_named_in_the_error(served: Served, path: str, name: str) -> None:
    answer = served.get(f"/api/v1/{path}/{name}")
    assert answer.status == 404
    assert name in answer.error


def test_records_after_one(served: Served) -> None:
    def story(job: FakeJob) -> None:
        job.say("submitted", "job digits: chief 1, worker 3")
        job.say(
            "task-failed", "worker:1 failed", level=Level.ERROR, task="worker:1", attempt=1, n=4
        )

    served.do(story)
    first, second = served.get("/api/v1/records").json()
    assert first["kind"] == "submitted"
    assert second["task"] == "worker:1"
    assert second["level"] == "error"
    assert second["data"] == {"n": 4}
    after = served.get(f"/api/v1/records?after={first['seq']}").json()
    assert [record["kind"] for record in after] == ["task-failed"]
    assert len(served.get("/api/v1/records?limit=1").json()) == 1


def test_a_log_in_pages_its_tail_and_its_attempts(served: Served) -> None:
    served.job.print("worker:0", "old\n", attempt=1)
    served.job.print("worker:0", "one\ntwo\nthree\n", attempt=2)
    page = served.get("/api/v1/logs/worker:0?limit=4").json()
    assert (page["attempt"], page["attempts"], page["text"]) == (2, [1, 2], "one\n")
    rest = served.get(f"/api/v1/logs/worker:0?offset={page['next_offset']}").json()
    assert rest["text"] == "two\nthree\n"
    assert served.get("/api/v1/logs/worker:0?tail=2").json()["text"] == "two\nthree\n"
    assert served.get("/api/v1/logs/worker:0?offset=-6").json()["text"] == "three\n"
    assert served.get("/api/v1/logs/worker:0?attempt=1").json()["text"] == "old\n"
    assert served.get("/api/v1/logs/worker:0/attempts").json() == [1, 2]
    found = served.get("/api/v1/logs/worker:0?grep=TWO").json()
    assert [match["line"] for match in found["matches"]] == ["two"]


def test_a_whole_log_as_a_file(served: Served) -> None:
    text = b"line \xff\n" * 400_000
    served.job.print("worker:0", text, attempt=1)
    answer = served.get("/api/v1/logs/worker:0/raw")
    assert answer.body == text
    assert answer.headers["Content-Disposition"].endswith('-worker-0-1.log"')
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


def test_a_task_without_a_log_says_so(served: Served) -> None:
    for path in ("", "/raw", "?tail=3", "?grep=x", "?attempt=7"):
        answer = served.get(f"/api/v1/logs/worker:0{path}")
        assert answer.status == 404
        assert "log" in answer.error


@pytest.mark.parametrize(
    "query", ["offset=x", "offset=1.5", "tail=nan", "limit=1e99", "attempt=", "grep="]
)
def test_wrong_parameters_are_refused_in_words(served: Served, query: str) -> None:
    served.job.print("worker:0", "x\n", attempt=1)
    answer = served.get(f"/api/v1/logs/worker:0?{query}")
    if query == "attempt=":
        assert answer.status == 200
    else:
        assert answer.status == 400
        assert query.partition("=")[0] in answer.error


def test_samples_of_a_task_and_series_of_several(served: Served) -> None:
    start = served.job.head.submitted
    assert start is not None
    served.job.head = msgspec.structs.replace(served.job.head, submitted=start - 20)
    for second in range(10):
        for task, offset in (("worker:0", 0.0), ("worker:1", 100.0)):
            served.job.measure(
                task, at=start - 20 + second, cpu=offset + second, values={"loss": 1.0}
            )
    samples = served.get(f"/api/v1/metrics/worker:0?since={start - 15.5}").json()
    assert [sample["cpu"] for sample in samples] == [5.0, 6.0, 7.0, 8.0, 9.0]
    page = served.get("/api/v1/series?task=worker:0&task=worker:1&step=5").json()
    series = {(each["task"], each["name"]): each["points"] for each in page["series"]}
    assert set(series) == {
        ("worker:0", "cpu"),
        ("worker:1", "cpu"),
        ("worker:0", "value:loss"),
        ("worker:1", "value:loss"),
    }
    assert len(series["worker:0", "cpu"]) == page["count"]
    assert served.get("/api/v1/series?task=worker:0&step=0.001").status == 400
    assert served.get("/api/v1/series?task=nobody:0").status == 404


def test_the_job_file_and_the_plan(served: Served) -> None:
    whole = served.get("/api/v1/config").json()
    assert whole["timeouts"]["stop-grace"] == "10s"
    assert served.get("/api/v1/config?brief=1").json() == {
        "name": "digits",
        "framework": "tensorflow",
        "command": "python train.py",
        "roles": {"chief": {}, "worker": {"instances": 3}},
    }
    assert [role["name"] for role in served.get("/api/v1/plan").json()["roles"]] == [
        "chief",
        "worker",
    ]


def test_stopping(served: Served) -> None:
    answer = served.post("/api/v1/stop", {"reason": "enough", "firm": True})
    assert answer.status == 202
    assert served.post("/api/v1/stop").status == 202
    assert served.job.stops == [("the HTTP API", "enough", True), ("the HTTP API", "", False)]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"firm": 1}', b'{"frim": true}', b"\xff"])
def test_a_wrong_stop_request_stops_nothing(served: Served, body: bytes) -> None:
    answer = served.ask(
        "POST",
        "/api/v1/stop",
        body=body,
        headers={**BEARER, "Content-Type": "application/json"},
    )
    assert answer.status == 400
    assert served.job.stops == []


def test_a_stop_request_that_a_form_could_send_is_refused(served: Served) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = {**BEARER, "Content-Type": kind}
        assert served.ask("POST", "/api/v1/stop", body=b"{}", headers=headers).status == 415
    assert served.job.stops == []


def test_stopping_by_get_is_not_possible(served: Served) -> None:
    assert served.get("/api/v1/stop").status == 405
    assert served.job.stops == []


def test_stacks(served: Served) -> None:
    assert "train.py:31" in served.post("/api/v1/stacks/worker:0").json()["text"]
    served.job.stack_text = None
    answer = served.post("/api/v1/stacks/worker:0")
    assert answer.status == 409
    assert "py-spy" in answer.error


def test_what_is_not_there_says_where_the_page_is(served: Served) -> None:
    answer = served.get("/api/v2/job")
    assert answer.status == 404
    assert "/api/v2/job" in answer.error


def test_every_operation_has_a_name_of_its_own_and_a_summary() -> None:
    names = [operation.name for operation in api.OPERATIONS]
    assert len(names) == len(set(names))
    assert all(operation.summary.endswith(".") for operation in api.OPERATIONS)


def test_a_reader_without_the_token_sees_no_value_of_an_environment_variable() -> None:
    job = Job(
        name="digits",
        env={"A": "job-secret"},
        roles={"notebook": Role(env={"JUPYTER_TOKEN": "role-secret"})},
        preprocess=Preprocess(command="true", env={"B": "step-secret"}),
    )
    readers = PageReaders(addresses=frozenset({"127.0.0.1"}))
    with serving(readers=readers) as served:
        served.job.job = lambda: job  # type: ignore[method-assign]
        for path in ("/api/v1/config", "/api/v1/config?brief=1"):
            answer = served.get(path, headers={"Cookie": "proxy-user=bob"})
            assert answer.status == 200
            assert "JUPYTER_TOKEN" in answer.body.decode() and b"-secret" not in answer.body
            assert served.get(path).body.count(b"-secret") == 3, "the owner sees all"


def test_members_of_a_group_on_the_access_list_may_read_and_a_silent_cluster_is_said() -> None:
    groups = {"ann": ["team", "all"], "eve": ["all"]}

    async def groups_of(user: str) -> list[str]:
        if user not in groups:
            raise BackendError("the NameNode does not tell the user's groups: it is away")
        return groups[user]

    readers = PageReaders(
        addresses=frozenset({"127.0.0.1"}),
        users=frozenset({"bob"}),
        groups=frozenset({"team"}),
        groups_of=groups_of,
    )
    with serving(readers=readers) as served:

        def told(user: str) -> tuple[int, str]:
            answer = served.get("/api/v1/job", headers={"Cookie": f"proxy-user={user}"})
            return answer.status, answer.body.decode()

        assert [told(user)[0] for user in ("bob", "ann", "eve")] == [200, 200, 403]
        status, words = told("dan")
        assert status == 503
        assert "whether 'dan' may see this job is not known: the NameNode does not" in words
