"""Bytes of TFRecord files into Arrow columns and back, without Spark.

`framing` and `compression` find records in files, `decode` and `encode` are what others call. `uniform_records`
is the fast way for records that are all alike, `protos` the slow one for what the others leave over.
"""
