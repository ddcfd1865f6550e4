"""Rows from Spark into training processes: Arrow batches over sockets, nothing pickled.

Three sides: feeders in Spark's Python workers (`howdah.spark.feed.tasks.feeder`), trainers (`trainer`), and
the feed's controller in the driver (`controller`, which decides by the pure `plan`).

- a row's way: `feeder`, `feeder_client`; then in the trainer `server`, `ingest_stream`, `ingest`; out of it
  `batch_dispenser`, `feed`, and `torch_feeds`, `tensorflow_feeds`, `jax_feeds`
- back-pressure: `ingest.room` waits until the feed's buffer has room, and meanwhile the full socket holds
  the feeder back; where the program waits for a batch all the same, further rows go to a file (`cache`)
- equal steps on all ranks: `plan`, `run_state`, `control_server`
- scoring: `scorer`, `answers`

docs/design/008-spark.md tells how they work together.
"""
