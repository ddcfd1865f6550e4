"""Benchmarks of the YARN backend."""
