"""What the Spark backend refuses, and its texts for Spark's errors. No Spark here."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from howdah.backends.base import BackendError, Running
from howdah.backends.findings import DoctorFinding, Health
from howdah.backends.spark import doctor, slot_task
from howdah.backends.spark.artifacts import COMPARED_BYTES, ArtifactUploader, ArtifactWriter
from howdah.backends.spark.error_texts import error_text, pending_text, was_cancelled
from howdah.backends.spark.facts import (
    Facts,
    first_slots,
    refusals,
    slots_needed,
    slots_use,
    unseen,
)
from howdah.backends.spark.launch_bundle import (
    ContainerConfig,
    LaunchBundle,
    pack_source,
    unpack_source,
)
from howdah.backends.spark.messages import FilePart
from howdah.backends.spark.site import SparkSettings, SparkSite, write_settings
from howdah.cli.commands.run import rerun_command as rerun
from howdah.client.submission.functions import FunctionJob
from howdah.frameworks import planning
from howdah.packing.archives import PackingError
from howdah.spec.model import Checkpoint, Job, Preprocess, Role, Slots
from howdah.storage.jobdir import JobDirectory, new_job_id
from howdah.storage.layout import JobMeta
from howdah.version import __version__
from tests.spark.backend_jobs import container_folders

GOOD = Facts(master="spark://here:7077", capacity=4, executor_cores="2", instances="2")
JOB = Job(command="true", roles={"worker": Role(instances=4)})


def problems(
    facts: Facts, job: Job = JOB, use: Slots = Slots.SHARED, ps: bool = False, fed: bool = False
) -> str:
    job = planning.expand(job)
    on_driver = frozenset({"ps"} if ps else ())
    needed = slots_needed(planning.plan(job, "check"), on_driver)
    left = facts.left(needed) if fed else None
    return "\n".join(refusals(facts, use, needed, job, on_driver, left))


def changed(**changes: object) -> Facts:
    return msgspec.structs.replace(GOOD, **changes)


MOVING: dict[str, Any] = {"dynamic_allocation": True, "capacity": None, "query_capacity": None}
WITH_PS = Job(command="true", roles={"worker": Role(instances=4), "ps": Role(instances=2)})
OF_TWO_GPUS = Job(command="true", roles={"worker": Role(gpus=2)})
HELD = {"use": Slots.HELD}
FED = {"use": Slots.HELD, "fed": True}


@pytest.mark.parametrize(
    ("facts", "given", "words"),
    [
        ({}, {}, []),
        ({"capacity": None}, {}, []),
        (
            {"capacity": 3, "cores_max": "3", "task_cpus": 2},
            {},
            ["needs 4 slots", "has 3", "cores.max = 3", "task.cpus = 2", "at least 8"],
        ),
        # Those that are promised while executors are on their way.
        ({"capacity": 0, "cores_max": "3"}, {}, ["the application has 3"]),
        ({"capacity": 2, "cores_max": "5"}, {}, ["the application has 2"]),
        ({"master": "local[2]", "capacity": 2}, {}, ["spark.master = local[2]", "local[4]"]),
        ({}, {"job": WITH_PS}, ["needs 6 slots"]),
        ({}, {"job": WITH_PS, "ps": True}, []),
        (MOVING, {}, ["spark.dynamicAllocation.enabled = true"]),
        (MOVING, HELD, []),
        ({**MOVING, "max_executors": "2"}, HELD, []),
        ({**MOVING, "max_executors": "2"}, FED, ["none is left for the tasks that feed it"]),
        ({**MOVING, "max_executors": "3"}, FED, []),
        (
            {**MOVING, "max_executors": "1"},
            HELD,
            ["needs 4 slots at the same time, the application has 2 at the most", "Executors = 1"],
        ),
        ({"task_gpus": 1.0}, {}, ["spark.task.resource.gpu.amount gives each task 1 GPU"]),
        ({"task_gpus": 2.0, "profile": True}, {}, ["resources gives each task 2 GPU"]),
        ({"task_gpus": 1.0}, HELD, []),
        ({"query_capacity": 4, "task_gpus": 1.0}, FED, ["resource.gpu.amount = 1", "resources="]),
        (
            {"task_gpus": 1.0},
            {**HELD, "job": OF_TWO_GPUS},
            ["roles.worker.gpus = 2", "spark.task.resource.gpu.amount = 2"],
        ),
        ({"task_gpus": 2.0}, {**HELD, "job": OF_TWO_GPUS}, []),
        *(
            case
            for use in Slots
            for case in (
                ({"speculation": True}, {"use": use}, ["spark.speculation = false"]),
                ({"idle_kill_s": 60}, {"use": use}, ["killOnIdleTimeout = true", "Seconds = 60 s"]),
            )
        ),
    ],
)
def test_what_can_never_run_is_refused_with_the_settings_and_what_they_must_be(
    facts: dict[str, Any], given: dict[str, Any], words: list[str]
) -> None:
    text = problems(changed(**facts), **given)
    assert [word for word in words if word not in text] == [] and bool(text) == bool(words), text


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({"master": "spark://here:7077", "cores_max": "6"}, 6),
        ({"master": "spark://here:7077", "cores_max": "7", "task_cpus": 2}, 3),
        ({"master": "spark://here:7077", "instances": "2"}, None),
        ({"master": "yarn"}, 2),
        ({"master": "yarn", "instances": "4", "executor_cores": "2"}, 8),
        ({"master": "k8s://https://there", "instances": "3"}, 3),
        ({"master": "yarn", "instances": "4", "dynamic_allocation": True}, None),
        ({"master": "mesos://there"}, None),
    ],
)
def test_settings_promise_slots(settings: dict[str, Any], slots: int | None) -> None:
    assert Facts(**settings).promised == slots


def test_an_elastic_role_needs_its_minimum_and_asks_for_more_later() -> None:
    job = planning.expand(Job(command="true", roles={"worker": Role(instances="2..9")}))
    plan = planning.plan(job, "check")
    assert slots_needed(plan, frozenset()) == 2
    assert first_slots(plan, frozenset(), 4) == 0
    assert first_slots(plan, frozenset(), 9) == 9


@pytest.mark.parametrize(
    ("facts", "others", "use"),
    [
        ({"query_capacity": 5}, 0, Slots.HELD),
        ({"query_capacity": 4}, 0, Slots.SHARED),
        ({"query_capacity": 6}, 2, Slots.SHARED),
        ({"query_capacity": 9, "task_cpus": 2, "profile": True}, 0, Slots.HELD),
        ({"query_capacity": 8, "task_cpus": 2, "profile": True}, 0, Slots.SHARED),
        ({"query_capacity": 9, "task_cpus": 2, "query_cpus": 2}, 0, Slots.HELD),
        ({"query_capacity": None}, 0, Slots.SHARED),
        ({"query_capacity": None, "dynamic_allocation": True}, 0, Slots.HELD),
        ({"query_capacity": None, "task_gpus": 1.0}, 0, Slots.HELD),
        ({"query_capacity": 4, "task_gpus": 1.0}, 0, Slots.HELD),
    ],
)
def test_slots_are_held_where_one_is_left_to_feed_and_always_with_gpus_and_moving_executors(
    facts: dict[str, Any], others: int, use: Slots
) -> None:
    found, words = slots_use(changed(**facts), None, feeds=True, tasks=4, others=others)
    assert found is use
    assert words.startswith('slots="shared" is assumed: ') == (use is Slots.SHARED)


def test_slots_are_held_without_a_feed_and_as_the_user_says_with_one() -> None:
    facts = changed(query_capacity=4)
    assert slots_use(facts, None, feeds=False, tasks=4, others=0) == (Slots.HELD, "")
    for use in Slots:
        assert slots_use(facts, use, feeds=True, tasks=4, others=0) == (use, "")


def test_checkpoints_need_a_place_that_all_hosts_see() -> None:
    job = Job(command="true", checkpoint=Checkpoint())
    assert "checkpoint.store" in unseen(job, "worker", "far")
    job = Job(command="true", checkpoint=Checkpoint(store="hdfs:///c"))
    assert unseen(job, "worker", "far") == ""
    assert unseen(JOB, "worker", "far") == ""


def test_a_command_that_needs_the_shared_folder_is_refused_where_that_is_not_seen() -> None:
    path = "$HOWDAH_SHARED_DIR/data"
    preprocess = Preprocess(command=f"prepare {path}")
    for role, job in (
        ("worker", Job(command=f"train {path}")),
        ("preprocess", Job(command="train", preprocess=preprocess)),
        ("worker", Job(roles={"worker": Role(command=f"train {path}")})),
        ("worker", Job(command="train", roles={"worker": Role(env={"DATA": path})})),
        ("worker", Job(command="train", env={"DATA": "${HOWDAH_SHARED_DIR}"})),
    ):
        refusal = unseen(planning.expand(job), role, "far")
        assert "HOWDAH_SHARED_DIR: far does not see the job directory" in refusal
    assert unseen(planning.expand(FunctionJob(print).job), "worker", "far") == ""


def test_only_a_role_that_needs_the_shared_folder_itself_is_refused_where_that_is_not_seen() -> (
    None
):
    path = "$HOWDAH_SHARED_DIR/data"
    for job in (
        Job(command="train", roles={"worker": Role(), "ps": Role(command=f"serve {path}")}),
        Job(command="train", roles={"worker": Role(), "ps": Role(env={"DATA": path})}),
        Job(command="train", preprocess=Preprocess(command=f"prepare {path}")),
        Job(command=f"serve {path}", roles={"worker": Role(command="train"), "ps": Role()}),
    ):
        assert unseen(planning.expand(job), "worker", "far") == ""


def test_a_missing_module_is_told_with_what_to_do() -> None:
    error = RuntimeError("Traceback …\n  ModuleNotFoundError: No module named 'pyarrow'\n\tat x")
    assert "'pyarrow'" in error_text(error) and "--archives" in error_text(error)


def test_of_two_stack_traces_the_line_that_says_it_is_told() -> None:
    text = (
        "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: …\n"
        "Traceback (most recent call last):\n  File x, line 1\n    y()\nValueError: that is it\n"
        "\n\tat org.apache.spark.api.python\n"
    )
    assert error_text(RuntimeError(text)) == "ValueError: that is it"


def test_a_cancelled_job_is_known() -> None:
    assert was_cancelled(RuntimeError("Job 3 cancelled part of cancelled job group cell-7"))
    assert not was_cancelled(RuntimeError("Task failed 4 times"))
    over = RuntimeError("An error occurred: Job 3 cancelled because SparkContext was shut down")
    assert was_cancelled(over)
    assert error_text(over) == "the Spark session was stopped"


def test_waiting_is_told_in_words() -> None:
    assert pending_text(0, 4, 0) == ""
    assert "has 1" in pending_text(2, 1, 0)
    assert "3 of the Spark application's 4 are busy" in pending_text(2, 4, 3)
    assert pending_text(2, 4, 1) == ""


def test_files_are_uploaded_as_they_grow_and_again_when_they_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "there" / "logs" / "worker-0").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    log = tmp_path / "there" / "logs" / "worker-0" / "1.log"
    uploader, writer = ArtifactUploader(tmp_path / "there"), ArtifactWriter(tmp_path / "home")

    def upload() -> bytes:
        for part in uploader.changes():
            writer.write(part)
        return (tmp_path / "home" / "logs" / "worker-0" / "1.log").read_bytes()

    log.write_bytes(b"one\n")
    assert upload() == b"one\n"
    with log.open("ab") as file:
        file.write(b"two\n" * 200_000)
    assert upload() == b"one\n" + b"two\n" * 200_000
    assert list(uploader.changes()) == []
    log.unlink()
    log.write_bytes(b"new")
    assert upload() == b"new"
    uploader.restart()
    assert upload() == b"new"


def test_much_in_one_folder_keeps_no_other_away_and_never_what_a_rank_returns(
    tmp_path: Path,
) -> None:
    for folder in ("logs", "outputs", "results"):
        (tmp_path / folder).mkdir()
    uploader = ArtifactUploader(tmp_path, largest=100)
    (tmp_path / "logs" / "1.log").write_bytes(b"x" * 101)
    (tmp_path / "outputs" / "model").write_bytes(b"x" * 100)
    (tmp_path / "results" / "0.pkl").write_bytes(b"x" * 1000)
    os.mkfifo(tmp_path / "outputs" / "pipe")
    assert [part.path for part in uploader.changes()] == ["results/0.pkl", "outputs/model"]
    assert uploader.truncated == ["logs"]


def test_a_file_that_is_replaced_again_and_again_counts_once(tmp_path: Path) -> None:
    model = tmp_path / "outputs" / "model"
    model.parent.mkdir()
    uploader = ArtifactUploader(tmp_path, largest=100)
    for epoch in range(5):
        new = model.with_name(".new")
        new.write_bytes(b"%d" % epoch * 60)
        new.replace(model)
        assert [part.data for part in uploader.changes()] == [b"%d" % epoch * 60]
    assert uploader.truncated == []


@pytest.mark.parametrize("size", [0, COMPARED_BYTES + 1], ids=["short", "long"])
def test_a_file_that_is_written_anew_in_place_comes_home_as_it_is(
    tmp_path: Path, size: int
) -> None:
    best = tmp_path / "there" / "tensorboard" / "best.json"
    best.parent.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    uploader, writer = ArtifactUploader(tmp_path / "there"), ArtifactWriter(tmp_path / "home")

    def come_home(*, ended: bool) -> None:
        for part in uploader.changes(ended=ended):
            writer.write(part)
        if ended or not size:
            there, home = best.read_bytes(), tmp_path / "home" / "tensorboard" / "best.json"
            assert home.read_bytes() == there

    for number, text in enumerate(
        ('{"loss": 0.9}', '{"loss": 0.75, "epoch": 7}', '{"loss": 0.50, "epoch": 8}')
    ):
        with best.open("w") as file:
            file.write(text + " " * size)
        os.utime(best, (number, number))
        come_home(ended=False)
    come_home(ended=True)
    assert list(uploader.changes(ended=True)) == []


def test_what_is_sent_again_after_a_break_counts_once(tmp_path: Path) -> None:
    (tmp_path / "there" / "outputs").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    model = tmp_path / "there" / "outputs" / "model"
    model.write_bytes(b"x" * 60)
    uploader, writer = (
        ArtifactUploader(tmp_path / "there", largest=100),
        ArtifactWriter(tmp_path / "home"),
    )
    for part in uploader.changes():
        writer.write(part)
    uploader.restart()
    with model.open("ab") as file:
        file.write(b"y" * 40)
    for part in uploader.changes():
        writer.write(part)
    assert not uploader.truncated
    assert (tmp_path / "home" / "outputs" / "model").read_bytes() == model.read_bytes()


def ended_with_its_program(folder: Path, job: Job) -> tuple[JobDirectory, SparkSite]:
    """A job as its driver program leaves it that was killed with its coordinator."""
    directory = JobDirectory(folder / new_job_id("lost"))
    meta = JobMeta(job_id=directory.job_id, user="somebody", backend="spark", submitted=0.0)
    directory.create(job, meta)
    settings = SparkSettings(slots=Slots.SHARED, host="here", bind="here", port=1, nonce="")
    write_settings(directory.path, settings)
    site = SparkSite(directory)
    assert site.running() is Running.NO
    return directory, site


def test_a_job_that_nobody_runs_names_the_command_that_begins_it_anew(tmp_path: Path) -> None:
    job = msgspec.structs.replace(JOB, checkpoint=Checkpoint())
    directory, site = ended_with_its_program(tmp_path, job)
    words = site.lost().remedy.partition("howdah rerun ")[2].partition(". ")[0]
    parsed = rerun.make_context("rerun", words.split())
    assert parsed.params["job_id"] == directory.job_id and parsed.params["resume"]
    with pytest.raises(BackendError, match=f"howdah rerun {directory.job_id} --resume"):
        site.revive()


def test_a_function_job_that_nobody_runs_is_begun_anew_by_its_program(tmp_path: Path) -> None:
    call = FunctionJob(print)
    directory, site = ended_with_its_program(tmp_path, call.job)
    call.populate(directory)
    assert "run the program again that had started it" in site.lost().remedy
    assert "howdah rerun" not in str(site.lost())


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", "secrets/ca.pem", "logs/../final.json", "job.json", "checkpoints/1"]
)
def test_a_container_writes_nowhere_else_in_the_job_directory(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError):
        ArtifactWriter(tmp_path).write(FilePart(path=path, offset=0, data=b""))


def travelled(source: Path, there: Path) -> list[str]:
    """What of a source folder comes to a host that does not see it."""
    unpack_source(pack_source(source), there)
    return sorted(p.relative_to(there).as_posix() for p in there.rglob("*.*"))


def test_a_source_folder_travels_without_what_is_made_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "package" / "code.py").write_text("x = 1")
    (source / ".git").mkdir()
    (source / ".git" / "HEAD").write_text("ref")
    assert travelled(source, tmp_path / "there") == ["package/code.py"]


def test_a_source_folder_travels_without_what_its_ignore_files_name(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "data").mkdir(parents=True)
    for name in ("train.py", "notes.txt", "data/rows.csv"):
        (source / name).write_text(name)
    (source / ".gitignore").write_text("notes.txt\n")
    (source / ".howdahignore").write_text("data/\n!notes.txt\n")
    found = travelled(source, tmp_path / "there")
    assert found == [".gitignore", ".howdahignore", "notes.txt", "train.py"]


def test_links_within_a_source_folder_travel_as_links(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "package").mkdir(parents=True)
    (source / "package" / "code.py").write_text("x = 1")
    (source / "name.py").symlink_to(source / "package" / "code.py")
    (source / "other").symlink_to("package")
    travelled(source, tmp_path / "there")
    assert (tmp_path / "there" / "name.py").readlink() == Path("package/code.py")
    assert (tmp_path / "there" / "other" / "code.py").read_text() == "x = 1"


def test_a_source_folder_with_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackingError, match="data is a link to .*, outside of the folder"):
        pack_source(tmp_path / "source")


class Task:
    """As pyspark's TaskContext."""

    def attemptNumber(self) -> int:
        return 0

    def resources(self) -> dict[str, Any]:
        return {}


