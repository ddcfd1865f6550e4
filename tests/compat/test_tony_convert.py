"""What TonY's settings become, where more than one of them, or more than a word, is needed."""

from __future__ import annotations

from typing import Any

import pytest

from howdah.compat.tony.conversion import About
from howdah.frameworks import planning
from howdah.spec.load import from_document
from howdah.spec.problems import JobFileError
from tests.compat.given import converted, document

TWO = {"tony.worker.instances": "2"}


def notes(values: dict[str, str], **given: object) -> list[tuple[About, str]]:
    return [(note.about, str(note)) for note in converted(values, **given).notes]


def problems(values: dict[str, str], **given: object) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        converted(values, **given)
    return [str(problem) for problem in caught.value.problems]


def test_the_example_of_tonys_guide_is_a_job() -> None:
    made = document(
        {
            "tony.worker.instances": "4",
            "tony.worker.memory": "4g",
            "tony.worker.gpus": "1",
            "tony.ps.memory": "3g",
            "tony.ps.instances": "2",
        },
        executes="models/mnist_distributed.py",
        task_params="--steps 2500 --batch_size 64",
        python_venv="my-venv.zip",
        python_binary_path="Python/bin/python",
        src_dir="src",
        shell_env=("LD_LIBRARY_PATH=/usr/java/latest/jre/lib/amd64/server",),
    )
    assert made == {
        "name": "TonyApplication",
        "framework": "tensorflow",
        "compat": "tony",
        "command": "venv/Python/bin/python models/mnist_distributed.py "
        "--steps 2500 --batch_size 64",
        "source": "src",
        "files": ["my-venv.zip -> venv/"],
        "attempts": 1,
        "env": {"LD_LIBRARY_PATH": "/usr/java/latest/jre/lib/amd64/server"},
        "roles": {
            "worker": {"instances": 4, "memory": "4g", "cores": 1, "gpus": 1, "tolerate": True},
            "ps": {
                "instances": 2,
                "memory": "3g",
                "cores": 1,
                "tracking": "untracked",
                "stop-on-failure": True,
            },
        },
        "hadoop": {"classpath": True},
        "acl": {"view": ["*"]},
    }
    loaded = from_document(
        {**made, "source": ""}, env={}, further=lambda job, _: planning.problems(job)
    )
    assert loaded.job.roles["worker"].gpus == 1


def test_without_instances_the_job_is_one_task_with_what_the_master_was_given() -> None:
    made = document(
        {"tony.am.memory": "4096", "tony.am.vcores": "3", "tony.am.gpus": "1"}, executes="./go"
    )
    assert made["framework"] == "command"
    assert made["roles"] == {
        "worker": {
            "instances": 1,
            "memory": "4096m",
            "cores": 3,
            "gpus": 1,
            "env": {"PREPROCESSING_JOB": "true"},
        }
    }
    assert "master" not in made


def test_the_interpreter_is_the_one_tony_would_take() -> None:
    for binary, venv, command, python in (
        ("", "", "train.py", None),
        ("python", "", "python train.py", None),
        ("python3.9", "", "python train.py", "python3.9"),
        ("/opt/py/bin/python", "", "python train.py", "/opt/py/bin/python"),
        ("bin/python", "v.zip", "venv/bin/python train.py", None),
        ("/opt/python", "v.zip", "python train.py", "/opt/python"),
        ("env/bin/python", "", "python train.py", "env/bin/python"),
    ):
        given = {"python_binary_path": binary, "python_venv": venv}
        made = document(TWO, executes="train.py", **{k: v for k, v in given.items() if v})
        assert (made["command"], made.get("environment", {}).get("python")) == (command, python)


def test_values_of_variables_keep_their_commas() -> None:
    made = document(
        {
            **TWO,
            "tony.containers.envs": "A=x,y,B=,C=-Da=1,-Db=2, D=3",
            "tony.execution.envs": "B=b",
        },
        executes="x",
        shell_env=("E=1,2",),
        container_env=("E=container", "F=a=b"),
    )
    assert made["env"] == {
        "A": "x,y",
        "B": "b",
        "C": "-Da=1,-Db=2",
        "D": "3",
        "E": "1,2",
        "F": "a=b",
    }


