"""Run a command as a member of the job's Ray cluster: it gets the cluster's token. Standard library only.

All tasks of a job share a private key (HOWDAH_CERTIFICATES), and nobody else has it, so each makes the same
token of it, whether or not the tasks see a common folder. There is a new one for each cluster.
"""

import hmac
import os
import sys
from pathlib import Path


def token() -> str:
    """The cluster's."""
    key = Path(os.environ["HOWDAH_CERTIFICATES"].split(os.pathsep)[2]).read_bytes()
    cluster = f"ray {os.environ['HOWDAH_JOB_ID']} {os.environ['HOWDAH_GENERATION']}"
    return hmac.new(key, cluster.encode(), "sha256").hexdigest()


def write(path: Path, text: str) -> None:
    """A file that its owner alone can read, there completely or not at all."""
    temporary = f"{path}.{os.getpid()}"
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    Path(temporary).replace(path)


def main() -> int:
    path = Path(os.environ["HOWDAH_PAGE_TOKEN_FILE"]).with_name("ray-token")
    write(path, token())
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)
    command = sys.argv[1:]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be run: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
