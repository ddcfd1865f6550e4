"""Howdah: distributed training jobs on a laptop, on YARN and inside Spark, from one job file."""

__version__ = "0.1.0"