def test_what_looks_like_our_substitution_stays_text() -> None:
    made = document(TWO, executes="echo ${env:HOME} ${HOME}", shell_env=("A=${job.id}",))
    assert made["command"] == "echo $${env:HOME} ${HOME}"
    loaded = from_document({**made, "source": ""}, env={"HOME": "/h"})
    assert loaded.job.command == "echo ${env:HOME} ${HOME}"


def test_a_variable_the_node_would_have_expanded_is_spoken_of() -> None:
    told = notes({**TWO, "tony.containers.envs": "LD_PRELOAD=$HADOOP_HOME/lib"}, executes="x")
    assert told == [
        (
            About.CHANGED,
            "tony.xml: tony.containers.envs: the $ in LD_PRELOAD is not expanded; say it in the command: "
            "LD_PRELOAD=… python train.py",
        )
    ]


def test_what_the_node_reads_or_expands_is_told_to_the_node() -> None:
    envs = 'A=1,P=$HADOOP_HOME/lib,YARN_CONTAINER_RUNTIME_TYPE=docker,J={"a":$X}'
    made = document({**TWO, "tony.containers.envs": envs}, executes="x", shell_env=("B=$X",))
    assert made["env"] == {"A": "1", "J": '{"a":$X}', "B": "$X"}
    assert made["hadoop"]["container-env"] == {
        "P": "$HADOOP_HOME/lib",
        "YARN_CONTAINER_RUNTIME_TYPE": "docker",
    }
    assert from_document({**made, "source": ""}, env={}).job.hadoop.container_env


FAIL_ON = "tony.application.fail-on-worker-failure-enabled"


PS = {**TWO, "tony.ps.instances": "1"}
ONE = {"tony.worker.instances": "1"}
LISTED = {
    "tony.evaluator.instances": "1",
    "tony.helper.instances": "1",
    "tony.application.sidecar.jobtypes": "helper",
    "tony.application.stop-on-failure-jobtypes": "worker",
}


def test_every_tracked_task_but_the_chief_may_fail_unless_told_otherwise() -> None:
    for values, tolerated in (
        (ONE, {}),
        (TWO, {"worker": True}),
        ({**TWO, FAIL_ON: "false"}, {"worker": True}),
        ({**TWO, FAIL_ON: "true"}, {"worker": False}),
        (PS, {"worker": True}),
        ({**ONE, "tony.ps.instances": "1"}, {}),
        ({**ONE, "tony.chief.instances": "1"}, {"worker": True}),
        ({**TWO, **LISTED}, {"evaluator": True}),
    ):
        roles = document(values, executes="x")["roles"]
        found = {name: role["tolerate"] for name, role in roles.items() if "tolerate" in role}
        assert found == tolerated, values
    # A parameter server that fails ends only a job that is not tried again.
    assert document(PS, executes="x")["roles"]["ps"]["stop-on-failure"] is True
    made = document({**PS, "tony.am.retry-count": "1"}, executes="x")
    assert "stop-on-failure" not in made["roles"]["ps"]


def test_a_value_becomes_what_tony_makes_of_it() -> None:
    def worker(key: str, text: str, **more: str) -> Any:
        return document({**TWO, **more, f"tony.worker.{key}": text}, executes="x")["roles"][
            "worker"
        ]

    for text, entries in (
        ("a.txt", ["a.txt"]),
        ("dir/a.txt", ["dir/a.txt"]),
        ("dir/a.zip::b.zip", ["dir/a.zip -> b.zip"]),
        ("a.zip#archive", ["a.zip -> a.zip/"]),
        ("hdfs:///x/a.zip::lib#archive", ["hdfs:///x/a.zip -> lib/"]),
        ("folder/", ["folder/"]),
        (" a ,, hdfs://nn:8020/b ,", ["a", "hdfs://nn:8020/b"]),
    ):
        assert worker("resources", text)["files"] == entries
    for text, written in (
        ("2g", "2g"),
        ("2048m", "2048m"),
        ("2048", "2048m"),
        ("4GB", "4g"),
        ("512M", "512m"),
    ):
        assert worker("memory", text)["memory"] == written
    for text, placement in (
        ("NOTIN,NODE,worker", {"spread": True}),
        ("notin,node,ps", {"apart": ["ps"]}),
        ("NOTIN,NODE,store", {"apart": ["ps"]}),
        ("AND(NOTIN,NODE,worker:NOTIN,NODE,ps)", {"spread": True, "apart": ["ps"]}),
        ("IN,NODE,store", {"together": ["ps"]}),
        ("in,node,store,ps", {"together": ["ps"]}),
        ("AND(NOTIN,NODE,worker:IN,NODE,ps)", {"spread": True, "together": ["ps"]}),
    ):
        store = {"tony.ps.instances": "1", "tony.ps.allocation-tags": "store"}
        assert worker("placement-spec", text, **store)["placement"] == placement
    for text, limit in (("0", None), ("-1", None), ("1500", "1500ms"), ("7200000", "2h")):
        made = document({**TWO, "tony.application.timeout": text}, executes="x")
        assert made.get("timeouts", {}).get("total") == limit


