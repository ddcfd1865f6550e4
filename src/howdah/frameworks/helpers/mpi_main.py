"""Write the job's hostfile, then become the user's program. Any Python 3; standard library only.

The file lies in the task's own folder and is named by the variables that Open MPI 4, Open MPI 5
(PRRTE) and Hydra read.
"""

import os
import sys
from pathlib import Path

NAMED_BY = (
    "HOWDAH_MPI_HOSTFILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
)


def main():
    hosts = os.environ.get("HOWDAH_MPI_HOSTS")
    if hosts:
        slots = [entry.rpartition(":") for entry in hosts.split(",")]
        process = os.environ["HOWDAH_LOCAL_RANK"]
        hostfile = Path.cwd() / f".hostfile-{process}"
        hostfile.write_text("".join(f"{host} slots={n}\n" for host, _, n in slots))
        for name in NAMED_BY:
            os.environ[name] = str(hostfile)
        # Hydra's own form: host:slots.
        machines = Path.cwd() / f".machinefile-{process}"
        machines.write_text("".join(f"{host}:{n}\n" for host, _, n in slots))
        os.environ["HYDRA_HOST_FILE"] = str(machines)
    argv = sys.argv[1:]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main())
