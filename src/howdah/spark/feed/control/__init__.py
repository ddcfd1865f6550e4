"""The driver's side of all feeds of one cluster.

`feed_controller` is its thread, `control_server` what it hears and answers, `run_state` and `plan` what it decides,
without any I/O.
"""