def test_what_only_some_jobs_have_is_left_out_of_the_others() -> None:
    made = document({**TWO, "tony.ps.instances": "0"}, executes="x")
    assert [*made["roles"]] == ["worker"]
    assert made["hadoop"] == {"classpath": True}
    assert "hadoop" not in document(TWO, executes="x", container_env=("SKIP_HADOOP_PATH=true",))
    both = {"tony.worker.command": "a", "tony.containers.command": "b"}
    made = document({**TWO, **both}, executes="c")
    assert (made["command"], made["roles"]["worker"]["command"]) == ("c", "a")
    single = {"tony.am.command": "python alone.py", "tony.application.enable-preprocess": "true"}
    made = document(single, executes="x")
    assert made["roles"]["worker"]["command"] == "python alone.py"
    assert "preprocess" not in made
    key = "tony.application.dependency.worker.timeout.after.B"
    assert "linger" not in document({**TWO, key: "3600"}, executes="x")["roles"]["worker"]
    alone = {**ONE, "tony.application.framework": "standalone"}
    assert document(alone, executes="x")["framework"] == "command"


def test_what_cannot_be_meant_is_refused_with_what_to_do() -> None:
    limits = {"tony.task.max-total-memory": "3000", "tony.worker.max-instances": "1"}
    alone = {**ONE, "tony.application.framework": "standalone", "tony.slave.instances": "1"}
    for values, told in (
        (
            {**TWO, "tony.worker.resources": "a::b::c"},
            [
                'tony.worker.resources: "a::b::c" is no resource; TonY knows SOURCE, SOURCE::NAME '
                "and SOURCE::NAME#archive"
            ],
        ),
        (
            {"tony.worker.instances": "two", "tony.am.retry-count": "x"},
            [
                'tony.worker.instances: "two" is not a whole number',
                'tony.am.retry-count: "x" is not a whole number',
            ],
        ),
        (
            {**TWO, **limits},
            [
                "tony.worker.max-instances: the job asks for 2 instances of worker, and may have 1",
                "tony.task.max-total-memory: the job asks for 4096 memory, and may have 3000",
            ],
        ),
        (
            alone,
            [
                "tony.application.framework: standalone is one task, and the job has 2; write one "
                "instance, or another framework"
            ],
        ),
    ):
        assert problems(values, executes="x") == [f"tony.xml: {text}" for text in told]
    waits = "keeps the first container of worker waiting for one beside it"
    for spec, text in (
        ("IN,NODE,worker", waits),
        ("IN,NODE,ps,worker", waits),
        ("AND(IN,NODE,ps:in,node,store)", "is a second condition of nearness"),
        ("java=true", "java=true"),
        ("IN,RACK,worker", "IN,RACK,worker"),
        ("NOTIN,NODE,nobody", "NOTIN,NODE,nobody"),
        ("CARDINALITY,NODE,worker,0,1", "CARDINALITY,NODE,worker,0,1"),
    ):
        values = {**PS, "tony.ps.allocation-tags": "store", "tony.worker.placement-spec": spec}
        (problem,) = problems(values, executes="x")
        assert problem.startswith("tony.xml: tony.worker.placement-spec: ")
        assert text in problem


