"""What runs in the Spark tasks of a feed: a partition's rows, brought to a trainer.

`feeder` brings rows, `scorer` brings them and takes answers back; `feeding` is what both have in common, and
`feeder_client` their connections.
"""
