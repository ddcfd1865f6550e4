"""Jobs a framework cannot run, and what is said about each."""

from __future__ import annotations

from typing import Any

import pytest

from howdah.spec.model import Mode, Preprocess, Restart, Role, TensorBoard, Tracking
from tests.unit.frameworks.gangs import RUNNABLE, problems

WRONG: list[tuple[str, str, dict[str, Any], dict[str, Any], str, str]] = [
    ("an unknown framework", "pytroch", {"worker": 1}, {}, "framework",
     "there is no framework 'pytroch'; known are command, tensorflow, pytorch, jax, xgboost, "
     "lightgbm, dask, ray, horovod, mpi, mxnet. Did you mean 'pytorch'?"),
    ("no role that trains", "pytorch", {"trainer": 2}, {}, "roles",
     "pytorch needs a role named chief or worker, and the job's roles are: trainer. "
     "Call the role that trains worker."),
    ("two chiefs", "tensorflow", {"chief": 2, "worker": 1}, {}, "roles.chief.instances",
     "a tensorflow job has one chief, not 2; set it to 1."),
    ("an elastic evaluator", "tensorflow", {"worker": 1, "evaluator": "1..2"}, {},
     "roles.evaluator.instances", "a tensorflow job has one evaluator, not 1..2; set it to 1."),
    ("chief and master", "tensorflow", {"chief": 1, "master": 1}, {}, "roles.master",
     "master is TensorFlow 1's name of the chief, and the job has both; remove one of them."),
    ("several processes of TensorFlow", "tensorflow", {"worker": Role(processes=2)}, {},
     "roles.worker.processes",
     "a task of tensorflow is one program, not 2; use more instances instead."),
    ("several processes of Dask", "dask", {"client": 1, "worker": Role(processes=2)}, {},
     "roles.worker.processes", "a task of dask is one program, not 2; use more instances instead."),
    ("several processes that torchrun would start again", "pytorch",
     {"worker": Role(processes=4)}, {"command": "torchrun --log-dir x train.py"},
     "roles.worker.processes",
     "torchrun starts a task's processes itself, one for each of its gpus; remove processes, or "
     "run the script without torchrun."),
    ("the same as a list", "pytorch",
     {"worker": Role(processes=4, command=["python", "-m", "torch.distributed.run", "train.py"])},
     {}, "roles.worker.processes",
     "torchrun starts a task's processes itself, one for each of its gpus; remove processes, or "
     "run the script without torchrun."),
    ("ranks that start one by one", "jax", {"worker": 2}, {"mode": Mode.EACH}, "mode",
     '"each" does not go with jax: its programs need the addresses of all others when they start. '
     'Use mode = "gang", or framework = "command" for programs that do not depend on each other.'),
    ("a rank restarted alone", "pytorch", {"worker": Role(instances=2, restart=Restart.TASK)}, {},
     "roles.worker.restart",
     '"task" does not go with pytorch: a worker started again alone cannot rejoin its peers and '
     'hangs. Leave restart out, or use "gang" or "never"; for independent programs use '
     'framework = "command".'),
    ("all ranks restarted alone", "lightgbm", {"worker": 2}, {"restart": Restart.TASK}, "restart",
     '"task" does not go with lightgbm: a worker started again alone cannot rejoin its peers and '
     'hangs. Leave restart out, or use "gang" or "never"; for independent programs use '
     'framework = "command".'),
    ("only roles that prepare", "command", {"a": Role(prepare=True)}, {}, "roles",
     "no role decides when the job is done: a only prepares. Give one that trains tracking = "
     '"tracked".'),
    ("a wait for a later stage", "command", {"a": Role(prepare=True, after=("b",)), "b": 1}, {},
     "roles.a.after",
     "a prepares, and b does not: it is started only when a is done. Leave the wait out, or let "
     "both prepare."),
    ("nothing to run", "tensorflow", {"chief": Role(command="python a.py"), "worker": 1},
     {"command": None}, "roles.worker.command",
     "role worker has nothing to run; give it a command, or give the job one that all such roles "
     "run."),
    ("too few ports", "dask", {"client": 1, "worker": 1, "scheduler": Role(ports=1)}, {},
     "roles.scheduler.ports",
     "a scheduler task of dask needs 2 ports, not 1; leave ports out or raise it."),
    ("no client of Dask", "dask", {"worker": 2}, {}, "roles",
     "dask needs a role named client, and the job's roles are: scheduler, worker. "
     "Call the role of your program client."),
    ("no driver of Ray", "ray", {"worker": 2}, {}, "roles",
     "ray needs a role named driver, and the job's roles are: head, worker. "
     "Call the role of your program driver."),
    ("no server of MXNet", "mxnet", {"worker": 2}, {}, "roles",
     "mxnet needs a role named server, and the job's roles are: scheduler, worker. "
     "Call the role that holds the weights server."),
    ("two trackers", "xgboost", {"worker": 1, "tracker": 2}, {}, "roles.tracker.instances",
     "a xgboost job has one tracker, not 2; set it to 1."),
    ("a role to wait for that is not there", "pytorch", {"worker": Role(after=("db",))}, {},
     "roles.worker.after", "there is no role 'db'; the others are: none."),
    ("a wait against the framework's own", "xgboost",
     {"worker": 1, "tracker": Role(after=("worker",))}, {}, "roles.tracker.after",
     "tracker waits for worker waits for tracker: none of them would ever start; remove one of "
     "the waits."),
    ("nobody decides", "tensorflow",
     {"worker": Role(tracking=Tracking.UNTRACKED), "evaluator": 1}, {}, "roles",
     "no role decides when the job is done: worker is untracked, evaluator is untracked. Give one "
     'that trains tracking = "tracked".'),
    ("a role with the name of a table's", "pytorch",
     {"worker": 1, "preprocess": Role(command="x")}, {"preprocess": Preprocess(command="y")},
     "roles.preprocess",
     "the table [preprocess] makes a role of this name, and the job has one of its own; "
     "remove either."),
    ("two TensorBoards", "pytorch", {"worker": 1, "tensorboard": Role(command="x")},
     {"tensorboard": TensorBoard()}, "roles.tensorboard",
     "the table [tensorboard] makes a role of this name, and the job has one of its own; "
     "remove either."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "given", "rest", "key", "message"),
    [case[1:] for case in WRONG],
    ids=[case[0] for case in WRONG],
)
def test_a_job_that_cannot_run_is_refused_in_words(framework, given, rest, key, message):
    found = problems(framework, given, **rest)
    assert (key, message) in [(problem.key, problem.message) for problem in found]
    assert len(found) == 1


def test_all_problems_are_reported_at_once():
    found = problems(
        "pytorch",
        {"trainer": Role(after=("db",)), "chief": Role(instances=2, processes=2)},
        command="torchrun train.py",
        mode=Mode.EACH,
    )
    assert {p.key for p in found} == {"roles.chief.processes", "mode", "roles.trainer.after"} | {
        "roles.chief.instances"
    }


@pytest.mark.parametrize(("framework", "given"), RUNNABLE)
def test_usual_jobs_have_no_problems(framework: str, given: dict[str, Any]):
    assert problems(framework, given) == []


def test_one_rank_alone_may_be_restarted_alone():
    assert problems("pytorch", {"worker": Role(restart=Restart.TASK)}) == []
