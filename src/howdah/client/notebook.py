"""A notebook as a job of one task: JupyterLab near the data, on any backend."""

from __future__ import annotations

from howdah.core.messages import Task
from howdah.spec.model import Environment, Job, Mode, Outputs, Restart, Role, Timeouts

ROLE = "notebook"
TASK = Task(ROLE, 0)


def notebook_job(
    *,
    name: str = ROLE,
    source: str | None = ".",
    in_place: bool = False,
    memory: str | None = None,
    cores: int | None = None,
    gpus: int = 0,
    environment: Environment | None = None,
    queue: str | None = None,
    label: str | None = None,
    total: str = "24h",
) -> Job:
    """The job of a notebook that ends by itself after ``total``.

    With ``in_place`` it edits the source folder itself; else what was changed is among the job's outputs.
    """
    role = Role(
        memory=memory,
        cores=cores,
        gpus=gpus,
        label=label,
        ports=1,
        restart=Restart.TASK,
        command='"$HOWDAH_PYTHON" "$HOWDAH_HELPERS/notebook_main.py"',
    )
    return Job(
        name=name,
        framework="command",
        mode=Mode.EACH,
        source=source,
        in_place=in_place,
        outputs=None if in_place else Outputs(keep="all"),
        environment=environment or Environment(),
        roles={ROLE: role},
        queue=queue,
        timeouts=Timeouts(total=total),
    )
