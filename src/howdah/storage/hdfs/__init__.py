"""Files on HDFS, without a JVM: what Howdah needs of them, over `hdfs_native` (Rust).

`files` is where to start; `session` is one connection and what is done again, `calls` are calls that can be
given up. `names` and `errors` import nothing that takes time, and may be used anywhere.
"""
