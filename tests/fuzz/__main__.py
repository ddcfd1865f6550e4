"""``python -m tests.fuzz TARGET N [--seed S]``: N inputs for one decoder, or for ``all``."""

from __future__ import annotations

import argparse
import random
import time

from tests.fuzz.run import fuzz
from tests.fuzz.targets import TARGETS

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("target", choices=[*TARGETS, "all"])
parser.add_argument("count", type=int)
parser.add_argument("--seed", type=int, default=random.randrange(2**31))
options = parser.parse_args()
for name in TARGETS if options.target == "all" else [options.target]:
    begin = time.monotonic()
    fuzz(name, options.count, options.seed)
    print(f"{name}: {options.count} inputs, seed {options.seed}, {time.monotonic() - begin:.1f} s")
