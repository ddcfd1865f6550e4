"""The node daemon's program: ``python -I boot.py [--adopt] [--agent module:function] …``.

Run as a file, so that it works wherever Howdah was imported from: an isolated interpreter sees
neither PYTHONPATH nor the current folder. Standard input is a socket to whoever starts it.
"""

import os
import sys


def _detach() -> None:
    """Leave the starter's session and its care: its child ends here, the daemon is nobody's."""
    os.setsid()
    if os.fork():
        os._exit(0)
    os.umask(0o077)
    os.chdir("/")


if __name__ == "__main__":
    _detach()
    here: str = os.path.abspath(__file__)  # noqa: PTH100 - pathlib is not imported yet
    root: str = here.split(os.sep + os.path.join("howdah", "backends"))[0]
    if root not in sys.path:
        sys.path.insert(0, root)
    from howdah.backends.local.node.main import main

    main(sys.argv[1:])
