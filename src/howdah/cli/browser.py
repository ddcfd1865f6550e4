"""Opening a page in the user's browser without showing the address to others.

What stands in an argument list can be read by every user of the machine, and a one-time link opens the
page for whoever uses it first. So the browser is given the name of a file, which only its owner can
read and which sends it on.
"""

from __future__ import annotations

import html
import os
import secrets
from pathlib import Path


def open_page(address: str, folder: Path) -> Path:
    """Open the address; returns the file that sends the browser there, for the caller to remove.

    ``folder`` must be its owner's alone.

    Raises:
        OSError: the file cannot be written.
    """
    import webbrowser

    path = folder / f"open-{secrets.token_hex(8)}.html"
    place = html.escape(address)
    text = (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">\n'
        f'<meta http-equiv="refresh" content="0; url={place}">\n'
        f'<title>Opening the job page</title><a href="{place}">Open the job page</a>\n'
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    webbrowser.open(path.as_uri())
    return path
