"""Writes docs/guides/from-tony.md: the guide for users of TonY, with every key and option of it, and its
example folders.

Run it after a change of src/howdah/compat/tony/table.toml or tests/yarn/tony_examples.py; a test compares what is
committed with it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from howdah.compat.tony.table import OPTIONS, SECTIONS, Option, RowKind, TonyRow

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.yarn.tony_examples import EXAMPLES, Example

PAGE = Path(__file__).parent / "guides" / "from-tony.md"

INTRODUCTION = """\
# From TonY

<!-- Written by docs/generate_tony.py from src/howdah/compat/tony/table.toml and tests/yarn/tony_examples.py.
Change those. -->

You can run a job that was written for [TonY](https://github.com/tony-framework/TonY) as it is, with its
`tony.xml`, its command line and its scripts. Later you can turn it into a job file, which has more options.

## Run it

Put `howdah tony` before the old command line and leave the rest as it is:

```sh
howdah tony java -cp "MyJob/*:MyJob" com.linkedin.tony.cli.ClusterSubmitter \\
    -executes train.py -src_dir src -python_binary_path python3 -conf tony.worker.instances=4
```

Howdah does not start Java, and does not need it. It uses only the class path of Java's options: it looks for `tony.xml`
and the file of `-conf_file` in the current folder, and then in the folders of the class path. You can leave out `java`
with its options, and the submitter. `ClusterSubmitter` means `--backend yarn`, and `LocalSubmitter` means
`--backend local`. Without a submitter, the job runs where `howdah run` would run it. Howdah installs no program called
`tony`, because you may have one. If you want the name:

```sh
alias tony='howdah tony'
```

`howdah run` and `howdah submit` take the same options. `submit` leaves the job running:

```sh
howdah submit --backend yarn --tony tony.xml -executes train.py -src_dir src -conf tony.worker.instances=4
```

Howdah takes all of TonY's options, with one dash or two, with or without `=` before the value. A value may begin with a
dash. You can use Howdah's own options beside them: `--set` overrides a value of the converted job, and `--dry-run` shows
what would run. Without `--tony`, `-conf_file` names the file (a path or a URL); without both, it is `tony.xml` in the
current folder. Howdah removes double quotes around a whole value, as TonY's parser does. It refuses an argument that is
not an option. TonY ignores such an argument and everything after it.

`-conf` overrides `$TONY_CONF_DIR/tony-site.xml`, which overrides the job's file, which overrides TonY's defaults. Paths
are relative to the current folder. XML is read as Hadoop reads it, with `${name}`, includes and `<final>`.

The exit code is 0 when TonY's is 0. Otherwise it says what happened: 1 the job failed, 2 the command line or the
configuration is wrong, 3 the cluster refused, 4 the job timed out, 130 it was stopped.

On standard error, Howdah lists every key that has no effect, works differently, or is not a key of TonY. If it cannot
run a job as it is written, it refuses the job and gives all reasons.

## Turn it into a job file

```sh
howdah init --from-tony tony.xml job.toml -executes train.py -src_dir src
howdah check job.toml
howdah run job.toml
```

The job file describes the same job. Every line says which key it came from, and the end of the file lists what was left
out.

## When a job is done

The rules are those of `TonySession`:

- The job waits for all tracked tasks, that is, for all roles that are neither untracked (`ps`) nor sidecars
  (`tensorboard`). The success of the chief alone does not end the job, and the job waits for an evaluator.
- The chief is every task of the role `chief`. If there is no such role, it is `worker:0`. If the chief fails, the job
  fails. The job also fails if an untracked task fails, or a task of a role in
  `tony.application.stop-on-failure-jobtypes`.
- If any other tracked task fails, the job goes on without it. It succeeds unless all tracked tasks have failed. A record
  says when a task fails, and the summary lists the failed tasks. If the workers of a job all need each other (PyTorch,
  Horovod), the others fail or wait for the lost one. With
  `-conf tony.application.fail-on-worker-failure-enabled=true`, the first failure fails the job at once, as it does in a
  job file without `tolerate`.
- A role with a time-out after a group and `.ignored = true` becomes untracked when that time is over. It runs on, and
  the job no longer waits for it. If it fails, the job still fails.
- With `tony.am.retry-count`, a job that has failed starts again with all its tasks.

## What is different, and why

- **What is tried again.** TonY treats a lost node, a preempted container or a silent task as a failure of the task.
  Howdah does not: the task comes back, and no retry is used up. There is one exception, as in TonY. In a job without
  retries, losing a task of a role in `stop-on-failure-jobtypes` (by default `ps`) ends the job.
- **`tony.am.retry-count` becomes `attempts`.** Lost nodes and preempted containers do not count. Howdah requests only
  the lost containers again; TonY restarted everything in new containers. Without the key, a job has one attempt, as in
  TonY. A job file has three.
- **The master may die.** Another one takes over, and training goes on. See `[master]`.
- **Two jobs that each hold a part of the cluster** do not wait for each other forever. A job gives back a part of a gang
  after `timeouts.hold`.
- **Commas in the values of variables** belong to the value. `A=x,y,B=1` in `tony.containers.envs` sets two variables.
- **`tony.containers.envs`**: variables that YARN reads (`YARN_CONTAINER_RUNTIME_TYPE`) or expands (`$JAVA_HOME/lib`) go
  into the containers' launch context (`hadoop.container-env`). The others go into `[env]`. Programs see all of them. A
  `$` in `PATH`, `LD_…` and `PYTHON…` is not expanded, because Howdah's own process in the container would get the value
  too. Without YARN, nothing is expanded.
- **Sidecars** do not fail a job: not if they fail before they have registered, and not with
  `fail-on-worker-failure-enabled`. They are in no `TF_CONFIG` and no `CLUSTER_SPEC`, and get no `TF_CONFIG`.
- **PyTorch's ranks** are unique over chief and workers, and `WORLD` is their number. TonY gives rank 0 to both `chief:0`
  and `worker:0`.
- **Placement.** Conditions stay conditions: `NOTIN` becomes `apart` or `spread`, and `IN` becomes `together`. Howdah
  refuses everything else that `placement` cannot express: racks, node attributes, cardinalities, a second `IN` under
  one `AND`, and an `IN` with the role's own tag, which keeps its first container waiting in TonY. The message names the
  key and says what to do.
- **A prepare stage** does not see roles whose containers are not there yet. TonY lists them as empty.
- **The application's type** is `HOWDAH`. Find your applications by name, tag or queue.
- **Tokens.** Howdah uses the tokens of a token file (`HADOOP_TOKEN_FILE_LOCATION`) to reach the cluster. It passes them
  on to the programs on YARN, in the file that the variable names there. With Kerberos, it adds one of the
  ResourceManager.
- **The evaluator.** A converted job waits for its evaluator. A job file does so only with `tracking = "tracked"`; see
  [A role that may never end](stages.md#a-role-that-may-never-end).
- **Python.** `-python_venv` is unpacked as the folder `venv`, as before. `[environment]` in the job file is better: it
  builds the environment from your requirements, ships it once, and keeps it on the cluster.
- **A single node** (no instances) ran inside TonY's application master. In Howdah it is a container of its own,
  `worker:0`.

Programs get the variables that TonY gave them, [with the same names and
values](../reference/environment.md#tonys-names), and `bash` runs the commands. A converted job file does so with
`compat = "tony"`. Everyone who could look at the job still can: TonY opened its logs to everyone, and the converted job
does the same (`[acl] view = ["*"]`; `--set 'acl.view=[]'` closes them).

## What else there was

| TonY | Here |
|---|---|
| `ClusterSubmitter` | `howdah tony`, `howdah run --backend yarn`, or `howdah submit` to leave it running |
| `LocalSubmitter` | the same with `--backend local`: no cluster at all |
| `NotebookSubmitter` | `howdah notebook --backend yarn`, and `howdah tunnel` from a laptop |
| `TonyClient` as a library | [`howdah.submit`](python.md); `on_event`, `on_state` and `on_log` for its listeners, `stop` for the forced kill |
| `CallbackHandler.onApplicationIdReceived` | `application_id` in the job directory's `meta.json`, which is there when `submit` returns |
| Azkaban's job type | [Schedulers](schedulers.md) |
| a framework's runtime as a plug-in | [a class and an entry point](../frameworks/index.md) |
| `SKIP_HADOOP_PATH` | leaves `hadoop.classpath` out; without it, the conversion sets this key, as TonY did |
| `TF_GRPC_REUSE_PORT` | the same: Howdah holds a task's ports until its program has them. If all roles are TensorFlow's own (`chief`, `worker`, `ps`, `evaluator`), it is already set; use `-shell_env TF_GRPC_REUSE_PORT=0` if a program there binds its port in another way |
| `TB_SERVER_REUSE_PORT` | not needed: TensorBoard's port is reserved for it |
| history files and their portal | the job directory; `howdah list`, `howdah status`, `howdah events` |
| end-to-end tests | [Howdah has one for each](tony-parity.md), with the outcomes of both |

"""

EXAMPLES_TITLE = """\
## TonY's examples

Each folder of `tony-examples` was run on a real cluster, with the keys of its `tony.xml` and the arguments of its README
(but with less memory). The program was one that needs the same variables and files as the example's. The examples
themselves were written for older frameworks; the last column says what that means today.

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


def _rows(rows: tuple[TonyRow, ...]) -> Iterator[str]:
    for row in rows:
        default = f"`{row.default}`" if row.default else ""
        yield _line(f"`{row.key}`", default, _place(row.kind, row.to), row.words)


def _option(option: Option) -> str:
    name = f"`-{option.name}" + (f" {option.value}`" if option.value else "`")
    repeated = " (repeatable)" if option.repeated else ""
    return _line(name + repeated, _place(option.kind, option.to), option.words)


def _place(kind: RowKind, to: str) -> str:
    if kind is RowKind.NOT_NEEDED:
        return "not needed"
    if kind is RowKind.CHECKED:
        return "checked" + (f"; `{to}`" if to else "")
    return ", ".join(f"`{part}`" for part in to.split(", ")) if not to.startswith("as ") else to


def _line(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
