"""Rows from Spark to training functions: Howdah, TensorFlowOnSpark, and the floor."""

from benchmarks.spark.benchmark import QUICK, Settings, benchmark

__all__ = ["QUICK", "Settings", "benchmark"]
