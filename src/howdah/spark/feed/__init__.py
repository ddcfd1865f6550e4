"""Rows from Spark into training processes: Arrow batches over sockets, nothing pickled.

Three sides: feeders in Spark's Python workers (`howdah.spark.feed.feeder`), trainers (`trainer`), and
the feed's master in the driver (`master`, which decides by the pure `plan`).
"""
