"""Logs of several tasks together, in the order of time."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from tests.cli.howdah import gone, job_file, newest, start, until
from tests.cli.inside import howdah

TURNS = """
import os, time
me = int(os.environ["HOWDAH_INDEX"])
for turn, (who, word) in enumerate(((0, "one"), (1, "two"), (0, "three"), (1, "four"))):
    while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], f"go-{turn}")):
        time.sleep(0.01)
    if who == me:
        time.sleep(0.3)  # lines of the same tenth of a second may be in any order
        print(word, flush=True)
"""


def test_logs_of_several_tasks_are_merged_by_time(tmp_path: Path) -> None:
    roles = {"worker": {"instances": 2}, "ps": {"instances": 1, "command": ["true"]}}
    howdah("submit", str(job_file(tmp_path, TURNS, roles=roles)))
    job = newest()

    def take_turn(number: int, word: str) -> None:
        (job.shared / f"go-{number}").touch()
        until(lambda: word in howdah("logs").text, f"{word} is printed")

    for number, word in enumerate(("one", "two", "three")):
        take_turn(number, word)
    merged = ["worker:0 | one", "worker:1 | two", "worker:0 | three"]
    assert howdah("logs", job.job_id).out == merged
    followed = start("logs", "-f", "--json", "worker:1", "worker:0")
    followed.until_line("three")
    take_turn(3, "four")
    assert followed.end() == 0
    lines = followed.documents()
    assert [line["text"] for line in lines] == ["one", "two", "three", "four"]
    times = [line["time"] for line in lines]
    assert times == sorted(times) and job.meta().submitted < times[0]

    gone(job)
    merged.append("worker:1 | four")
    for tasks in ((), ("worker:1", "worker:0"), ("worker",), ("worker:0", "--task", "worker:1")):
        assert howdah("logs", *([job.job_id] if tasks == ("worker",) else []), *tasks).out == merged
    silent = howdah("logs", job.job_id, "ps")
    assert (silent.out, silent.told) == ([], "howdah: ps has written nothing")
    assert howdah("logs", job.job_id, "worker:1", "--tail", "1").out == merged[3:]
    third = datetime.datetime.fromtimestamp(times[2]).isoformat()
    assert howdah("logs", "--since", third).out == merged[2:]
    assert howdah("logs", "--since", third, "--grep", "four").out == merged[3:]
    assert howdah("logs", "--since", "2999-01-01").out == []
    stamped = howdah("logs", "--timestamps", "--no-prefix").out
    shown = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d (\w+)")
    assert [shown.fullmatch(line)[1] for line in stamped] == ["one", "two", "three", "four"]  # pyright: ignore[reportOptionalSubscript]
    assert howdah("logs", "--since", stamped[3].rpartition(" ")[0]).out == merged[3:]
    refused = howdah("logs", job.job_id, "chief", code=2).told
    assert "has no task 'chief'; it has worker:0, worker:1, ps:0" in refused
