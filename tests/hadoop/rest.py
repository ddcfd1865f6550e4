"""HTTP calls to the daemons' own REST interfaces."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

_TIMEOUT_S = 30
"""On a machine that is far too busy a NameNode has taken 10 s for a folder."""


def call(url: str, method: str = "GET", body: object = None, *, kind: str = "json") -> Any:
    """Call it; the answer parsed if it is JSON, else its text.

    Raises urllib.error.HTTPError with Hadoop's words in its message, OSError if nobody answers.
    """
    if body is None:
        data = None
    elif isinstance(body, str):
        data = body.encode()
    else:
        data = json.dumps(body).encode()
    request = urllib.request.Request(
        url,
        method=method,
        data=data,
        headers={"Content-Type": f"application/{kind}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")[:500]
        raise urllib.error.HTTPError(
            url, error.code, f"{error.msg}: {said}", error.headers, None
        ) from None
    return json.loads(text) if text.lstrip().startswith(("{", "[")) else text
