"""Run by Airflow's own Python: operators in a DAG, executed as a worker does. Prints what they told.

Arguments: each operator's as JSON; with ``kill`` the task is ended once the job has an id.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException

try:
    from airflow.sdk import DAG, BaseOperator
except ImportError:
    from airflow.models import DAG, BaseOperator

from howdah.integrations.airflow import HowdahOperator


class Instance:
    """As much of a task instance as an operator uses."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.known = threading.Event()

    def xcom_push(self, key: str, value: Any, **_: Any) -> None:
        self.values[key] = value
        self.known.set()


def executed(number: int, given: dict[str, Any]) -> dict[str, Any]:
    kill = given.pop("kill", False)
    with DAG(dag_id=f"training-{number}", schedule=None):
        task = HowdahOperator(task_id="train", retries=2, **given)
    told: dict[str, Any] = {"is_operator": isinstance(task, BaseOperator), "retries": task.retries}  # pyright: ignore[reportAttributeAccessIssue]
    told["warned"] = []
    warned = logging.Handler(logging.WARNING)  # the real Airflow's log goes elsewhere
    warned.emit = lambda record: told["warned"].append(record.getMessage())
    logging.getLogger("airflow.task").addHandler(warned)
    instance = Instance()
    task.render_template_fields({"ds": "2026-11-21", "ti": instance})  # pyright: ignore[reportAttributeAccessIssue]
    told["command"] = task.command_line()
    if kill:
        threading.Thread(target=lambda: (instance.known.wait(60), task.on_kill())).start()
    try:
        told["returned"] = task.execute({"ti": instance})
    except AirflowFailException as error:
        told["failed_for_good"] = str(error)
    except AirflowException as error:
        told["failed"] = str(error)
    logging.getLogger("airflow.task").removeHandler(warned)
    return {**told, "xcom": instance.values}


if __name__ == "__main__":
    found = [executed(number, json.loads(given)) for number, given in enumerate(sys.argv[1:])]
    print(json.dumps(found))
