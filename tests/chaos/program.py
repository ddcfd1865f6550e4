"""A resumable program for the drill: counts steps, saves them, and writes down each one.

Standard library only: it runs wherever its container is.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

STEP_S = 0.1
SAVE_EVERY = 10

STEPS = int(os.environ["DRILL_STEPS"])
FOLDER = Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
ME = {
    "job": os.environ["HOWDAH_JOB_ID"],
    "task": f"{os.environ['HOWDAH_ROLE']}:{os.environ['HOWDAH_INDEX']}",
    "attempt": int(os.environ["HOWDAH_ATTEMPT"]),
    "generation": int(os.environ["HOWDAH_GENERATION"]),
    "pid": os.getpid(),
}


def note(what: str, step: int) -> None:
    """One line, whole: several programs write the same file."""
    line = json.dumps({**ME, "what": what, "step": step, "time": time.time()}) + "\n"
    descriptor = os.open(os.environ["DRILL_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def save(step: int) -> None:
    """The whole file under its final name, and none of the older ones."""
    draft = FOLDER / "step.tmp"
    draft.write_text(str(step))
    draft.rename(FOLDER / "step")


def main() -> None:
    saved = FOLDER / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    note("start", step)
    while step < STEPS:
        time.sleep(STEP_S)
        step += 1
        note("step", step)
        if ME["task"] == "worker:0" and (step % SAVE_EVERY == 0 or step == STEPS):
            save(step)
    note("end", step)


main()
