"""Rows from Spark into training processes: Arrow batches over sockets, nothing pickled.

Three sides: feeders in Spark's Python workers (`howdah.spark.feed.tasks.feeder`), trainers (`trainer`), and
the feed's controller in the driver (`control`, a package, which decides by the pure `control.plan`).

- a row's way: `tasks` (what runs in Spark's tasks); then in the trainer `server` (behind `tls_proxy` for
  those of other hosts), `ingest_stream`, `ingest`;
  out of it `batch_dispenser`, `feed`, and `adapters` for the frameworks
- back-pressure: `ingest.room` waits until the feed's buffer has room, and meanwhile the full socket holds
  the feeder back; where the program waits for a batch all the same, further rows go to a file (`cache`)
- equal steps on all ranks: `control.plan`, `control.run_state`, `control.control_server`
- scoring: `tasks.scorer`, `arrow.answers`

docs/design/008-spark.md tells how they work together.
"""
