"""Count the names that users can import and that have no type; fail where there are too many.

    python tools/typed_api.py [--list]

Counted by ``pyright --verifytypes``: a name's type is known where every type checker sees the same, so it and
all that it is made of must be annotated. Types of other packages are theirs.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

LEAST = 0.98


def report(package: str) -> dict:
    """What pyright says of a package that this interpreter can import."""
    # It asks the first python on PATH where packages are, whatever it is told otherwise.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    command = [sys.executable, "-m", "pyright", "--verifytypes", package, "--ignoreexternal"]
    run = subprocess.run(
        [*command, "--outputjson"], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    try:
        found = json.loads(run.stdout)
    except ValueError:
        sys.exit(f"typed_api: pyright gave no report: {run.stderr or run.stdout}")
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name them, each with the reason")
    options = parser.parse_args(arguments)
    found = report("howdah")
    types = found["typeCompleteness"]
    public = [symbol for symbol in types["symbols"] if symbol["isExported"]]
    unknown = [symbol for symbol in public if not symbol["isTypeKnown"]]
    if not public:
        print("typed_api: pyright found no public names:", *found["generalDiagnostics"])
        return 1
    share = 1 - len(unknown) / len(public)
    few = share < LEAST
    if few or options.list:
        for symbol in sorted(unknown, key=lambda symbol: symbol["name"]):
            reasons = [each["message"].partition("\n")[0] for each in symbol["diagnostics"]]
            print(f"{symbol['name']}: {'; '.join(reasons)}")
    print(f"typed_api: {share:.2%} of {len(public):,} public names have a known type")
    if few:
        print(f"typed_api: {LEAST:.0%} must have; annotate what is named above")
    return int(few)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