def test_a_source_archive_that_cannot_be_unpacked_is_a_problem_told_and_no_failed_task() -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        link = tarfile.TarInfo("data")
        link.type, link.linkname = tarfile.SYMTYPE, "/elsewhere"
        tar.addfile(link)
    config = ContainerConfig(
        job_id="job",
        name="",
        spark_job=1,
        host="",
        folder="",
        coordinator=("127.0.0.1", 1),
        slots=Slots.SHARED,
        lease_s=1.0,
        job_dir="/nowhere",
        nonce="",
        python="",
    )
    bundle = LaunchBundle(config=config, secrets={}, source=raw.getvalue())
    problem = slot_task.run(msgspec.msgpack.encode(bundle), Task())
    assert "'data' is a link to an absolute path" in problem
    assert container_folders() == []


def test_a_source_folder_that_is_too_large_is_refused_with_the_limit(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 200)
    with pytest.raises(PackingError, match="all hosts see"):
        pack_source(tmp_path, largest=100)


LIMITED = """
import resource
from howdah.backends.spark import slot_task
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
try:
    with slot_task.no_limit():
        print(resource.getrlimit(resource.RLIMIT_AS) == (resource.RLIM_INFINITY,) * 2)
    print(resource.getrlimit(resource.RLIMIT_AS) == (8 << 30, 8 << 30))
except slot_task.NoContainer as error:
    print("spark.executor.pyspark.memory limits Python here to 8192 MiB" in str(error))
"""


