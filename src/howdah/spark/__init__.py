"""Training inside Spark: clusters in executors, fed with DataFrames."""
