"""Start JupyterLab as a task and announce its page. Run with the user's interpreter.

Standard library and `howdah.task` only. JupyterLab reads its token, the attempt's page token, from a
file by itself (``IdentityProvider.token``), so it is in no argument list and no environment. The
server keeps the job page's prefix, which Jupyter needs behind a proxy.

With ``--idle=SECONDS`` it ends when nothing has run or been saved for so long: kernels and terminals are ended first,
even if a page is still open on them, then the server. It looks once a minute.

With ``--check`` it only says whether JupyterLab is installed, by its exit code.
"""

import importlib.util
import os
import sys


def main():
    if importlib.util.find_spec("jupyterlab") is None:
        print(
            f"howdah: refused: JupyterLab is not installed for {sys.executable}; install it there "
            "(pip install jupyterlab), or name an environment that has it "
            "(--python, --venv or --requirements)",
            file=sys.stderr,
        )
        return 1
    if "--check" in sys.argv:
        return 0
    from howdah import task

    token_file = os.environ.get("HOWDAH_PAGE_TOKEN_FILE")
    if not token_file:
        print("the agent could not write the notebook's token; is its disk full?", file=sys.stderr)
        return 1
    os.environ.pop("JUPYTER_TOKEN", None)
    os.environ["JUPYTER_TOKEN_FILE"] = token_file
    host, port = os.environ["HOWDAH_HOST"], os.environ["HOWDAH_PORT"]
    role, index = os.environ["HOWDAH_ROLE"], os.environ["HOWDAH_INDEX"]
    task.announce_web(
        "JupyterLab", int(port), "/lab", keeps_prefix=True, locked=True, viewable=False
    )
    arguments = [
        "--no-browser",
        "--allow-root",  # containers of a cluster run as whoever the site decided
        f"--ServerApp.ip={host}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.base_url=/proxy/{role}:{index}/",
        "--ServerApp.allow_remote_access=True",
        "--ServerApp.root_dir=.",
    ]
    program = ["-m", "jupyterlab"]
    for given in sys.argv[1:]:
        arguments += idle(int(given.partition("=")[2]))
        program = ["-c", IDLE]
    return os.execv(sys.executable, [sys.executable, *program, *arguments])


IDLE = """
from jupyter_server.base.handlers import APIHandler
from jupyterlab.labapp import main

# A page that is open asks for the lists of kernels and sessions every few seconds.
APIHandler._track_activity = property(lambda self: self.request.method not in ("GET", "HEAD"))
main()
"""


def idle(seconds):
    """Options of JupyterLab."""
    every = min(seconds, 60)
    return [
        f"--ServerApp.shutdown_no_activity_timeout={seconds}",
        f"--MappingKernelManager.cull_idle_timeout={seconds}",
        f"--MappingKernelManager.cull_interval={every}",
        "--MappingKernelManager.cull_connected=True",
        f"--TerminalManager.cull_inactive_timeout={seconds}",
        f"--TerminalManager.cull_interval={every}",
    ]


if __name__ == "__main__":
    sys.exit(main())
