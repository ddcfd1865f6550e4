"""Stores: places that a job file names, each a local folder, a folder on HDFS, or any fsspec URL.

`checkpoint_stores` has versions of a folder, `destinations` files that are copied there and grow. `write_probe` finds
out at submission whether a store can be written.
"""