def test_an_inherited_limit_on_memory_is_lifted_or_refused_in_words() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert set(done.stdout.split()) == {"True"}, done.stderr


def findings(facts: Facts, profiles: bool = True) -> dict[str, DoctorFinding]:
    return {each.what: each for each in doctor.settings(facts, profiles=profiles)}


def test_the_doctor_says_what_clusters_can_have_of_an_application() -> None:
    found = findings(changed(query_capacity=4))
    assert {each.health for each in found.values()} == {Health.FINE}
    assert "clusters that are fed hold up to 3" in found["slots"].text
    alone = findings(changed(query_capacity=1))["slots"]
    assert alone.health is Health.WARNING and "give executors another core" in str(alone.hint)
    moving = changed(query_capacity=None, dynamic_allocation=True, max_executors="3")
    assert findings(moving)["slots"].text.startswith("6 at the most, one of which")
    assert 'slots="shared" is refused' in findings(moving)["dynamic allocation"].text
    assert "cannot be counted" in findings(changed(query_capacity=None))["slots"].text
    assert findings(changed(query_capacity=0))["slots"].health is Health.PROBLEM
    assert findings(changed(speculation=True))["speculation"].health is Health.PROBLEM
    assert findings(changed(idle_kill_s=60))["idle workers"].health is Health.PROBLEM


