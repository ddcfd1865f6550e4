"""Accounting over made journals: exact hours, and what they went to."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from howdah.cli.commands.history import GROUPS, _hours
from howdah.cli.main import main
from howdah.client import accounting
from howdah.client.following import offline_job
from howdah.client.usage import _resources, usage
from howdah.client.usage_tables import TABLES
from howdah.core import messages as m
from howdah.core.machine import Machine
from howdah.core.messages import Exit, Task
from howdah.frameworks import planning
from howdah.spec.model import Job, Mode, Role
from howdah.storage import journal
from howdah.storage.jobdir import JobDirectory, base_folder, user_name
from howdah.storage.layout import JobMeta
from howdah.wire.status import JobIdentity, view

BEGIN = 1_795_600_000.0
"""In week 48 of 2026, wherever that is read."""
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "accounting.md"
Story = list[tuple[float, m.AnyEvent]]


def granted(at: float, *nodes: str, first: int = 1) -> Story:
    return [
        (at, m.ContainerGranted(request_id=n, container_id=f"c{n}", node=node))
        for n, node in enumerate(nodes, first)
    ]


def began(at: float, joined: float, attempt: int, *indexes: int) -> Story:
    """These workers are prepared and started at one moment, and find each other at another."""
    tasks = [Task("worker", index) for index in indexes]
    story: Story = [(at, m.TaskPrepared(task=task, attempt=attempt)) for task in tasks]
    story += [(at, m.TaskStarted(task=task, attempt=attempt, pids=(1,))) for task in tasks]
    return story + [(joined, m.TaskJoined(task=task, attempt=attempt)) for task in tasks]


def registered(at: float, *numbers: int) -> Story:
    return [(at, m.AgentRegistered(container_id=f"c{n}", host="h")) for n in numbers]


def exited(at: float, index: int, attempt: int, **exit: Any) -> Story:
    return [(at, m.TaskExited(task=Task("worker", index), attempt=attempt, exit=Exit(**exit)))]


def saved(at: float) -> Story:
    return [(at, m.CheckpointSaved(task=Task("worker", 0), attempt=1, name="000001"))]


def ended(at: float, *numbers: int) -> Story:
    kind = m.ContainerEndKind.RELEASED
    return [(at, m.ContainerEnded(container_id=f"c{n}", kind=kind)) for n in numbers]


def make(
    name: str,
    story: Story,
    user: str = "ada",
    worker: Role = Role(),  # noqa: B008
    put_into: str = "",
    **fields: Any,
) -> str:
    """A job whose journal tells that story; the job's id. A cluster has put it into that queue, whichever
    it asked for."""
    number = len(list(base_folder().glob("*")))
    directory = JobDirectory(base_folder() / f"{name}-20261125-{number:06}-k3f9")
    fields = {"framework": "pytorch", "command": "true", "queue": "research", **fields}
    job = planning.expand(Job(name=name, roles={"worker": worker}, **fields))
    meta = JobMeta(job_id=directory.job_id, user=user, backend="local", submitted=BEGIN)
    directory.create(job, meta)
    plan = planning.plan(job, directory.job_id, lease_s=10.0)
    start: Story = [(0, m.JobSubmitted(plan=plan)), (0, m.CoordinatorStarted(incarnation=1))]
    machine, entries = Machine(), []
    for at, event in start + story:
        entries.append(journal.EventEntry(seq=len(entries) + 1, now=BEGIN + at, event=event))
        for each in machine.handle(event, BEGIN + at, "test"):
            if isinstance(each, m.Record):
                line = journal.RecordEntry(seq=len(entries) + 1, now=BEGIN + at, record=each)
                entries.append(line)
    (directory.path / "events-0001.jsonl").write_bytes(b"".join(map(journal._encode, entries)))
    if machine.state.finished is not None:
        whose = JobIdentity(
            name=name,
            framework=job.framework,
            user=user,
            backend="local",
            queue=put_into,
            directory="/",
        )
        directory.write_final(view(machine.state, whose))
    return directory.job_id


BIG = Role(instances=2, gpus=2, cores=4, memory="8g")


def make_trained(**fields: Any) -> str:
    """Two workers train from 300 on, save at 1300, fail at 1800, and are done at 5100 and 5700."""
    story = granted(100, "n1", "n2") + registered(200, 1, 2) + began(250, 300, 1, 0, 1)
    story += saved(1300) + exited(1800, 1, 1, code=1) + exited(1800, 0, 1, signal=15, stopped=True)
    story += [(1900, m.TimePassed()), *began(2000, 2100, 2, 0, 1)]
    story += exited(5100, 0, 2, code=0) + exited(5700, 1, 2, code=0) + ended(5800, 1, 2)
    return make("trained", story, worker=BIG, **fields)


def make_failed() -> str:
    """Ran for an hour, saved nothing."""
    story = granted(0, "n1") + registered(50, 1) + began(100, 100, 1, 0)
    return make("failed", story + exited(3700, 0, 1, code=3) + [(3700.5, m.TimePassed())]
                + ended(3800, 1), user="bo", attempts=1, tags=("night", "gpu"))  # fmt: skip


def make_alone(**fields: Any) -> str:
    """A task that depends on no others fails after 600 s and succeeds in another 1200."""
    story = granted(0, "n2") + registered(0, 1) + began(100, 100, 1, 0)
    story += [*exited(700, 0, 1, code=1), (701, m.TimePassed()), *began(800, 800, 2, 0)]
    story += exited(2000, 0, 2, code=0) + ended(2100, 1)
    fields = {"mode": Mode.EACH, "framework": "command", "tags": ("night",), **fields}
    return make("alone", story, **fields)


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["history", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def seconds(row: dict[str, Any], *names: str) -> list[int]:
    return [round(row[f"{name}_hours"] * 3600) for name in names]


SPENT = ("held", "useful", "preparing", "lost", "idle")


def test_each_second_of_a_container_is_told_once(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trained()
    sql = "select task, node, held_s, useful_s, preparing_s, lost_s, idle_s from containers"
    assert [list(row.values()) for row in rows(capsys, "query", sql)] == [
        # From the grant at 100 to the end at 5800; lost: from the checkpoint until the next generation.
        ["worker:0", "n1", 5700, 1000 + 3000, 200 + 200, 500 + 100, 600 + 100],
        ["worker:1", "n2", 5700, 1000 + 3600, 200 + 200, 500 + 100, 100],
    ]
    (row,) = rows(capsys)
    assert seconds(row, *SPENT) == [11400, 8600, 800, 1200, 800]
    assert seconds(row, "gpu", "core", "memory_gib") == [11400 * 2, 11400 * 4, 11400 * 8]
    assert seconds(row, "useful_gpu") == [8600 * 2]
    assert row["goodput"] == pytest.approx(8600 / 11400)
    assert (row["jobs"], row["succeeded"], row["failures"]) == (1, 1, 1)


def test_a_failed_job_keeps_what_its_checkpoints_hold_and_a_lone_task_what_it_ended_well(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_failed()
    make_alone()
    failed, alone = rows(capsys, "--by", "name")
    assert seconds(failed, *SPENT) == [3800, 0, 100, 3600, 100]
    assert seconds(alone, *SPENT) == [2100, 1200, 200, 600, 100]
    assert seconds(alone, "core", "gpu", "memory_gib") == [2100, 0, 0]


def test_jobs_are_grouped(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trained(queue="asked", put_into="prod")
    make_failed()
    make_alone()

    def grouped(by: str) -> dict[str, tuple[int, int, int, int]]:
        counts = ("jobs", "succeeded", "failed", "failures")
        return {
            row["group"]: tuple(row[name] for name in counts) for row in rows(capsys, "--by", by)
        }  # type: ignore[misc]

    assert grouped("user") == {"ada": (2, 2, 0, 2), "bo": (1, 0, 1, 1)}
    assert grouped("queue") == {"prod": (1, 1, 0, 1), "research": (2, 1, 1, 2)}
    assert grouped("framework") == {"pytorch": (2, 1, 1, 2), "command": (1, 1, 0, 1)}
    assert grouped("tag") == {"-": (1, 1, 0, 1), "night": (2, 1, 1, 2), "gpu": (1, 0, 1, 1)}
    assert grouped("week") == {"2026-W48": (3, 2, 1, 3)}
    # worker:1 of the first, which failed, ran on n2.
    assert grouped("node") == {"n1": (2, 1, 1, 1), "n2": (2, 2, 0, 2)}
    by_node = {row["group"]: seconds(row, "held")[0] for row in rows(capsys, "--by", "node")}
    assert by_node == {"n1": 5700 + 3800, "n2": 5700 + 2100}
    assert rows(capsys, "--by", "user", "--since", "2999-01-01") == []
    assert GROUPS == accounting.GROUPS
    with pytest.raises(Exception, match="cannot be grouped by 'moon'"):
        __import__("howdah").history("moon")


def test_the_table_ends_with_all_and_tiny_hours_are_no_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trained()
    make_failed()
    assert main(["history", "--by", "user"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["USER", "JOBS", "SUCCEEDED", "FAILED"]
    assert [line[0] for line in lines[1:]] == ["ada", "bo", "all"]
    assert lines[-1] == "all 2 1 1 2 6.33 13.72 25.33 4.22 57% 0.25 1.33 0.25".split()
    assert [_hours(each) for each in (0, 0.001, 0.01, 1234.5)] == ["", "<0.01", "0.01", "1,234.50"]
    assert main(["history", "--csv"]) == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["jobs"], float(row["gpu_hours"])) == ("2", pytest.approx(11400 * 2 / 3600))


def test_jobs_that_cannot_be_read_are_named_and_hide_no_others(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_failed()
    damaged, empty, strange = make_trained(), make_alone(), make_alone()
    with (base_folder() / damaged / "events-0001.jsonl").open("r+") as file:
        file.write("{}")
    (base_folder() / empty / "job.json").unlink()
    lines = (base_folder() / strange / "events-0001.jsonl").read_bytes().splitlines(True)
    no_submission = journal.EventEntry(seq=1, now=BEGIN, event=m.TimePassed())
    lines[0] = journal._encode(no_submission)
    (base_folder() / strange / "events-0001.jsonl").write_bytes(b"".join(lines))
    assert main(["history"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split()[:2] == ["1", "1"]
    for job_id in (damaged, empty, strange):
        assert told.err.count(f"left out: {job_id}: ") == 1
    assert len(told.err.splitlines()) == 3


def test_a_job_that_nobody_runs_any_more_counts_until_its_last_word(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = granted(0, "n1") + registered(50, 1) + began(100, 100, 1, 0)
    make("gone", story + saved(1100) + [(2100, m.TimePassed())])
    (row,) = rows(capsys)
    assert seconds(row, *SPENT) == [2100, 1000, 100, 1000, 0]
    assert (row["unended"], row["failed"]) == (1, 0)


def test_a_running_job_counts_until_now_and_its_open_work_as_useful(home: Path) -> None:
    story = granted(0, "n1") + registered(50, 1) + began(100, 100, 1, 0)
    directory = JobDirectory(base_folder() / make("runs", story))
    runs = usage(directory, offline_job.view(directory), BEGIN + 3700)
    (held,) = runs.containers
    assert (runs.state, held.ended, held.held_s, held.useful_s) == ("running", None, 3700, 3600)


def test_a_role_that_names_nothing_holds_what_its_backend_sets_aside() -> None:
    job = Job(name="x", framework="moon", command="true", roles={"worker": Role(gpus=2)})
    for backend, memory_mb in (("local", None), ("yarn", 1024), ("a-plug-in", None)):
        held = _resources(job, backend)["worker"]
        assert (held.cores, held.gpus, held.memory_mb) == (1, 2, memory_mb)


def test_the_jobs_of_all_users_below_a_store(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who they belong to is what the file system says, not what their directories do."""
    make_failed()
    make_trained()
    damaged = base_folder() / make_alone()
    (damaged / "job.json").write_text("{")
    store = ("--all-users", "--store", str(home / "jobs"))
    assert main(["history", "--by", "user", "--json", *store]) == 0
    told = capsys.readouterr()
    (row,) = json.loads(told.out)
    assert (row["group"], row["jobs"], seconds(row, "held")) == (user_name(), 2, [11400 + 3800])
    assert damaged.name in told.err
    assert main(["history", "--all-users"]) == 2
    assert "--all-users needs --store" in capsys.readouterr().err


