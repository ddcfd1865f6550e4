"""TOML, YAML and JSON give the same document, and the line of every key."""

from __future__ import annotations

import pytest

from howdah.spec.readers import json_reader, toml_reader, yaml_reader
from howdah.spec.readers.reading import MAX_VALUES, Unreadable

TOML = """\
name = "digits" # a comment
command = '''
python "train".py
'''

[roles.worker]
instances = 2
env = { A = "x", "B.C" = "[not a table]" }
timeouts.hang = "10s"
after = [
  "ps", # first
  "chief",
]

[roles."worker two".env]
"""

YAML = """\
name: digits # a comment
command: |
  python "train".py
roles:
  worker:
    instances: 2
    env: {A: x, "B.C": "[not a table]"}
    timeouts:
      hang: 10s
    after:
      - ps
      - chief
  worker two:
    env: {}
"""

JSON = """\
{
  "name": "digits",
  "command": "python \\"train\\".py\\n",
  "roles": {
    "worker": {
      "instances": 2,
      "env": {"A": "x", "B.C": "[not a table]"},
      "timeouts": {"hang": "10s"},
      "after": ["ps",
                "chief"]
    },
    "worker two": {"env": {}}
  }
}
"""

LINES = {
    ("name",): (1, 1, 2),
    ("command",): (2, 2, 3),
    ("roles",): (6, 4, 4),
    ("roles", "worker"): (6, 5, 5),
    ("roles", "worker", "instances"): (7, 6, 6),
    ("roles", "worker", "env"): (8, 7, 7),
    ("roles", "worker", "env", "B.C"): (8, 7, 7),
    ("roles", "worker", "timeouts"): (9, 8, 8),
    ("roles", "worker", "timeouts", "hang"): (9, 9, 8),
    ("roles", "worker", "after", 0): (11, 11, 9),
    ("roles", "worker", "after", 1): (12, 12, 10),
    ("roles", "worker two", "env"): (15, 14, 12),
}


def test_the_three_formats_give_the_same_document() -> None:
    documents = [
        toml_reader.read(TOML)[0],
        yaml_reader.read(YAML)[0],
        json_reader.read(JSON)[0],
    ]
    assert documents[0] == documents[1] == documents[2]


@pytest.mark.parametrize("path", LINES)
def test_every_key_has_its_line(path: tuple[str | int, ...]) -> None:
    lines = [
        reader.read(text)[1].lines[path]
        for reader, text in ((toml_reader, TOML), (yaml_reader, YAML), (json_reader, JSON))
    ]
    assert tuple(lines) == LINES[path]


def test_lines_are_the_same_with_windows_line_ends() -> None:
    _, reading = toml_reader.read(TOML.replace("\n", "\r\n"))
    assert reading.lines == toml_reader.read(TOML)[1].lines


def test_a_header_after_its_own_subtable_has_its_own_line() -> None:
    _, reading = toml_reader.read("[roles.worker.env]\nA = '1'\n\n[roles.worker]\ngpus = 1\n")
    assert reading.lines["roles", "worker"] == 4
    assert reading.repeated == []


def test_arrays_of_tables_are_counted() -> None:
    _, reading = toml_reader.read("[[a]]\nk = 1\n[[a]]\n[a.b]\nk = 2\n")
    assert reading.lines["a", 0, "k"] == 2
    assert reading.lines["a", 1, "b", "k"] == 5


@pytest.mark.parametrize("quote", ['"""', "'''"])
def test_keys_inside_a_long_text_are_no_keys(quote: str) -> None:
    text = f"a = {quote}\n[b]\nc = 1\n{quote[0]}{quote[0]}{quote}\nd = 1\n"
    _, reading = toml_reader.read(text)
    assert set(reading.lines) == {("a",), ("d",)}
    assert reading.lines["d",] == 5


def test_yaml_words_are_read_as_yaml_1_2_does() -> None:
    text = "[off, no, yes, 12:30, 0x10, 2026-11-21, 1_000, true, 1, 1.5, 1e3, ~, '5', .5]"
    assert yaml_reader.read(text)[0] == [
        *("off", "no", "yes", "12:30", "0x10", "2026-11-21", "1_000"),
        *(True, 1, 1.5, 1000.0, None, "5", 0.5),
    ]


def test_yaml_keys_are_text() -> None:
    assert yaml_reader.read("env: {NO: a, 1: b, true: c, null: d}")[0] == {
        "env": {"NO": "a", "1": "b", "true": "c", "null": "d"}
    }


def test_yaml_anchors_and_merge_keys_work() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [{x: 9}, *a]}\nd: *a\n"
    document, reading = yaml_reader.read(text)
    assert document["b"] == {"x": 1, "y": 3}
    assert document["c"] == {"x": 9, "y": 2}
    assert document["d"] == {"x": 1, "y": 2}
    assert reading.lines["d",] == 4


def test_an_empty_yaml_file_is_nothing() -> None:
    assert yaml_reader.read("# only a comment\n")[0] is None


def test_json_pairs_of_surrogates_are_one_character() -> None:
    assert json_reader.read('"\\ud83d\\ude00"')[0] == "😀"


BOMBS = {
    "deep toml lists": (toml_reader, "a = " + "[" * 200_000),
    "deep toml tables": (toml_reader, "a = " + "{a = " * 100_000),
    "a long toml key": (toml_reader, "a." * 400_000 + "a = 1"),
    "a long toml header": (toml_reader, "[" + "a." * 400_000 + "a]"),
    "many toml values": (toml_reader, "a = [" + "1," * 400_000 + "]"),
    "many toml headers": (toml_reader, "[a]\n" * 200_000),
    "many toml tables": (toml_reader, "".join(f"[[a]]\n[a.b{i}]\n" for i in range(30_000))),
    "deep json": (json_reader, "[" * 500_000),
    "many json values": (json_reader, "[" + "1," * 400_000 + "1]"),
    "a json number of a million digits": (json_reader, "9" * 1_000_000),
    "a toml number of a million digits": (toml_reader, "a = " + "9" * 1_000_000),
    "deep yaml": (yaml_reader, "[" * 500_000),
    "deep yaml blocks": (yaml_reader, "- " * 300_000),
    "many yaml values": (yaml_reader, "[" + "1," * 400_000 + "1]"),
    "yaml laughs": (
        yaml_reader,
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [{f'*a{i - 1}, ' * 9}]\n" for i in range(1, 30)),
    ),
    "yaml merges": (
        yaml_reader,
        "a: &a {" + ", ".join(f"k{i}: 1" for i in range(1000)) + "}\n"
        "b: {" + ", ".join(["<<: *a"] * 1000) + "}\n",
    ),
    "a yaml alias of itself": (yaml_reader, "a: &a {b: *a}"),
    "deep yaml by aliases": (
        yaml_reader,
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100)),
    ),
}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_at_its_bound(bomb: str) -> None:
    reader, text = BOMBS[bomb]
    with pytest.raises(Unreadable) as refused:
        document, reading = reader.read(text)
        # What is only written twice is refused by the caller.
        raise Unreadable(None, f"{len(document)} {len(reading.repeated)}")
    assert len(refused.value.message) < 200


def test_as_many_values_as_allowed_are_read() -> None:
    text = "a = [" + "1," * (MAX_VALUES - 2) + "]"
    assert len(toml_reader.read(text)[0]["a"]) == MAX_VALUES - 2
