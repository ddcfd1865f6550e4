"""Record batches of Arrow, as a feed receives, cuts and converts them.

`ipc` reads the stream, `columns` makes numpy arrays of them, `spark_structs`
of Spark's vectors and images; `answers` makes batches of what a program answers.
"""
