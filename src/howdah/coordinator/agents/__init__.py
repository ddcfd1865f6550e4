"""The coordinator's side of agents: who may speak, what they say, what they are told.

Start with `server`, which has their connections. `heartbeats` finds missed ones and hangs, `launch_specs` fills in
what an agent is to start, `limits` bounds what one may have kept, `container_secrets` tells them apart. Knows nothing
of clients.
"""
