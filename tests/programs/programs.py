"""Programs as their users have them, run by the command line in a folder of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.cli.howdah import Run, start


def launch(
    folder: Path, files: dict[str, str], *options: str, within_s: float = 150, **job: Any
) -> Run:
    """Write the files and a job that runs on this Python with one thread a program; run it to its end,
    with options of ``howdah run``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    job = {"name": "quick", "environment": {"python": sys.executable}, **job}
    job["env"] = {"OMP_NUM_THREADS": "1", **job.get("env", {})}
    (folder / "job.json").write_text(json.dumps(job))
    run = start("run", *options, str(folder / "job.json"))
    run.end(within_s=within_s)
    return run


def succeeds(
    folder: Path, files: dict[str, str], *options: str, within_s: float = 150, **job: Any
) -> Run:
    """The same, for a job that ends well."""
    run = launch(folder, files, *options, within_s=within_s, **job)
    assert run.process.returncode == 0, f"{run.text}\n{run.told}"
    return run