def test_a_job_that_has_ended_is_read_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = make_failed()
    before = rows(capsys)
    (base_folder() / first / "events-0001.jsonl").unlink()
    assert rows(capsys) == before
    (cache,) = (home / "portal").glob("usage-*.sqlite")
    assert cache.stat().st_mode & 0o777 == 0o600
    cache.write_bytes(b"no database, but long enough to be looked at as one" * 100)
    assert seconds(*rows(capsys), "held") == [0]  # read again
    shutil.rmtree(base_folder() / first)
    assert rows(capsys)[0]["jobs"] == 0


WRONG = {
    "select nothing from": "SQLite does not take that",
    "select moon from jobs": "no such column: moon",
    "select 1; select 2": "one statement at a time",
    "": "There is no query",
    "delete from jobs": "can only be read",
    "create table mine (x)": "can only be read",
    "attach '{file}' as mine": "can only be read",
    "pragma query_only = 0": "can only be read",
    "select load_extension('{file}')": "can only be read",
}


@pytest.mark.parametrize("sql", WRONG)
def test_wrong_sql_is_answered_with_the_tables_there_are(
    sql: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "mine.sqlite"
    assert main(["history", "query", sql.replace("{file}", str(file))]) == 2
    told = capsys.readouterr().err
    assert WRONG[sql] in told and "failures: job_id, task, attempt" in told
    assert not file.exists()


def test_a_query_prints_a_table_and_csv(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_trained()
    sql = "select cause, node, null as moon, 0.5 as half from failures"
    assert main(["history", "query", sql]) == 0
    titles, cells = capsys.readouterr().out.splitlines()
    assert cells.split() == ["user-code", "n2", "NULL", "0.5"] and titles.split()[-1] == "half"
    assert main(["history", "query", sql, "--csv"]) == 0
    assert capsys.readouterr().out == "cause,node,moon,half\nuser-code,n2,,0.5\n"
    assert main(["history", "query", "select 1 where 0"]) == 0
    assert capsys.readouterr().out == "No rows\n"
    assert main(["history", "query", "select 1 as a, 2 as a", "--json"]) == 2
    assert main(["history", "--csv", "query", sql]) == 2
    assert "options of a query go behind it" in capsys.readouterr().err


def test_rows_are_written_as_parquet(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    make_trained()
    file = home / "usage.parquet"
    assert main(["history", "--by", "week", "--parquet", str(file)]) == 0
    (row,) = parquet.read_table(file).to_pylist()
    assert (row["group"], row["jobs"], row["gpu_hours"]) == ("2026-W48", 1, 11400 * 2 / 3600)
    assert main(["history", "--parquet", str(file), "--csv"]) == 2


def test_the_page_names_every_table_and_column() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for table, columns in TABLES.items():
        assert f"`{table}`" in page
        assert [name for name in columns if f"`{name}`" not in page] == []
