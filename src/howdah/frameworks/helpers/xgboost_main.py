"""Serve XGBoost's tracker on this task's port. Run with the user's interpreter.

One tracker serves one group of workers once, and its port cannot be bound again for a minute
(XGBoost does not set SO_REUSEADDR): a program forms its group once and trains in it as often as it
likes. When the group is done, this waits to be ended: a tracker's exit would say nothing. What goes
wrong in the group is the workers' failure and shown by them; here it is printed and no more.
"""

import os
import signal
import socket
import sys


def main():
    from xgboost.tracker import RabitTracker

    # The tracker wants an address, not a name.
    host = socket.getaddrinfo(os.environ["HOWDAH_HOST"], None, proto=socket.IPPROTO_TCP)[0][4][0]
    port = int(os.environ["HOWDAH_PORT"])
    workers = int(os.environ["HOWDAH_WORLD_SIZE"])
    tracker = RabitTracker(n_workers=workers, host_ip=host, port=port, sortby="task")
    tracker.start()
    print(f"tracker for {workers} workers on {host}:{port}", flush=True)
    try:
        tracker.wait_for()
        print("all workers are done", flush=True)
    except Exception as error:  # whatever it is, the workers have it too
        print(f"the group ended with: {error}", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
