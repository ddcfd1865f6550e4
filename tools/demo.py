"""``make demo``: train a real distributed model here, and check that it learnt something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
JOB = "examples/tensorflow/job.toml"
GOOD_ENOUGH = 0.95

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ACCURACY = re.compile(r"final accuracy (\d\.\d+)")


def main() -> int:
    """Run the job with its output on the terminal; 0 if it succeeded and the model is good."""
    howdah = Path(sys.executable).with_name("howdah")
    print(f"$ howdah run {JOB}", flush=True)
    env = dict(os.environ)
    if sys.stdout.isatty():
        env.setdefault("FORCE_COLOR", "1")
    accuracies: list[float] = []
    with subprocess.Popen(
        [howdah, "run", JOB],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(line, end="", flush=True)
                if found := _ACCURACY.search(_COLOUR.sub("", line)):
                    accuracies.append(float(found[1]))
        except KeyboardInterrupt:
            process.wait()  # it has had the same Ctrl-C and ends the job
            return 130
    if process.returncode != 0:
        print(f"The job failed: howdah ended with exit code {process.returncode}.")
        return process.returncode
    if not accuracies:
        print("The job printed no accuracy.")
        return 1
    if min(accuracies) <= GOOD_ENOUGH:
        print(f"Accuracy {min(accuracies):.4f} is not above {GOOD_ENOUGH}.")
        return 1
    print(f"Accuracy {min(accuracies):.4f} > {GOOD_ENOUGH}: the model has learnt the digits.")
    print("To use howdah here: source .venv/bin/activate, then docs/tutorial.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
