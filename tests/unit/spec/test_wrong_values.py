"""Keys and values of the wrong kind: what is printed, with the line it is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.spec.wrong import ROLE, RUN, Wrong, problems

WRONG: Wrong = {
    "a number as command": (
        "job.toml",
        "command = 5\n[roles.worker]\n",
        [
            'job.toml:1: command: 5 is a number, not text or a list such as ["a", "b"]',
        ],
    ),
    "a number in a command": (
        "job.toml",
        'command = ["python", 5]\n[roles.worker]\n',
        [
            'job.toml:1: command[1]: 5 is a number, not text; write "5"',
        ],
    ),
    "an unknown key at the top": (
        "job.toml",
        RUN + 'frameworks = "pytorch"\n[roles.worker]\n',
        [
            "job.toml:2: frameworks: unknown key; did you mean framework?",
        ],
    ),
    "a misspelt key of a role": (
        "job.toml",
        ROLE + 'memroy = "2g"\n',
        [
            "job.toml:3: roles.worker.memroy: unknown key; did you mean memory?",
        ],
    ),
    "a misspelt table, and what is wrong in it": (
        "job.toml",
        'command = "python train.py"\n[role.worker]\nmemory = "2x"\ncmd = "b"\nafter = ["ps"]\n'
        '[role.worker.timeout]\nhang = "soon"\n[Enviroment]\nrequirement = "r.txt"\n',
        [
            "job.toml:2: role: unknown key; did you mean roles?",
            'job.toml:3: roles.worker.memory: "2x" is not an amount of memory; did you mean "2g"?',
            "job.toml:4: roles.worker.cmd: unknown key; did you mean command?",
            'job.toml:5: roles.worker.after[0]: there is no role "ps"; there is no other',
            "job.toml:6: roles.worker.timeout: unknown key; did you mean timeouts?",
            'job.toml:7: roles.worker.timeouts.hang: "soon" is not a time; write a number with ms, s, m, h or d, '
            'such as "10s"',
            "job.toml:8: Enviroment: unknown key; did you mean environment?",
            "job.toml:9: environment.requirement: unknown key; did you mean requirements?",
        ],
    ),
    "a misspelt table beside the right one": (
        "job.toml",
        ROLE + 'after = ["ps"]\n[role.ps]\nmemroy = "1g"\n',
        [
            "job.toml:4: role: unknown key; did you mean roles?",
            "job.toml:5: roles.ps.memroy: unknown key; did you mean memory?",
        ],
    ),
    "an underscore in a key": (
        "job.toml",
        ROLE + "stop_on_failure = true\n",
        [
            "job.toml:3: roles.worker.stop_on_failure: unknown key; did you mean stop-on-failure?",
        ],
    ),
    "a key of another table": (
        "job.toml",
        RUN + 'hang = "10s"\n[roles.worker]\n',
        [
            "job.toml:2: hang: unknown key; it belongs in [timeouts] or in [roles.NAME.timeouts]",
        ],
    ),
    "a key of the job in a role": (
        "job.toml",
        ROLE + 'checkpoint = "x"\n',
        [
            "job.toml:3: roles.worker.checkpoint: unknown key; it belongs at the top",
        ],
    ),
    "a key like no other": (
        "job.toml",
        ROLE + "[logs]\nfrobnicate = 1\n",
        [
            "job.toml:4: logs.frobnicate: unknown key; known are max-size, segments",
        ],
    ),
    "no tasks": (
        "job.toml",
        ROLE + "instances = 0\n",
        [
            "job.toml:3: roles.worker.instances: 0 is less than 1; a role has at least one task: leave the role out to have none",
        ],
    ),
    "fewer than no tasks": (
        "job.toml",
        ROLE + "instances = -2\n",
        [
            "job.toml:3: roles.worker.instances: -2 is less than 1; a role has at least one task: leave the role out to have none",
        ],
    ),
    "a range from zero": (
        "job.toml",
        ROLE + 'instances = "0..4"\n',
        [
            'job.toml:3: roles.worker.instances: "0..4" is less than one task; write a number such as 4, or a range "2..8"',
        ],
    ),
    "a range that runs backwards": (
        "job.toml",
        ROLE + 'instances = "8..2"\n',
        [
            'job.toml:3: roles.worker.instances: "8..2" runs backwards; did you mean "2..8"?',
        ],
    ),
    "three dots": (
        "job.toml",
        ROLE + 'instances = "2...8"\n',
        [
            'job.toml:3: roles.worker.instances: "2...8" is not a number of tasks; write a number such as 4, or a range "2..8"',
        ],
    ),
    "half a task": (
        "job.toml",
        ROLE + "instances = 2.5\n",
        [
            "job.toml:3: roles.worker.instances: 2.5 is not a whole number",
        ],
    ),
    "too many tasks": (
        "job.toml",
        ROLE + 'instances = "1..200000"\n',
        [
            'job.toml:3: roles.worker.instances: "1..200000" is more than 100,000 tasks; no job may have more',
        ],
    ),
    "a number in quotes": (
        "job.toml",
        ROLE + 'gpus = "1"\n',
        [
            'job.toml:3: roles.worker.gpus: "1" is text, not a whole number; write 1 without quotes',
        ],
    ),
    "a negative number": (
        "job.toml",
        ROLE + "gpus = -1\n",
        [
            "job.toml:3: roles.worker.gpus: -1 is less than 0",
        ],
    ),
    "no cores": (
        "job.toml",
        ROLE + "cores = 0\n",
        [
            "job.toml:3: roles.worker.cores: 0 is less than 1",
        ],
    ),
    "an absurd number": (
        "job.toml",
        ROLE + "cores = 99999999999999999999\n",
        [
            "job.toml:3: roles.worker.cores: 99999999999999999999 is more than 1,000,000,000",
        ],
    ),
    "a switch as a word": (
        "job.toml",
        ROLE + '[roles.worker.placement]\nspread = "yes"\n',
        [
            'job.toml:4: roles.worker.placement.spread: "yes" is text, not true or false; write true',
        ],
    ),
    "memory without a unit": (
        "job.toml",
        ROLE + "memory = 2048\n",
        [
            'job.toml:3: roles.worker.memory: 2048 has no unit; did you mean "2048m"?',
        ],
    ),
    "memory in words": (
        "job.toml",
        ROLE + 'memory = "2 gigs"\n',
        [
            'job.toml:3: roles.worker.memory: "2 gigs" is not an amount of memory; did you mean "2g"?',
        ],
    ),
    "more memory than there is": (
        "job.toml",
        ROLE + 'memory = "99999999t"\n',
        [
            'job.toml:3: roles.worker.memory: "99999999t" is more memory than any machine has; look at the unit',
        ],
    ),
    "a time without a unit": (
        "job.toml",
        ROLE + '[timeouts]\nhang = "10"\n',
        [
            'job.toml:4: timeouts.hang: "10" is not a time; did you mean "10s"?',
        ],
    ),
    "a time in words": (
        "job.toml",
        ROLE + '[timeouts]\ntotal = "2 hours"\n',
        [
            'job.toml:4: timeouts.total: "2 hours" is not a time; did you mean "2h"?',
        ],
    ),
    "a time of two parts": (
        "job.toml",
        ROLE + '[timeouts]\ntotal = "1h30m"\n',
        [
            'job.toml:4: timeouts.total: "1h30m" is not a time; did you mean "90m"?',
        ],
    ),
    "never as a time": (
        "job.toml",
        ROLE + '[timeouts]\ntotal = "never"\n',
        [
            'job.toml:4: timeouts.total: "never" is not a time; did you mean "off"?',
        ],
    ),
    "a time longer than any job": (
        "job.toml",
        ROLE + '[timeouts]\ntotal = "99999d"\n',
        [
            'job.toml:4: timeouts.total: "99999d" is longer than ten years; "off" means no limit',
        ],
    ),
    "a wrong choice": (
        "job.toml",
        RUN + 'mode = "gangs"\n[roles.worker]\n',
        [
            'job.toml:2: mode: "gangs" is not "gang" or "each"; did you mean "gang"?',
        ],
    ),
    "a choice in capitals": (
        "job.toml",
        ROLE + 'tracking = "Sidecar"\n',
        [
            'job.toml:3: roles.worker.tracking: "Sidecar" is not "tracked", "untracked" or "sidecar"; did you mean "sidecar"?',
        ],
    ),
    "a choice like no other": (
        "job.toml",
        ROLE + 'restart = "always"\n',
        [
            'job.toml:3: roles.worker.restart: "always" is not "gang", "task" or "never"',
        ],
    ),
    "text where a list belongs": (
        "job.toml",
        ROLE + 'after = "ps"\n',
        [
            'job.toml:3: roles.worker.after: "ps" is text, not a list such as ["a", "b"]; write ["ps"]',
        ],
    ),
    "a number where text belongs": (
        "job.toml",
        RUN + "[env]\nLR = 0.1\nDEBUG = true\n[roles.worker]\n",
        [
            'job.toml:3: env.LR: 0.1 is a number, not text; write "0.1"',
            'job.toml:4: env.DEBUG: true is not text; write "true"',
        ],
    ),
    "a list where a table belongs": (
        "job.toml",
        RUN + 'env = ["A=1"]\n[roles.worker]\n',
        [
            'job.toml:2: env: ["A=1"] is a list, not a table; write env = { NAME = "value" }',
        ],
    ),
    "a number where a role belongs": (
        "job.toml",
        RUN + "[roles]\nworker = 4\n",
        [
            "job.toml:3: roles.worker: 4 is a number, not a table; write roles.worker.instances = 4",
        ],
    ),
    "roles in a list": (
        "job.yaml",
        "command: x\nroles:\n  - name: worker\n",
        [
            "job.yaml:2: roles: a list is not a table; write each role as a table under its name, such as roles.worker",
        ],
    ),
    "a date where text belongs": (
        "job.toml",
        RUN + "queue = 2026-11-21\n[roles.worker]\n",
        [
            "job.toml:2: queue: 2026-11-21 is a date or time, not text",
        ],
    ),
    "processes in words": (
        "job.toml",
        ROLE + 'processes = "gpu"\n',
        [
            'job.toml:3: roles.worker.processes: "gpu" is not a number or "gpus"; did you mean "gpus"?',
        ],
    ),
    "no processes": (
        "job.toml",
        ROLE + "processes = 0\n",
        [
            "job.toml:3: roles.worker.processes: 0 is less than 1",
        ],
    ),
    "a NUL in a value": (
        "job.toml",
        RUN + '[env]\nSECRET = "top\\u0000secret"\n[roles.worker]\n',
        [
            "job.toml:3: env.SECRET: has a NUL character, which no program can be given",
        ],
    ),
    "half a character": (
        "job.json",
        '{\n  "command": "x",\n  "env": {"A": "\\ud800"},\n  "roles": {"worker": {}}\n}\n',
        [
            "job.json:3: env.A: has a character that is no text (half of a surrogate pair)",
        ],
    ),
    "a preprocess step without a command": (
        "job.toml",
        ROLE + '[preprocess]\nmemory = "1g"\n',
        [
            "job.toml:3: preprocess: has no command; write preprocess.command",
        ],
    ),
    "a preprocess step without a command's name": (
        "job.toml",
        ROLE + '[preprocess]\ncmd = "x"\n',
        [
            "job.toml:4: preprocess.cmd: unknown key; did you mean command?",
        ],
    ),
    "a priority too high": (
        "job.toml",
        RUN + "priority = 9999999999\n[roles.worker]\n",
        [
            "job.toml:2: priority: 9999999999 is more than 1,000,000,000",
        ],
    ),
    "a variable that is not set": (
        "job.toml",
        RUN + '[env]\nHOME = "${env:HOEM}"\n[roles.worker]\n',
        [
            "job.toml:3: env.HOME: the environment variable HOEM is not set; did you mean HOME? If not, set it, or give a default: ${env:HOEM:-value}",
        ],
    ),
    "a variable like no other": (
        "job.toml",
        RUN + 'queue = "${env:QUEUE}"\n[roles.worker]\n',
        [
            "job.toml:2: queue: the environment variable QUEUE is not set; set it, or give a default: ${env:QUEUE:-value}",
        ],
    ),
    "an unknown thing of the job": (
        "job.toml",
        RUN + 'store = "/data/${job.name}"\n[roles.worker]\n',
        [
            'job.toml:2: store: "${job.name}" is unknown; only ${job.id} is known',
        ],
    ),
    "a wrong mark": (
        "job.toml",
        RUN + 'store = "${env.HOME}/x"\n[roles.worker]\n',
        [
            'job.toml:2: store: "${env.HOME}" cannot be read; write ${env:NAME} or ${env:NAME:-default}; $${ stands for a plain ${',
        ],
    ),
    "a wrong number from the environment": (
        "job.toml",
        ROLE + 'instances = "${env:WHO}"\n',
        [
            'job.toml:3: roles.worker.instances: "me" is not a number of tasks; write a number such as 4, or a range "2..8"',
        ],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_is_named_with_its_line_and_what_to_write(wrong: str, tmp_path: Path) -> None:
    name, text, expected = WRONG[wrong]
    assert problems(tmp_path, name, text) == expected
