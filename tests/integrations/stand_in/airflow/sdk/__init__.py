"""The base class's contract, as https://airflow.apache.org/docs says: fields named in
``template_fields`` are rendered before ``execute``, ``on_kill`` comes from a signal handler."""

import logging
from typing import Any


class DAG:
    def __init__(self, **_: Any) -> None:
        pass

    def __enter__(self) -> "DAG":
        return self

    def __exit__(self, *_: Any) -> None:
        pass


class BaseOperator:
    template_fields: Any = ()

    def __init__(self, *, task_id: str, retries: int = 0) -> None:
        self.task_id, self.retries = task_id, retries
        self.log = logging.getLogger("airflow.task")

    def render_template_fields(self, context: Any) -> None:
        for name in self.template_fields:
            setattr(self, name, _rendered(getattr(self, name), context))


def _rendered(value: Any, context: Any) -> Any:
    if isinstance(value, str):
        return value.replace("{{ ds }}", context["ds"])
    if isinstance(value, dict):
        return {key: _rendered(item, context) for key, item in value.items()}
    if isinstance(value, list):
        return [_rendered(item, context) for item in value]
    return value
