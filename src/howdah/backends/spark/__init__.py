"""Containers granted by Spark: a job's agents run in the slots of a Spark application."""
