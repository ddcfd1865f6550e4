"""TFRecord files: Howdah beside the JVM's reader, TensorFlowOnSpark's dfutil, and TensorFlow."""

from benchmarks.tfrecord.benchmark import QUICK, Settings, benchmark

__all__ = ["QUICK", "Settings", "benchmark"]
