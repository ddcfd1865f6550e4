"""The state machine that decides for one job: events in, commands out. No I/O and no clock.

Start with `machine` (`Machine.handle`) and `state`; docs/design/001-overview.md has a line for each
module. A failure goes through `causes` (its class), `restart` (window, budget, pauses) and `gang`.
Missed heartbeats and hangs are judged in `progress`, from what `howdah.coordinator.agents.heartbeats` gives
it.
"""
