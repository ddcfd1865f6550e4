"""Serve XGBoost's tracker on this task's port. Run with the user's interpreter.

One tracker serves one group of workers once. A script may form several groups one after the other
(train, then train again), so another tracker follows each that is done, until Howdah ends it. What
goes wrong in a group is the workers' failure and shown by them: it is printed here and no more.
"""

import os
import socket
import sys


def main():
    from xgboost.tracker import RabitTracker

    # The tracker wants an address, not a name.
    host = socket.getaddrinfo(os.environ["HOWDAH_HOST"], None, proto=socket.IPPROTO_TCP)[0][4][0]
    port = int(os.environ["HOWDAH_PORT"])
    workers = int(os.environ["HOWDAH_WORLD_SIZE"])
    while True:
        tracker = RabitTracker(n_workers=workers, host_ip=host, port=port, sortby="task")
        tracker.start()
        print(f"tracker for {workers} workers on {host}:{port}", flush=True)
        try:
            tracker.wait_for()
            print("all workers are done", flush=True)
        except Exception as error:  # whatever it is, the workers have it too
            print(f"a group of workers ended with: {error}", flush=True)
        finally:
            tracker.free()


if __name__ == "__main__":
    sys.exit(main())
