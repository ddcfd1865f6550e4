"""Writes docs/guides/from-tony.md: the guide for users of TonY, with every key and option of it, and its
example folders.

Run it after a change of `howdah.compat.tony.table` or tests/yarn/tony_examples.py; a test compares what is
committed with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from howdah.compat.tony.table import OPTIONS, SECTIONS, Kind, Option, Row

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.yarn.tony_examples import EXAMPLES, Example

PAGE = Path(__file__).parent / "guides" / "from-tony.md"

INTRODUCTION = """\
# From TonY

<!-- Written by docs/generate_tony.py from src/howdah/compat/tony/table.py and tests/yarn/tony_examples.py.
Change those. -->

A job that was written for [TonY](https://github.com/tony-framework/TonY) runs as it is: its `tony.xml`,
its command line, its scripts. When you like it, turn it into a job file, which can say more.

## Run it

Put `howdah tony` before the old command line and leave the rest as it is:

```sh
howdah tony java -cp "MyJob/*:MyJob" com.linkedin.tony.cli.ClusterSubmitter \\
    -executes train.py -src_dir src -python_binary_path python3 -conf tony.worker.instances=4
```

Java is not started and need not be there. Of what it is told only the class path is used: `tony.xml` and
the file of `-conf_file` are looked for in its folders, after the current one. `java` and its options may be
left out, and so may the submitter. `ClusterSubmitter` means `--backend yarn`, `LocalSubmitter` means
`--backend local`; without one the job runs where `howdah run` would run it. No program called `tony` is
installed, since you may have one. If you want the name:

```sh
alias tony='howdah tony'
```

`howdah run` and `howdah submit` take the same options; `submit` leaves the job running:

```sh
howdah submit --backend yarn --tony tony.xml -executes train.py -src_dir src -conf tony.worker.instances=4
```

All of TonY's options are taken, with one dash or two, with `=` before the value or without, and with values
that begin with a dash. They go beside Howdah's own: `--set` puts a value of the job file over what was
converted, `--dry-run` shows what would be run. Without `--tony`, `-conf_file` names the file (a path or a
URL), or it is `tony.xml` in the current folder. Double quotes around a whole value are taken away, as TonY's
parser does. What is no option is refused; TonY ignores it, and everything behind it.

What wins: `-conf`, then `$TONY_CONF_DIR/tony-site.xml`, then the job's file, then TonY's defaults.
Paths are relative to the current folder. XML is read as Hadoop reads it, with `${name}`, includes and
`<final>`.

The exit code is 0 where TonY's is 0. Where TonY's is not, it says what happened: 1 the job failed, 2 the
command line or configuration is wrong, 3 the cluster refused, 4 it timed out, 130 it was stopped.

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

## When a job is done

As `TonySession` decides it:

- All tracked tasks are waited for: those of every role that is neither untracked (`ps`) nor a sidecar
  (`tensorboard`). The chief's success alone ends nothing, and an evaluator is waited for.
- The chief is every task of the role `chief`, or `worker:0` where there is no such role. Its failure fails the
  job. So does that of an untracked task, and of a role in `tony.application.stop-on-failure-jobtypes`.
- Any other tracked task may fail: the job goes on without it and succeeds, unless all tracked tasks have
  failed. A record says so when it happens, and the summary lists the failed tasks. In a job whose workers all
  need each other (PyTorch, Horovod) the others fail or wait for the lost one. Say
  `-conf tony.application.fail-on-worker-failure-enabled=true`, and the first failure fails the job at once,
  as it does in a job file without `tolerate`.
- A role whose time after a group has come, with `.ignored = true`, becomes untracked: it runs on, is no longer
  waited for, and still fails the job if it fails.
- With `tony.am.retry-count` a job that has failed starts anew, with all its tasks.

## What is different, and why

- **What is tried again.** TonY takes a lost node, a preempted container or a silent one for a failure of
  the task. Here they are none: the task comes back, and no retry is spent. A role of
  `stop-on-failure-jobtypes` (`ps`, unless you say otherwise) is the exception: in a job without retries its loss
  ends the job, as there.
- **`tony.am.retry-count` becomes `attempts`.** Lost nodes and preempted containers cost none of them, and
  only what was lost is asked for again. TonY restarted everything, in new containers. Without the key a
  job has one attempt, as with TonY; a job file has three.
- **The master may die.** Another one takes over, the training processes go on. See `[master]`.
- **Two jobs that each hold a part of the cluster** do not wait for each other for ever: a part of a gang
  is given back after `timeouts.hold`.
- **Commas in values of variables** are part of the value. `tony.containers.envs` of `A=x,y,B=1` are two
  variables.
- **`tony.containers.envs`**: what YARN reads (`YARN_CONTAINER_RUNTIME_TYPE`) or expands (`$JAVA_HOME/lib`) goes
  into the launch context of the containers (`hadoop.container-env`), the rest into `[env]`; programs see both.
  A `$` in `PATH`, `LD_…` and `PYTHON…` is not expanded, since Howdah's own process in the container would get
  the value too. Nor is it without YARN.
- **Sidecars** fail no job, neither by failing before they have registered nor with
  `fail-on-worker-failure-enabled`. They are in nobody's `TF_CONFIG` or `CLUSTER_SPEC` and get no `TF_CONFIG`.
- **PyTorch's ranks** are unique over chief and workers, and `WORLD` is their number. TonY gives `chief:0` and
  `worker:0` both rank 0.
- **Placement.** `NOTIN` is a condition, as there. `IN` is one too with TonY, and here there are only preferences
  for nearness (`near`, `pack`), so it is refused, as all that `placement` cannot say, with its key and what to do.
- **A prepare stage** is told of no roles whose containers are not there yet; TonY lists them empty.
- **The application's type** is `HOWDAH`. Find yours by name, tag or queue.
- **Tokens.** Those of a token file (`HADOOP_TOKEN_FILE_LOCATION`) are used to reach the cluster and handed to the
  programs on YARN, in the file that the variable names there. With Kerberos one of the ResourceManager is added.
- **The evaluator** is waited for after the conversion. In a job file it is not, unless it says
  `tracking = "tracked"`; see [A role that may never end](stages.md#a-role-that-may-never-end).
- **Python.** `-python_venv` is unpacked as the folder `venv`, as before. Better: `[environment]` in the
  job file builds it from your requirements, ships it once, and keeps it on the cluster.
- **A single node** (no instances) ran inside the application master. Here it is one container of its own, as
  `worker:0`.

Programs get the variables TonY gave them, [by the same names and with the same
values](../reference/environment.md#tonys-names), and commands are given to `bash`: `compat = "tony"`, which a
converted job file has, sees to it.
Whoever could look at the job still can: TonY opened its logs to everybody, and so does the converted job
(`[acl] view = ["*"]`; `--set 'acl.view=[]'` closes them).

## What else there was

| TonY | Here |
|---|---|
| `ClusterSubmitter` | `howdah tony`, `howdah run --backend yarn`, or `howdah submit` to leave it running |
| `LocalSubmitter` | the same with `--backend local`: no cluster at all |
| `NotebookSubmitter` | `howdah notebook --backend yarn`, and `howdah tunnel` from a laptop |
| `TonyClient` as a library | [`howdah.submit`](python.md); `on_event`, `on_state` and `on_log` for its listeners, `stop` for the forced kill |
| `CallbackHandler.onApplicationIdReceived` | `application_id` in the job directory's `meta.json`, there when `submit` returns |
| Azkaban's job type | [Schedulers](schedulers.md) |
| a framework's runtime as a plug-in | [a class and an entry point](../frameworks/index.md) |
| `SKIP_HADOOP_PATH` | leaves `hadoop.classpath` out; without it the conversion sets it, as TonY did |
| `TF_GRPC_REUSE_PORT` | the same: a task's ports stay held until its program has them. Set already where all roles are TensorFlow's own (`chief`, `worker`, `ps`, `evaluator`); `-shell_env TF_GRPC_REUSE_PORT=0` for a program there that binds its port otherwise |
| `TB_SERVER_REUSE_PORT` | not needed: TensorBoard's port is reserved for it |
| history files and their portal | the job directory; `howdah list`, `howdah status`, `howdah events` |
| end-to-end tests | [each has its like](tony-parity.md), with its outcome and ours |

"""

EXAMPLES_TITLE = """\
## TonY's examples

The folders of `tony-examples`, each run on a real cluster with the keys of its `tony.xml` and the arguments of its
README (less memory apart), by a program that asks of its surroundings what the example's asks. The examples
themselves were written for frameworks of their time, as the last column says.

| Folder and program | `tony.xml` and arguments | What Howdah makes of it | Result |
|---|---|---|---|
"""

KEYS_TITLE = """\

## Keys

"""

OPTIONS_TITLE = """\
## Command line

| Option | In the job file | |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, EXAMPLES_TITLE, *map(_example, EXAMPLES), KEYS_TITLE]
    for title, rows in SECTIONS:
        parts.append(f"### {title}\n\n| Key | Default | In the job file | |\n|---|---|---|---|\n")
        parts += _rows(rows)
        parts.append("\n")
    parts.append(OPTIONS_TITLE)
    parts += (_option(option) for option in OPTIONS)
    return "".join(parts)


def _example(example: Example) -> str:
    keys = (_code(f"{key.removeprefix('tony.')}={value}") for key, value in example.keys.items())
    arguments = map(_code, example.arguments)
    result = example.outcome
    if example.because:
        result += f": `{example.because}`"
    if example.note:
        result += f"; {example.note}"
    name = f"`{example.folder}`: {example.program}"
    return _line(name, " ".join((*keys, *arguments)), example.does, result)


def _code(text: str) -> str:
    quote = "``" if "`" in text else "`"
    return f"{quote}{text}{quote}"


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
