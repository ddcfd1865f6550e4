"""The node daemon: this machine's containers of one job, and the care for its coordinator.

`main` is its beginning and `daemon` its work, on one thread in `event_loop`. `containers` and `agents` are
what it starts, `supervision` decides when a dead coordinator is started again (pure),
`coordinator_supervisor` does it.
"""
