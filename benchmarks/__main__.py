"""``python -m benchmarks [name …] [--runs N] [--json] [--quick]``."""

from __future__ import annotations

import argparse
import sys
import time
from types import ModuleType

import msgspec

from benchmarks import (
    agent,
    coordinator,
    flood,
    launch,
    portal,
    reaction,
    spark,
    tfrecord,
    training,
    yarn,
    yarn_scale,
)
from benchmarks.results import Result, load, machine, table

ALL: dict[str, ModuleType] = {
    "launch": launch,
    "coordinator": coordinator,
    "flood": flood,
    "agent": agent,
    "reaction": reaction,
    "training": training,
    "portal": portal,
    "yarn": yarn,
    "yarn-scale": yarn_scale,
    "spark": spark,
    "tfrecord": tfrecord,
}


def main() -> int:
    """Run those that were asked for, one after the other; JSON on standard output, a line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(ALL)}; all")
    parser.add_argument("--runs", type=int, help="rounds of each measure")
    parser.add_argument("--json", action="store_true", help="JSON only: no tables")
    parser.add_argument("--quick", action="store_true", help="tiny: shows that it works, no more")
    options = parser.parse_args()
    if unknown := set(options.names) - ALL.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(ALL)}")
    for name in options.names or ALL:
        settings = ALL[name].QUICK if options.quick else ALL[name].Settings()
        if options.runs:
            settings = msgspec.structs.replace(settings, runs=options.runs)
        before, begin = load(), time.monotonic()
        measures, left_out = ALL[name].benchmark(settings)
        result = Result(
            benchmark=name,
            measures=tuple(measures),
            left_out=tuple(left_out),
            settings=msgspec.structs.asdict(settings),
            seconds=round(time.monotonic() - begin, 1),
            machine=machine(before),
        )
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        sys.stdout.flush()
        if not options.json:
            print("\n" + table(result) + "\n", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
