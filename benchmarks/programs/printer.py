"""Prints as much as it is told, and writes down how long that took and how it was held up.

usage: printer.py REPORT MEGABYTES [MEGABYTES_PER_SECOND]
"""

import json
import os
import sys
import time
from pathlib import Path

LINE = b"step 000000 loss 0.123456 accuracy 0.9876 examples/s 12345.6 learning rate 0.001 epoch 1 of 5\n"
BLOCK = LINE * (65536 // len(LINE))


def main(report: str, megabytes: float, rate: float = 0.0) -> None:
    """Print, then report."""
    blocks = int(megabytes * 1e6 / len(BLOCK))
    pause = len(BLOCK) / (rate * 1e6) if rate else 0.0
    longest = writing = 0.0
    begin = time.perf_counter()
    for block in range(blocks):
        if pause and (wait := begin + block * pause - time.perf_counter()) > 0:
            time.sleep(wait)
        before = time.perf_counter()
        view = memoryview(BLOCK)
        while view:
            view = view[os.write(1, view) :]
        took = time.perf_counter() - before
        writing += took
        longest = max(longest, took)
    seconds = time.perf_counter() - begin
    size = blocks * len(BLOCK)
    said = {"bytes": size, "seconds": seconds, "writing_s": writing, "longest_s": longest}
    with open(report + ".new", "w") as file:
        json.dump(said, file)
    Path(report + ".new").replace(report)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
