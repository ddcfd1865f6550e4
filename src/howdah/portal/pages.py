"""The list of jobs as a page. Works without JavaScript."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import msgspec
from starlette.responses import HTMLResponse, Response

from howdah.client.lookup.states import GOING_ON, STATES
from howdah.coordinator.web.app import form_key
from howdah.coordinator.web.page_texts import environment
from howdah.portal.index import Choices, FoundJobs
from howdah.portal.pruning import PruneSchedule
from howdah.portal.query import Asked
from howdah.portal.rows import Row

_TONES = {
    "waiting": "prep",
    "running": "live",
    "succeeded": "good",
    "failed": "bad",
    "timed-out": "bad",
    "lost": "bad",
    "unreadable": "warn",
}


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows besides the jobs."""

    folder: str
    """Of the job directories."""
    choices: Choices
    left_out: int
    to_come: int | None
    problem: str
    """Why what was asked cannot be answered."""
    reader: str
    """Who reads; empty for the user."""
    may_stop: frozenset[str]
    """Jobs of this page that they may stop."""
    unread: Mapping[str, str]
    """Folders of the store that cannot be read, and why."""
    pruning: PruneSchedule | None = None
    """What removes old jobs; only for administrators."""
    may_rerun: bool = False
    """Whether jobs are run again from here."""


def list_page(
    asked: Asked, found: FoundJobs, shown: Shown, *, page: int, version: str, now: float
) -> Response:
    """The page.

    Args:
        asked: as it stands in the address.
        found: the jobs of this page.
        shown: what else.
        page: its number, from 1.
        version: of the static files.
        now: seconds since the epoch.
    """
    counts = shown.choices.states
    text = environment("howdah.portal").get_template("jobs.html").render(
        asked=asked,
        rows=[cells(row, now) for row in found.rows],
        restarted=any(row.restarts for row in found.rows),
        acts=shown.may_rerun or any(not row.ended and row.state in GOING_ON for row in found.rows),
        total=found.total,
        first=(page - 1) * int(asked.value("limit") or 50) + 1 if found.rows else 0,
        older=asked.link(page=str(page + 1)) if found.more else "",
        newer=asked.link(page=str(page - 1) if page > 2 else "") if page > 1 else "",
        states=[(each, tone(each), counts[each]) for each in STATES if each in counts],
        all=sum(counts.values()),
        sorts=_sorts(asked),
        shown=shown,
        moment=moment,
        key=form_key(),
        version=version,
    )  # fmt: skip
    # Without a referrer a form's origin is "null", and the gate lets nothing be stopped.
    return HTMLResponse(text, headers={"Referrer-Policy": "same-origin"})


def _sorts(asked: Asked) -> dict[str, tuple[str, str]]:
    """For each column that can be sorted by: its address, and how it is sorted now."""
    now = asked.value("sort") or "-submitted"
    found: dict[str, tuple[str, str]] = {}
    for name, first in (
        ("name", "name"),
        ("user", "user"),
        ("submitted", "-submitted"),
        ("took", "-took"),
    ):
        turned = name if first != name else f"-{name}"
        wanted = turned if now == first else first
        way = {name: "ascending", f"-{name}": "descending"}.get(now, "")
        found[name] = (asked.link(sort="" if wanted == "-submitted" else wanted), way)
    return found


def cells(row: Row, now: float) -> dict[str, object]:
    """What a job's row of a table shows, in words."""
    going_on = not row.ended and row.state in GOING_ON
    return {
        "job": row,
        "word": row.state.replace("-", " "),
        "tone": tone(row.state),
        "busy": going_on,
        "ago": ago(row.submitted, now),
        "at": moment(row.submitted),
        "took": duration(now - row.submitted if going_on and row.submitted else row.took),
        "why": _why(row),
    }


def _why(row: Row) -> str:
    if row.state == "succeeded":
        return ""
    # The id stands beside it.
    return row.reason.replace(row.job_id, "it", 1) if row.state == "lost" else row.reason


def tone(state: str) -> str:
    """The colour of a state, as style sheets call it."""
    return _TONES.get(state, "idle")


def duration(seconds: float | None) -> str:
    """As the job page's script writes it (static/format.js); empty for none."""
    if seconds is None:
        return ""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(min(seconds, 1e12))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def ago(time: float, now: float) -> str:
    """How long ago, in words; the date after a month."""
    past = now - time
    for below, size, word in (
        (60, 1, ""),
        (3600, 60, "min"),
        (86400, 3600, "h"),
        (30 * 86400, 86400, "day"),
    ):
        if past < below:
            if not word:
                return "just now"
            count = int(past // size)
            return f"{count} {word}{'s' if word == 'day' and count > 1 else ''} ago"
    return moment(time)[:10]


def moment(time: float) -> str:
    """Local date and time to the second; empty for what is no time."""
    try:
        return datetime.datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S") if time else ""
    except (OverflowError, ValueError, OSError):
        return ""
