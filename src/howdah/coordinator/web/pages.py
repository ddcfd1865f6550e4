"""The job page and the small pages around it. Static files are served under their own hash."""

from __future__ import annotations

import base64
import functools
import hashlib
import mimetypes
from importlib import resources
from typing import Any

import jinja2
from starlette.responses import HTMLResponse, Response

from howdah.coordinator.web.security import PAGE_HEADERS, Refusal
from howdah.wire.status import JobView

_PACKAGE = "howdah.coordinator.web"
_CSP = "Content-Security-Policy"

_MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class StaticFiles:
    """All static files, in memory: 200 kB in all, and a coordinator has no business on the disk."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._read(resources.files(_PACKAGE).joinpath("static"), "")
        digest = hashlib.sha256()
        for name, content in sorted(self._files.items()):
            digest.update(name.encode() + b"\0" + content)
        self.version = digest.hexdigest()[:12]
        """Part of the files' addresses: a browser may keep them for ever."""

    def answer(self, version: str, name: str) -> Response:
        """One file.

        Raises:
            Refusal: there is none of that name.
        """
        content = self._files.get(name)
        if content is None:
            raise Refusal(404, f"there is no file {name[:100]!r}")
        suffix = name[name.rfind(".") :]
        media = _MEDIA.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        keep = "private, max-age=31536000, immutable" if version == self.version else "no-cache"
        return Response(content, media_type=media, headers={"Cache-Control": keep})

    def _read(self, folder: Any, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                self._read(entry, f"{prefix}{entry.name}/")
            else:
                self._files[prefix + entry.name] = entry.read_bytes()


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def job_page(view: JobView, version: str, *, reads_only: bool = False) -> Response:
    """The page itself: what is known at once; its script does the rest.

    Args:
        view: the job now.
        version: of the static files.
        reads_only: to somebody who may only look: without what they could not do.
    """
    page = _environment().get_template("job.html")
    return HTMLResponse(page.render(job=view, version=version, reads_only=reads_only))


@functools.cache
def _notice_style() -> str:
    return resources.files(_PACKAGE).joinpath("templates/notice.css").read_text()


def notice(
    title: str, text: str, status: int = 200, *, to: str | None = None, after_s: int = 0
) -> Response:
    """A small page of its own, without any other file: a stranger sees no more than this.

    Args:
        title: in large letters.
        text: what happened, what to do.
        status: of the answer.
        to: a relative address the browser goes on to by itself.
        after_s: when.
    """
    style = _notice_style()
    page = _environment().get_template("notice.html")
    body = page.render(title=title, text=text, style=style, to=to, after_s=after_s)
    # The style stands in the page itself; its hash is what the policy lets through.
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = PAGE_HEADERS[_CSP].replace("style-src 'self'", f"style-src 'sha256-{known}'")
    return HTMLResponse(body, status, headers={_CSP: policy})


def refused(refusal: Refusal) -> Response:
    """What a person sees instead of the page they wanted."""
    if refusal.status == 401:
        return notice(
            "This page is private",
            "Run “howdah status” with the job's id: it prints a link that opens this page in your "
            "browser. A link works once, for ten minutes. If you have just followed a link to here "
            "from another site and were signed in before, continue below.",
            401,
            to="",
            after_s=-1,
        )
    titles = {403: "Not from there", 404: "Not found", 421: "Wrong name"}
    return notice(titles.get(refusal.status, "That did not work"), refusal.message, refusal.status)
