"""The end of a job whose master did not write it: what YARN's diagnostics come to, in words. Pure.

A master that cannot be started (something shipped cannot be brought to its node, its command fails
at once), dies as often as it may, or is killed from outside, writes no ``final.json``. Any client that
finds the application over writes it instead.
"""

from __future__ import annotations

import enum
import re

import msgspec

from howdah.backends.yarn.master import container_exit_status
from howdah.core.state import JobPhase, Outcome
from howdah.storage.layout import JobMeta
from howdah.wire.status import EXIT_CODES, FailureView, JobView

TAIL_LINES = 20

_EXIT = re.compile(r"exited with\s+exitCode: (-?\d{1,10})\b")
_TIMES = re.compile(r"failed (\d+) times")
_KILLED = re.compile(r"killed by user (\S+)(?: at (\S+))?")
_SAID = re.compile(r"with diagnostic message: (.+)", re.DOTALL)  # ClientRMService
_BROUGHT = re.compile(
    r"changed on src filesystem|File does not exist: (?P<gone>\S+)|FileNotFoundException"
    r"|Failed to download|Not in GZIP format|Unexpected end of ZLIB|ExitCodeException.*tar"
    r"|Resource (?P<what>\S+) (?:is not publicly accessible|changed)|LocalizerRunner"
    r"|Unable to (?:un)?tar|error while untar|Truncated",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    # AbstractDelegationTokenSecretManager: of a token it has forgotten, or that is too old
    r"token\b.{0,300}?(?:can't be found in cache|is expired)|SecretManager\$InvalidToken",
    re.IGNORECASE | re.DOTALL,
)
_CLOCKS = "System times on machines may be out of sync"
"""The NodeManager's words for a container token that is no more good by its clock: after ten minutes."""
_HEADINGS = re.compile(
    r"Application \S+ failed \d+ times.*?due to |AM Container for \S+ exited with\s+exitCode: -?\d+"
    r"|Failing this attempt\.\s*Diagnostics:|\. Failing the application\.|Failing the application\."
)


class Death(enum.Enum):
    """How an application ended without a word of its master."""

    KILLED = "killed"
    LIFETIME = "lifetime"
    STARTUP = "startup"
    """It was ended by ourselves: its master had not begun in time."""
    SILENT = "silent"
    NOT_BROUGHT = "not-brought"
    TOKEN = "token"
    """The job's delegation token for HDFS is not good any more."""
    CLOCKS = "clocks"
    """A node did not start it because its clock is too far ahead."""
    FAILED = "failed"
    LEFT = "left"


class ApplicationEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What the ResourceManager reports of an application that is over."""

    application_id: str
    state: str
    """``YarnApplicationState``: FINISHED, FAILED or KILLED."""
    diagnostics: str = ""
    finished: float | None = None


TOO_LATE = "(master.startup)"


def too_late(limit: str) -> str:
    """What YARN is told of an application whose master has not begun within that time."""
    return f"the master did not begin within {limit} {TOO_LATE}"


def death(ended: ApplicationEnd) -> Death:
    """Which of them it was."""
    text = ended.diagnostics
    if "exceeded the lifetime period" in text or ("lifetime" in text and ended.state == "KILLED"):
        return Death.LIFETIME
    if ended.state == "KILLED" and TOO_LATE in text:
        return Death.STARTUP
    if ended.state == "KILLED":
        return Death.KILLED
    if ended.state == "FINISHED":
        return Death.LEFT
    if "timed out" in text and "ApplicationMaster" in text:
        return Death.SILENT
    if _CLOCKS in text:
        return Death.CLOCKS
    if _TOKEN.search(text):
        return Death.TOKEN
    code = _EXIT.search(text)
    if (code is None or int(code[1]) == container_exit_status.INVALID) and _BROUGHT.search(text):
        return Death.NOT_BROUGHT
    return Death.FAILED


def of_attempt(diagnostics: str) -> str:
    """How one master ended, in words, from the diagnostics of its application attempt."""
    ended = ApplicationEnd(application_id="", state="FAILED", diagnostics=diagnostics)
    return _reason(death(ended), ended)


def view(
    meta: JobMeta,
    name: str,
    framework: str,
    directory: str,
    ended: ApplicationEnd,
    tail: tuple[str, ...],
) -> JobView:
    """The job's final document. ``tail`` are the last lines of the master's own output, if they
    could be had; else the diagnostics have the end of its standard error."""
    how = death(ended)
    outcome = {
        Death.KILLED: Outcome.STOPPED,
        Death.LIFETIME: Outcome.TIMED_OUT,
        Death.STARTUP: Outcome.TIMED_OUT,
    }.get(how, Outcome.FAILED)
    reason = _reason(how, ended)
    lines = tail or tuple(_own_words(ended.diagnostics).splitlines()[-TAIL_LINES:])
    failures: tuple[FailureView, ...] = ()
    if outcome is Outcome.FAILED:
        failure = FailureView(
            task=None,
            attempt=None,
            generation=0,
            cause="coordinator-lost",
            what=reason,
            advice=_ADVICE[how],
            exit_code=_exit_code(ended.diagnostics),
            time=ended.finished or 0.0,
            tail=lines,
        )
        failures = (failure,)
    return JobView(
        job_id=meta.job_id,
        name=name,
        framework=framework,
        user=meta.user,
        backend=meta.backend,
        phase=JobPhase.FINISHED.value,
        outcome=outcome.value,
        exit_code=EXIT_CODES[outcome],
        reason=reason,
        advice=_ADVICE[how],
        submitted=meta.submitted,
        finished=ended.finished,
        failures=failures,
        directory=directory,
    )


def _reason(how: Death, ended: ApplicationEnd) -> str:
    text = ended.diagnostics
    match how:
        case Death.KILLED:
            return _killed(text)
        case Death.LIFETIME:
            return "YARN ended the job: it was past its time limit, and its master had not ended it"
        case Death.STARTUP:
            return _said(text)
        case Death.LEFT:
            return "the master ended the application without writing how the job ended"
        case Death.SILENT:
            return f"the master stopped answering YARN{_times(text)}; its node may be gone"
        case Death.NOT_BROUGHT:
            return (
                "the master could not be started: a node could not bring what was shipped"
                f"{_first_line(text)}"
            )
        case Death.TOKEN:
            return (
                "no new master could be started: HDFS does not accept the job's delegation token any"
                f" more{_first_line(text)}"
            )
        case Death.CLOCKS:
            return (
                f"the master could not be started{_times(text)}: the clock of a node is more than ten minutes"
                " ahead of the ResourceManager's"
            )
        case Death.FAILED:
            code = _exit_code(text)
            words = (
                container_exit_status.detail(code, "")
                if code is not None
                else "it could not be started"
            )
            if code is not None and code > 0:
                words = f"it exited with code {code}"
            return f"the master failed{_times(text)}: {words}{_first_line(text)}"


def _killed(text: str) -> str:
    match = _KILLED.search(text)
    said = _said(text)
    own = f": {said}" if said else ""
    if match is None:
        return f"the application was killed{own}"
    where = f" (from {match[2]})" if match[2] else ""
    return f"the application was killed by {match[1]}{where}{own}"


def _said(text: str) -> str:
    """What the killer said (``yarn application -kill`` says nothing)."""
    match = _SAID.search(text)
    return match[1].strip() if match else ""


def _times(text: str) -> str:
    match = _TIMES.search(text)
    return f" {match[1]} times" if match and int(match[1]) > 1 else ""


def _exit_code(text: str) -> int | None:
    match = _EXIT.search(text)
    return int(match[1]) if match else None


def _own_words(text: str) -> str:
    """Diagnostics without what YARN writes around every failure."""
    return container_exit_status.tidy(_HEADINGS.sub("\n", text)).strip(" .\n")


def _first_line(text: str) -> str:
    """The line that says most: the last of what the process wrote, or the first of YARN's own."""
    words = [line.strip() for line in _own_words(text).splitlines() if line.strip(" .")]
    if not words:
        return ""
    line = (
        words[-1]
        if _EXIT.search(text) and _exit_code(text) != container_exit_status.INVALID
        else words[0]
    )
    return f": {line[:300]}"


_ADVICE = {
    Death.KILLED: "Ask who killed it; 'howdah rerun' submits it again.",
    Death.LIFETIME: "Give it more time (timeouts.total), or a queue with less waiting.",
    Death.STARTUP: "Ask for less, wait longer (master.startup), or use a queue with less waiting; "
    "'howdah doctor --backend yarn' shows what there is.",
    Death.LEFT: "Look into the coordinator's log in the job directory.",
    Death.SILENT: "'howdah rerun --resume' goes on from the newest checkpoint. If it happens again, "
    "give the master more memory (master.memory).",
    Death.NOT_BROUGHT: "Submit it again: what is not on the cluster any more is uploaded anew.",
    Death.TOKEN: "A token ends after seven days (dfs.namenode.delegation.token.max-lifetime), or when "
    "it is cancelled; 'howdah rerun --resume' goes on with a new one.",
    Death.CLOCKS: "Have the clocks of the cluster's machines set (chrony, timedatectl): with such a "
    "difference YARN starts no container there, of nobody.",
    Death.FAILED: "Look at the last lines above; 'howdah doctor --backend yarn' checks what masters "
    "need.",
}
