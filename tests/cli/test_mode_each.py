"""What the programs of mode each are told, whichever of them starts first."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.cli.howdah import job_file
from tests.cli.inside import howdah

TELLS = """
import json
import sys
import os

from howdah import task

me = task.context()
own = {role: [bool(address) for address in places] for role, places in me.cluster.items()}
told = [me.index, me.world_size, os.environ["HOWDAH_WORLD_SIZE"], os.environ["TASK_NUM"], own]
print(json.dumps(told))
"""


def told(run_lines: list[str]) -> list[list[Any]]:
    return sorted(json.loads(line.partition(" | ")[2]) for line in run_lines if " | [" in line)


def test_every_task_of_mode_each_is_told_the_planned_size_as_a_dry_run_shows(
    tmp_path: Path,
) -> None:
    file = job_file(tmp_path, TELLS, mode="each", roles={"worker": {"instances": 4}})
    run = howdah("run", str(file))
    only = [[index == place for place in range(4)] for index in range(4)]
    assert told(run.out) == [[i, 4, "4", "4", {"worker": only[i]}] for i in range(4)]
    (document,) = howdah("run", "--dry-run", "--json", str(file)).documents()
    environments = [task["programs"][0]["environment"] for task in document["tasks"]]
    assert [env["HOWDAH_WORLD_SIZE"] for env in environments] == ["4"] * 4
    for index, env in enumerate(environments):
        (places,) = json.loads(env["HOWDAH_CLUSTER"]).values()
        assert [bool(place) for place in places] == only[index]


def test_a_task_of_mode_each_finds_the_server_it_was_started_after(tmp_path: Path) -> None:
    serves = (
        "import os, socket, time; s = socket.create_server(('', int(os.environ['HOWDAH_PORT'])))"
    )
    roles = {
        "server": {
            "command": [sys.executable, "-c", f"{serves}; time.sleep(600)"],
            "tracking": "untracked",
        },
        "worker": {"instances": 2, "after": ["server"]},
    }
    run = howdah("run", str(job_file(tmp_path, TELLS, mode="each", roles=roles)))
    assert [own["server"] for *_, own in told(run.out)] == [[True], [True]]
