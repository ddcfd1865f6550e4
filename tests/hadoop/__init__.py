"""A real Hadoop for the tests: HDFS and YARN from Maven Central, each daemon its own JVM.

Tests use the fixtures of `tests.hadoop.plugin`; people use `python -m tests.hadoop up`.
"""
