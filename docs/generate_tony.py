"""Writes docs/guides/from-tony.md: the guide for users of TonY, with every key and option of it.

Run it after a change of `howdah.compat.tony.table`; a test compares what is committed with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from howdah.compat.tony.table import OPTIONS, SECTIONS, Kind, Option, Row

PAGE = Path(__file__).parent / "guides" / "from-tony.md"

INTRODUCTION = """\
# From TonY

<!-- Written by docs/generate_tony.py from src/howdah/compat/tony/table.py. Change those. -->

A job that was written for [TonY](https://github.com/tony-framework/TonY) runs as it is: its `tony.xml`,
its command line, its scripts. When you like it, turn it into a job file, which can say more.

## Run it

Where the old command line was

```text
java -cp "`hadoop classpath --glob`:tony/*:tony" com.linkedin.tony.cli.ClusterSubmitter \\
    -executes train.py -src_dir src -python_binary_path python3 -conf tony.worker.instances=4
```

write

```sh
howdah run --backend yarn --tony tony.xml -executes train.py -src_dir src -python_binary_path python3 -conf tony.worker.instances=4
```

`howdah submit` takes the same and leaves the job running. All of TonY's options are taken, with one
dash or two, beside Howdah's own: `--set` puts a value of the job file over what was converted,
`--dry-run` shows what would be run. Without `--tony`, `-conf_file` names the file, or it is `tony.xml`
in the current folder. The same job runs on this machine with `--backend local`.

What wins: `-conf`, then `$TONY_CONF_DIR/tony-site.xml`, then the job's file, then TonY's defaults.
Paths are relative to the current folder. XML is read as Hadoop reads it, with `${name}`, includes and
`<final>`.

What nothing needs here, what works otherwise, and keys that TonY does not have are told on standard
error, all at once, each with its key. A job that cannot be run as it is written is refused, with all
reasons.

## Turn it into a job file

```sh
howdah init --from-tony tony.xml job.toml -executes train.py -src_dir src
howdah check job.toml
howdah run job.toml
```

The job file is the same job. Every line says which key it came from, and what was left out is listed
at its end.

## What is different, and why

- **A failure is a failure.** TonY reported success though a worker had failed; here every failure of a
  tracked role counts. The exit code, the class of the failure, the last lines and what to do are in the
  [summary](failures.md).
- **`tony.am.retry-count` becomes `attempts`.** Lost nodes and preempted containers cost none of them, and
  only what was lost is asked for again. TonY restarted everything, in new containers. Without the key a
  job has one attempt, as with TonY; a job file has three.
- **The master may die.** Another one takes over, the training processes go on. See `[master]`.
- **Two jobs that each hold a part of the cluster** do not wait for each other for ever: a part of a gang
  is given back after `timeouts.hold`.
- **Commas in values of variables** are part of the value. `tony.containers.envs` of `A=x,y,B=1` are two
  variables.
- **`$` in `tony.containers.envs`** was expanded by the NodeManager's shell. Here values are what they
  are; expansion is for commands.
- **The evaluator** was waited for, and still is after the conversion. In a job file it is not, unless it
  says `tracking = "tracked"`; see [A role that may never end](stages.md#a-role-that-may-never-end).
- **Python.** `-python_venv` is unpacked as the folder `venv`, as before. Better: `[environment]` in the
  job file builds it from your requirements, ships it once, and keeps it on the cluster.
- **A single node** (no instances) ran inside the application master. Here it is one container of its own.

Programs get the variables TonY gave them, [by the same names](../reference/environment.md#tonys-names).

## What else there was

| TonY | Here |
|---|---|
| `ClusterSubmitter` | `howdah run --backend yarn`, or `howdah submit` to leave it running |
| `LocalSubmitter` | `howdah run --backend local`: no cluster at all |
| `NotebookSubmitter` | `howdah notebook --backend yarn`, and `howdah tunnel` from a laptop |
| `TonyClient` as a library | [`howdah.submit`](python.md); `on_event`, `on_state` and `on_log` for its listeners, `stop` for the forced kill |
| `CallbackHandler.onApplicationIdReceived` | `application_id` in the job directory's `meta.json`, there when `submit` returns |
| Azkaban's job type | [Schedulers](schedulers.md) |
| a framework's runtime as a plug-in | [a class and an entry point](../frameworks/index.md) |
| `SKIP_HADOOP_PATH` | leaves `hadoop.classpath` out; without it the conversion sets it, as TonY did |
| `TF_GRPC_REUSE_PORT` | the same: a task's ports stay held until its program has them |
| `TB_SERVER_REUSE_PORT` | not needed: TensorBoard's port is reserved for it |
| history files and their portal | the job directory; `howdah list`, `howdah status`, `howdah events` |
| end-to-end tests | [each has its like](tony-parity.md) |

## Keys

"""

OPTIONS_TITLE = """\
## Command line

| Option | In the job file | |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, rows in SECTIONS:
        parts.append(f"### {title}\n\n| Key | Default | In the job file | |\n|---|---|---|---|\n")
        parts += _rows(rows)
        parts.append("\n")
    parts.append(OPTIONS_TITLE)
    parts += (_option(option) for option in OPTIONS)
    return "".join(parts)


def _rows(rows: tuple[Row, ...]) -> Iterator[str]:
    for row in rows:
        default = f"`{row.default}`" if row.default else ""
        yield _line(f"`{row.key}`", default, _place(row.kind, row.to), row.words)


def _option(option: Option) -> str:
    name = f"`-{option.name}" + (f" {option.value}`" if option.value else "`")
    repeated = " (repeatable)" if option.repeated else ""
    return _line(name + repeated, _place(option.kind, option.to), option.words)


def _place(kind: Kind, to: str) -> str:
    if kind is Kind.NOT_NEEDED:
        return "not needed"
    if kind is Kind.CHECKED:
        return "checked" + (f"; `{to}`" if to else "")
    return ", ".join(f"`{part}`" for part in to.split(", ")) if not to.startswith("as ") else to


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