def test_roles_have_the_meaning_that_tonys_lists_give_them() -> None:
    made = document(
        {
            **TWO,
            "tony.ps.instances": "1",
            "tony.evaluator.instances": "1",
            "tony.helper.instances": "1",
            "tony.application.untracked.jobtypes": "helper",
            "tony.application.sidecar.jobtypes": "tensorboard",
            "tony.application.stop-on-failure-jobtypes": "worker",
        },
        executes="x",
    )["roles"]
    assert {name: role.get("tracking") for name, role in made.items()} == {
        "worker": None,
        "ps": "tracked",
        "evaluator": "tracked",
        "helper": "untracked",
    }
    assert [name for name, role in made.items() if role.get("stop-on-failure")] == ["worker"]


def test_the_prepare_stage_comes_first() -> None:
    made = document(
        {
            **TWO,
            "tony.db.instances": "1",
            "tony.dbloader.instances": "1",
            "tony.application.prepare-stage": "dbloader, db",
            "tony.application.training-stage": "worker",
        },
        executes="x",
    )["roles"]
    assert [name for name, role in made.items() if role.get("prepare")] == ["db", "dbloader"]


def test_a_group_time_out_makes_a_role_linger() -> None:
    key = "tony.application.dependency.evaluator.timeout.after.A"
    values = {
        **TWO,
        "tony.chief.instances": "1",
        "tony.evaluator.instances": "1",
        "tony.application.group.A": "worker,chief",
        key: "3600",
    }
    made = document(values, executes="x")["roles"]["evaluator"]
    assert made["linger"] == {"after": ["worker", "chief"], "limit": "1h"}
    made = document({**values, f"{key}.ignored": "true"}, executes="x")["roles"]["evaluator"]
    assert made["linger"]["then"] == "untrack"


def test_labels_of_a_role_win_over_those_of_the_application() -> None:
    made = document(
        {
            **TWO,
            "tony.ps.instances": "1",
            "tony.ps.node-label": "big",
            "tony.application.node-label": "gpu",
            "tony.am.node-label": "small",
        },
        executes="x",
    )
    assert {name: role["label"] for name, role in made["roles"].items()} == {
        "worker": "gpu",
        "ps": "big",
    }
    assert made["master"] == {"label": "small"}


def test_images_are_used_where_docker_is_enabled() -> None:
    values = {
        **TWO,
        "tony.ps.instances": "1",
        "tony.docker.containers.image": "common",
        "tony.docker.ps.image": "special",
        "tony.docker.containers.mount": "/data:/data,/x:/y:rw",
    }
    assert "image" not in document(values, executes="x")["roles"]["worker"]
    made = document({**values, "tony.docker.enabled": "true"}, executes="x")["roles"]
    assert {name: role["image"] for name, role in made.items()} == {
        "worker": "common",
        "ps": "special",
    }
    assert made["worker"]["mounts"] == ["/data:/data:ro", "/x:/y:rw"]


def test_preprocessing_runs_the_command_of_all_first() -> None:
    made = document(
        {**TWO, "tony.application.enable-preprocess": "true", "tony.am.memory": "1g"},
        executes="train.py",
        python_binary_path="python",
    )
    assert made["preprocess"] == {
        "command": "python train.py",
        "env": {"PREPROCESSING_JOB": "true"},
        "memory": "1g",
    }


def test_tensorboard_is_a_table_or_a_role_with_its_own_command() -> None:
    made = document(
        {**TWO, "tony.tensorboard.memory": "1g"},
        executes="x",
        sidecar_tensorboard_log_dir="hdfs:///l",
    )
    assert made["tensorboard"] == {"folder": "hdfs:///l", "memory": "1g"}
    assert "tensorboard" not in made["roles"]
    made = document(
        {
            **TWO,
            "tony.tensorboard.command": "tensorboard --logdir $TB_LOG_DIR",
            "tony.tensorboard.instances": "1",
            "tony.application.tensorboard-log-dir": "/logs",
        },
        executes="x",
    )
    assert made["roles"]["tensorboard"]["env"] == {"TB_LOG_DIR": "/logs"}
    assert made["roles"]["tensorboard"]["tracking"] == "sidecar"
    assert "tensorboard" not in made


def test_configurations_of_the_cluster_are_in_one_folder() -> None:
    both = {
        "tony.application.hdfs-conf-path": "/etc/hadoop/hdfs-site.xml",
        "tony.application.yarn-conf-path": "/etc/hadoop/yarn-site.xml",
    }
    assert document({**TWO, **both}, executes="x")["hadoop"]["conf"] == "/etc/hadoop"
    apart = {**both, "tony.application.yarn-conf-path": "/etc/yarn/yarn-site.xml"}
    assert "different folders" in problems({**TWO, **apart}, executes="x")[0]