def test_the_doctor_says_who_gets_the_gpus() -> None:
    all_tasks = findings(changed(query_capacity=4, task_gpus=1.0, executor_gpus=2.0))["GPUs"]
    assert all_tasks.health is Health.WARNING and "resources=" in str(all_tasks.hint)
    by_profile = changed(query_capacity=4, executor_gpus=2.0)
    assert "resources= of Cluster.start" in findings(by_profile)["GPUs"].text
    assert findings(by_profile, profiles=False)["GPUs"].hint == "set spark.task.resource.gpu.amount"


def test_the_doctor_says_what_executors_lack() -> None:
    seen = [
        doctor.ExecutorReport(host="one", python="3.11.7", howdah=__version__),
        doctor.ExecutorReport(host="two", python="3.11.7", missing="No module named 'howdah'"),
        doctor.ExecutorReport(
            host="two", python="3.11.7", howdah=__version__, unreachable="timed out"
        ),
    ]
    found = {each.what: each for each in doctor.conditions(seen, ("driver", 7), "20000-29999")}
    assert "on 2 hosts" in found["executors"].text
    assert "cannot be imported on two: No module named 'howdah'" in found["Howdah"].text
    assert "two does not reach the driver at driver:7: timed out" in found["ports"].text
    assert {found[what].health for what in ("Howdah", "ports")} == {Health.PROBLEM}
    old = [doctor.ExecutorReport(host="one", python="3.11.7", howdah="0.0.1")]
    told = list(doctor.conditions(old, ("driver", 7), "20000-29999"))
    assert [each.health for each in told] == [Health.FINE, Health.WARNING, Health.FINE]
