"""What the programs of mode each are told, whichever of them starts first."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.howdah import howdah, job_file

TELLS = """
import json
import os

from howdah import task

me = task.context()
own = {role: [bool(address) for address in places] for role, places in me.cluster.items()}
told = [me.index, me.world_size, os.environ["HOWDAH_WORLD_SIZE"], os.environ["TASK_NUM"], own]
print(json.dumps(told))
"""


def told(run_lines: list[str]) -> list[object]:
    return sorted(json.loads(line.partition(" | ")[2]) for line in run_lines if " | [" in line)


def test_every_task_of_mode_each_is_told_the_planned_size(tmp_path: Path) -> None:
    file = job_file(tmp_path, TELLS, mode="each", roles={"worker": {"instances": 4}})
    run = howdah("run", str(file))
    only = [[index == place for place in range(4)] for index in range(4)]
    assert told(run.out) == [[i, 4, "4", "4", {"worker": only[i]}] for i in range(4)]


def test_the_dry_run_of_mode_each_promises_what_the_programs_get(tmp_path: Path) -> None:
    file = job_file(tmp_path, TELLS, mode="each", roles={"worker": {"instances": 4}})
    (document,) = howdah("run", "--dry-run", "--json", str(file)).documents()
    environments = [task["programs"][0]["environment"] for task in document["tasks"]]
    assert [env["HOWDAH_WORLD_SIZE"] for env in environments] == ["4"] * 4
    for index, env in enumerate(environments):
        (places,) = json.loads(env["HOWDAH_CLUSTER"]).values()
        assert [bool(place) for place in places] == [index == place for place in range(4)]
