"""An operator for Airflow (2.4 or newer, and 3) that runs a job and waits for its end.

It starts ``howdah submit --wait --json`` and reads what that tells, so that Airflow's Python needs
nothing of Howdah's but this module: the command may be installed in an environment of its own.

The job outlives the worker that waits for it. `HowdahOperator.on_kill` stops it, which is what
marking a task as failed, clearing it, or an ``execution_timeout`` does.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    # What is used of either Airflow; the real ones are imported below.
    class BaseOperator:
        log: Any

        def __init__(self, **kwargs: Any) -> None: ...

    class AirflowException(Exception): ...

    class AirflowFailException(AirflowException): ...

else:
    try:
        from airflow.sdk import BaseOperator
    except ImportError:  # Airflow 2
        from airflow.models import BaseOperator
    from airflow.exceptions import AirflowException, AirflowFailException

BAD_INPUT = 2
UNSAVED = 5
STOPPED = 130
_FINAL = (BAD_INPUT, UNSAVED, STOPPED)
"""Exit codes after which trying again makes no sense: see docs/reference/exit-codes.md."""
STOP_S = 30.0
"""How long a kill waits until the stop of the job is certain."""
SHOWN_LINES = 20


class HowdahOperator(BaseOperator):
    """Runs a job, follows its story in the task's log, and ends as the job ends.

    Args:
        job: the job file. Without one, ``arguments`` say what to run.
        settings: values put over the job file's, such as ``{"roles.worker.instances": 4}``.
        backend: where to run it; without it, what the command itself takes.
        arguments: further arguments of ``howdah submit``: ``("--tony", "tony.xml", "-executes", …)``,
            or ``("--framework", "pytorch", "--", "python", "train.py")``.
        howdah: the command, such as ``("/opt/howdah/bin/howdah",)``.
        env: variables put over the worker's own, such as ``HADOOP_CONF_DIR``.
        cwd: the folder it runs in.

    Returns (as XCom ``return_value``) the job's id, outcome, reason and directory. The id is there as
    XCom ``job_id`` from the moment of submission.

    A job that has failed or timed out raises ``AirflowException``, so that the task's ``retries``
    count; one that was stopped, that can never run as it is written, or that has succeeded and could
    not save all that it made, ``AirflowFailException``.
    """

    template_fields: Sequence[str] = ("job", "settings", "arguments", "env", "cwd")
    template_ext: Sequence[str] = ()
    ui_color = "#e8d5b5"

    def __init__(
        self,
        *,
        job: str | None = None,
        settings: Mapping[str, Any] | None = None,
        backend: str | None = None,
        arguments: Sequence[str] = (),
        howdah: Sequence[str] = ("howdah",),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.settings: dict[str, Any] = dict(settings or {})
        self.backend = backend
        self.arguments: list[str] = list(arguments)
        self.howdah: list[str] = list(howdah)
        self.env: dict[str, str] = dict(env or {})
        self.cwd = cwd
        self._process: subprocess.Popen[str] | None = None
        self._job_id: str | None = None

    def command_line(self) -> list[str]:
        """What is run."""
        words = [*self.howdah, "submit", "--wait", "--json"]
        if self.job is not None:
            words.append(self.job)
        if self.backend is not None:
            words += ["--backend", self.backend]
        for key, value in self.settings.items():
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--set", f"{key}={text}"]
        # Last, for they may end with a command behind two dashes.
        return [*words, *self.arguments]

    def execute(self, context: Any) -> dict[str, Any]:
        """Run the job to its end. Called by Airflow."""
        words = self.command_line()
        self.log.info("running %s", " ".join(words))
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                cwd=self.cwd,
                env=self._environment(),
            )
        except OSError as error:
            raise AirflowFailException(
                f"{self.howdah[0]} cannot be run: {error.strerror or error}; install howdah for the "
                "workers, or say where it is with the operator's `howdah`"
            ) from error
        assert self._process.stdout is not None and self._process.stderr is not None
        told: list[str] = []
        listener = threading.Thread(target=self._listen, args=(self._process.stderr, told))
        listener.start()
        status: dict[str, Any] = {}
        for line in self._process.stdout:
            status = self._take(line, context) or status
        code = self._process.wait()
        listener.join()
        if code == 0 and status:
            return {
                "job_id": self._job_id,
                "outcome": status.get("outcome"),
                "reason": status.get("reason"),
                "directory": status.get("directory"),
            }
        kind = AirflowFailException if code in _FINAL else AirflowException
        raise kind(self._why(code, status, told))

    def on_kill(self) -> None:
        """Stop the job. Called by Airflow when the task is to end."""
        process, job_id = self._process, self._job_id
        if process is None or process.poll() is not None:
            return
        try:
            if job_id is None:
                return  # the signal below takes a submission under way back
            self.log.info("stopping %s", job_id)
            words = [
                *self.howdah,
                "stop",
                job_id,
                "--no-wait",
                "--reason",
                "its Airflow task was ended",
            ]
            done = subprocess.run(
                words,
                env=self._environment(),
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=STOP_S,
                check=False,
            )
            if done.returncode:
                self.log.error("%s was not stopped: %s", job_id, done.stderr.strip())
        except (OSError, subprocess.TimeoutExpired) as error:
            self.log.error("%s was not stopped: %s", job_id, error)
        finally:
            process.terminate()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **{name: str(value) for name, value in self.env.items()}}

    def _listen(self, stream: IO[str], told: list[str]) -> None:
        for line in stream:
            told.append(line.rstrip("\n"))
            self.log.info("%s", told[-1])

    def _take(self, line: str, context: Any) -> dict[str, Any] | None:
        """Act on one line of JSON; the final status document, if it is that."""
        try:
            item = json.loads(line)
        except ValueError:
            self.log.info("%s", line.rstrip("\n"))
            return None
        match item.get("type"):
            case "submitted":
                self._job_id = item["job_id"]
                self.log.info("%s submitted; its directory is %s", self._job_id, item["directory"])
                for note in item.get("notes", ()):
                    self.log.warning("%s", note)
                context["ti"].xcom_push(key="job_id", value=self._job_id)
            case "event":
                say = {"error": self.log.error, "warning": self.log.warning}
                say.get(item.get("level"), self.log.info)("%s", item["text"])
            case "waiting" if item.get("why"):
                self.log.info("waiting: %s", item["why"])
            case "page":
                self.log.info("page of the %s: %s", item["name"], item["address"])
            case "note":
                self.log.info("%s", item["text"])
            case "summary":
                return item["status"]
            case _:
                pass
        return None

    def _why(self, code: int, status: dict[str, Any], told: list[str]) -> str:
        """What failed first, why, and its last lines."""
        if not status:
            last = told[-1] if told else "it said nothing"
            return f"howdah exited with {code}: {last}"
        if code == UNSAVED:
            lines = (f"    {line}" for line in status.get("unsaved", ()))
            return "\n".join(
                [f"{self._job_id} succeeded, but not all of it could be saved:", *lines]
            )
        words = [f"{self._job_id} {status.get('outcome')}: {status.get('reason')}"]
        if status.get("advice"):
            words.append(status["advice"])
        failures = status.get("failures") or []
        if failures:
            words += [f"    {line}" for line in failures[-1].get("tail", [])[-SHOWN_LINES:]]
        return "\n".join(words)