def test_slips_of_the_keyboard_are_told_with_what_was_meant() -> None:
    told = [
        text
        for _, text in notes(
            {
                **TWO,
                "tony.workr.memory": "4g",
                "tony.worker.memry": "4g",
                "tony.aplication.name": "x",
                "fs.defaultFS": "hdfs://x",
            },
            executes="x",
        )
    ]
    assert told == [
        "tony.xml: tony.workr.memory: it has no effect: the job has no workr "
        "(tony.workr.instances); did you mean tony.worker.memory?",
        "tony.xml: tony.worker.memry: TonY has no such key, so it is left out; did you mean "
        "tony.worker.memory?",
        "tony.xml: tony.aplication.name: TonY has no such key, so it is left out; did you mean "
        "tony.application.name?",
        "tony.xml: fs.defaultFS: this is no key of TonY, so it is left out",
    ]


def told(values: dict[str, str], **given: Any) -> list[str]:
    return [text for _, text in notes(values, executes="x", **given)]


def test_each_key_of_tensorboard_has_an_effect_or_is_told() -> None:
    keys = {
        "tony.application.tensorboard-log-dir": "/logs",
        "tony.tensorboard.instances": "2",
        "tony.tensorboard.resources": "a.txt",
        "tony.tensorboard.node-label": "cpu",
        "tony.tensorboard.placement-spec": "NOTIN,NODE,worker",
        "tony.docker.enabled": "true",
        "tony.docker.tensorboard.image": "board:1",
    }
    table = told({**TWO, **keys})
    own = {**TWO, **keys, "tony.tensorboard.command": "tensorboard --logdir $TB_LOG_DIR"}
    role = document(own, executes="x")["roles"]["tensorboard"]
    assert (role["files"], role["label"], role["image"]) == (["a.txt"], "cpu", "board:1")
    assert [text.partition(": it has no effect: ")[0] for text in told(own)] == [
        "tony.xml: tony.tensorboard.instances",
        "tony.xml: tony.tensorboard.placement-spec",
    ]
    assert [text.partition(": it has no effect: ")[0] for text in table] == [
        "tony.xml: tony.tensorboard.instances",
        "tony.xml: tony.tensorboard.resources",
        "tony.xml: tony.tensorboard.node-label",
        "tony.xml: tony.tensorboard.placement-spec",
        "tony.xml: tony.docker.tensorboard.image",
    ]


def test_a_listed_type_that_the_job_has_not_is_told() -> None:
    for name in (
        "untracked.jobtypes",
        "sidecar.jobtypes",
        "stop-on-failure-jobtypes",
        "prepare-stage",
        "training-stage",
    ):
        key = f"tony.application.{name}"
        meant = "the job has no wroker (tony.wroker.instances); did you mean worker?"
        assert told({**TWO, key: "wroker"}) == [f"tony.xml: {key}: {meant}"]
        assert told({**TWO, key: "worker"}) == []
    group = {
        "tony.application.group.g": "ps,wroker",
        "tony.application.dependency.worker.timeout.after.g": "60",
    }
    assert len(told({**PS, **group})) == 1
    unneeded = told(TWO, hdfs_classpath="/lib", debug=True)
    assert [text.partition(":")[0] for text in unneeded] == ["-hdfs_classpath", "-debug"]


def test_of_two_keys_that_mean_the_same_the_one_that_loses_is_told() -> None:
    older = "tony.task.executor.registry-timeout-sec"
    newer = "tony.container.registration.timeout"
    assert told({**TWO, older: "60", newer: "60000"}) == []
    (text,) = told({**TWO, older: "60", newer: "90000"})
    assert text == f"tony.xml: {older}: it has no effect: {newer} says otherwise, and wins"


def test_a_name_that_no_job_may_have_is_mended() -> None:
    values = {**TWO, "tony.application.name": "Ann's job (2)"}
    assert document(values, executes="x")["name"] == "Ann-s-job-2"
    assert notes(values, executes="x")[0][0] is About.CHANGED
