"""Files that are no TOML, YAML or JSON: what is printed, with the line it is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.spec.wrong import ROLE, RUN, Wrong, problems

WRONG: Wrong = {
    "a key twice": (
        "job.toml",
        RUN + 'name = "a"\n[roles.worker]\ngpus = 1\ngpus = 2\n',
        [
            "job.toml:5: roles.worker.gpus: written twice; the first is on line 4",
        ],
    ),
    "a table twice": (
        "job.toml",
        ROLE + "gpus = 1\n\n[env]\n[roles.worker]\n",
        [
            "job.toml:6: roles.worker: written twice; the first is on line 2",
        ],
    ),
    "a key twice in YAML": (
        "job.yaml",
        "command: x\nroles:\n  worker:\n    gpus: 1\n    gpus: 2\n",
        [
            "job.yaml:5: roles.worker.gpus: written twice; the first is on line 4",
        ],
    ),
    "a key twice in JSON": (
        "job.json",
        '{"command": "x",\n "roles": {},\n "command": "y"}',
        [
            "job.json:3: command: written twice; the first is on line 1",
        ],
    ),
    "text without quotes": (
        "job.toml",
        "name = digits\n",
        [
            'job.toml:1: not TOML: Invalid value; text needs quotes: name = "digits"',
        ],
    ),
    "a unit without quotes": (
        "job.toml",
        ROLE + "memory = 2g\n",
        [
            'job.toml:3: not TOML: Expected newline or end of document after a statement; text needs quotes: memory = "2g"',
        ],
    ),
    "a colon instead of an equals sign": (
        "job.toml",
        "name: digits\n",
        [
            "job.toml:1: not TOML: Expected '=' after a key in a key/value pair; TOML writes key = \"value\", with an equals sign",
        ],
    ),
    "a switch in capitals": (
        "job.toml",
        ROLE + "stop-on-failure = True\n",
        [
            "job.toml:3: not TOML: Invalid value; write true",
        ],
    ),
    "nothing as a value in TOML": (
        "job.toml",
        RUN + "queue = None\n[roles.worker]\n",
        [
            "job.toml:2: not TOML: Invalid value; leave the key out",
        ],
    ),
    "a backslash": (
        "job.toml",
        'source = "."\nstore = "C:\\Users"\n',
        [
            "job.toml:2: not TOML: Invalid hex value; in 'single quotes' a backslash is only a backslash",
        ],
    ),
    "an open list": (
        "job.toml",
        'command = ["python",\n  "train.py"\n\n[roles.worker]\n',
        [
            "job.toml:4: not TOML: Unclosed array; the list that begins on line 1 is not closed",
        ],
    ),
    "an open text": (
        "job.toml",
        'command = "python train.py\n[roles.worker]\n',
        [
            "job.toml:1: not TOML: Illegal character '\\n'; the text is not closed: it needs a quote at its end",
        ],
    ),
    "a table over several lines": (
        "job.toml",
        RUN + 'env = {\n  A = "1"\n}\n',
        [
            "job.toml:2: not TOML: Invalid initial character for a key part; an inline table { … } must be on one line; use a [table] for more",
        ],
    ),
    "a comma too many in JSON": (
        "job.json",
        '{"command": "x",\n "roles": {"worker": {}},\n}\n',
        [
            "job.json:2: not JSON: there is a comma after the last item; remove it",
        ],
    ),
    "single quotes in JSON": (
        "job.json",
        "{'command': 'x'}",
        [
            "job.json:1: not JSON: expected a key in double quotes, found \"'command'\"",
        ],
    ),
    "a word in JSON": (
        "job.json",
        '{"command": x}',
        [
            'job.json:1: not JSON: expected a value, found "x"; text needs double quotes',
        ],
    ),
    "open JSON": (
        "job.json",
        '{"command": "x"',
        [
            "job.json:1: not JSON: expected ',' or '}', the file ends",
        ],
    ),
    "a list as a file": (
        "job.yaml",
        "- command: x\n",
        [
            "job.yaml:1: this is a list, not a job; a job file is a table of keys, such as name and roles",
        ],
    ),
    "a tab in YAML": (
        "job.yaml",
        "roles:\n\tworker:\n",
        [
            "job.yaml:2: not YAML: while scanning for the next token, found character that cannot start any token; indent with spaces, not tabs",
        ],
    ),
    "a tag in YAML": (
        "job.yaml",
        "command: !!python/name:os.system\n",
        [
            "job.yaml:1: the tag !!python/name:os.system is not for job files; remove it",
        ],
    ),
    "bad YAML": (
        "job.yaml",
        "command: python: train\n",
        [
            'job.yaml:1: not YAML: mapping values are not allowed in this context; a text with ": " in it needs quotes',
        ],
    ),
    "two YAML documents": (
        "job.yaml",
        "command: x\n---\ncommand: y\n",
        [
            "job.yaml:2: a second document begins; a file is one job",
        ],
    ),
    "an unknown alias": (
        "job.yaml",
        "command: *nothing\n",
        [
            "job.yaml:1: the alias *nothing is not defined above",
        ],
    ),
    "nothing as a value in YAML": (
        "job.yaml",
        "command: x\ncheckpoint:\ntensorboard: null\nroles:\n  worker:\n    memory:\n    gpus:\n    env:\n      A:\n",
        [
            "job.yaml:2: checkpoint: has no value; write a table ({} has all its defaults), or leave the key out",
            "job.yaml:6: roles.worker.memory: has no value; write an amount of memory, or leave the key out",
            "job.yaml:7: roles.worker.gpus: has no value; write a number, or leave the key out",
            "job.yaml:9: roles.worker.env.A: has no value; write text, or leave the key out",
        ],
    ),
    "deep nesting": (
        "job.yaml",
        "a: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n",
        [
            "job.yaml:1: nested more than 32 levels deep",
        ],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_cannot_be_read_is_told_where_and_what_to_do(
    wrong: str, tmp_path: Path
) -> None:
    name, text, expected = WRONG[wrong]
    assert problems(tmp_path, name, text) == expected
