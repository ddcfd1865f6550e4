"""``python -m tests.spark.feed.simulation FIRST_SEED COUNT``: exits with 1 if it found a defect."""

import sys

from tests.spark.feed.simulation.hunt import main

sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
