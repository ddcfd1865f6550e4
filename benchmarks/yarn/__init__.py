"""From a submission to the first program's line and to the end, on a real YARN."""

from benchmarks.yarn.benchmark import QUICK, Settings, benchmark

__all__ = ["QUICK", "Settings", "benchmark"]
