"""A job directory in two places, one of which is the truth.

`mirror` is for one on HDFS, whose journal `replica` makes durable there. `local_copy` copies other users' directories,
without trusting them; `howdah.portal` and `howdah.backends.copied_site` use it.
"""
