"""Start TensorBoard locked and without TensorFlow. Run with the user's interpreter; stdlib only.

TensorBoard has no lock of its own. Its application is put behind one that demands the attempt's page
token: as a bearer token, which the job's page adds, or as the query's ``token``, for which a browser
gets a cookie. A portal that shows the summaries of an ended job gives the token on standard input, and
TensorBoard ends when that is closed.

Where TensorFlow can be imported, TensorBoard imports it: 646 MB and 6.5 s instead of 83 MB and
1 s. TensorBoard itself asks for a module ``tensorboard.compat.notf`` first and uses its built-in
stub of TensorFlow's file functions where that exists. So it is made to exist.
"""

import contextlib
import hashlib
import hmac
import io
import os
import sys
import threading
import types
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

COOKIE = "tensorboard-session"
ALARM = "TensorFlow installation not found"
"""The beginning of what TensorBoard says when it starts without TensorFlow."""


class Locked:
    """A WSGI application that answers nobody without the token."""

    def __init__(self, application: Any, token: str) -> None:
        self._application = application
        self._token = token.encode()
        # Cookies are sent to every port of a host name: this one must not be the token itself.
        self._session = hmac.new(self._token, b"session", hashlib.sha256).hexdigest()

    def __call__(self, environ: dict, start_response: Any) -> Any:
        scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given.strip()):
            return self._application(environ, start_response)
        if hmac.compare_digest(cookie_of(environ).encode(), self._session.encode()):
            return self._application(environ, start_response)
        query = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        if any(name == "token" and self._is_token(value) for name, value in query):
            return self._let_in(environ, query, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"TensorBoard of this job is its owner's: howdah tunnel prints an address for it\n"]

    def _is_token(self, given):
        return hmac.compare_digest(given.encode(), self._token)

    def _let_in(self, environ, query, start_response):
        """Go on without the token in the address, which would stay in the browser's history."""
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        rest = urlencode([pair for pair in query if pair[0] != "token"])
        # One slash at the beginning: with two it would name another host.
        place = (
            "/"
            + quote(path.lstrip("/\\").encode("latin-1"), safe="/:")
            + ("?" + rest if rest else "")
        )
        cookie = f"{COOKIE}={self._session}; Path=/; HttpOnly; SameSite=Strict"
        start_response("302 Found", [("Location", place), ("Set-Cookie", cookie)])
        return [b""]


def cookie_of(environ: dict) -> str:
    """The session's cookie, or an empty text."""
    try:
        found = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def main() -> Any:
    try:
        import tensorboard.compat
    except ImportError:
        print(
            f"tensorboard is not installed in the environment of {sys.executable}; install it "
            "there (pip install tensorboard), or name an interpreter that has it: "
            "[tensorboard] python = ...",
            file=sys.stderr,
        )
        return 1
    name = "tensorboard.compat.notf"
    module = types.ModuleType(name, "Tells TensorBoard to do without TensorFlow.")
    sys.modules[name] = module
    setattr(tensorboard.compat, "notf", module)  # noqa: B010 - it is not there to be typed

    path = os.environ.get("HOWDAH_PAGE_TOKEN_FILE")
    if not path:
        print("the agent could not write TensorBoard's token; is its disk full?", file=sys.stderr)
        return 1
    if path == "-":
        token = sys.stdin.readline().strip()
        threading.Thread(target=end_with_input, daemon=True).start()
    else:
        with open(path, encoding="utf-8") as file:
            token = file.read()
    from tensorboard.backend import application

    make = application.TensorBoardWSGIApp
    application.TensorBoardWSGIApp = lambda *args, **more: Locked(make(*args, **more), token)

    from tensorboard import main_lib, program
    from tensorboard.main import run_main

    # For notebooks that look for a TensorBoard on their machine: it would leave a file in /tmp when it is killed.
    program.TensorBoard._register_info = lambda *_: None
    begin = main_lib.global_init
    main_lib.global_init = lambda: without_alarm(begin)
    return run_main()


def end_with_input():
    """End when whoever started this has ended, in whatever way."""
    sys.stdin.read()
    os._exit(0)


def without_alarm(begin: Any) -> None:
    """Call it, and pass on what it says but for the alarm: TensorFlow is left out on purpose."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            begin()
    finally:
        lines = said.getvalue().splitlines(keepends=True)
        sys.stderr.writelines(line for line in lines if not line.startswith(ALARM))


if __name__ == "__main__":
    sys.exit(main())
