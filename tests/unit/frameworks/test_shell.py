"""How a command of a job file is started, and that the user's program is the process itself."""

from __future__ import annotations

import signal
import subprocess

import pytest

from howdah.frameworks.programs import argv

SINGLE = [
    "python train.py",
    "python train.py --lr 0.1 --name 'a b; c'",
    'python -c "print(1); print(2)"',
    "python train.py > out.log 2>&1",
    "./run.sh $HOME/data",
    "$PYTHON train.py",
    "env A=1 python train.py",
    "  torchrun train.py  ",
    r"python train.py a\;b",
    "python train.py --glob *.csv",
]
OTHER = [
    "cd src && python train.py",
    "python a.py; python b.py",
    "python a.py | tee log",
    "A=1 python train.py",
    "exit 42",
    "for i in 1 2; do echo $i; done",
    "(python train.py)",
    "python a.py &",
    "python a.py\npython b.py",
    "source env.sh",
    "! true",
    "python $(which train)",
    "python 'unbalanced",
    "exec python train.py",
]


@pytest.mark.parametrize("command", SINGLE)
def test_the_shell_becomes_a_program_that_is_called_alone(command: str):
    assert argv(command) == ("/bin/sh", "-c", f"exec {command.strip()}")


@pytest.mark.parametrize("command", OTHER)
def test_other_command_lines_are_left_to_the_shell(command: str):
    assert argv(command) == ("/bin/sh", "-c", command)


def test_a_list_is_started_without_a_shell():
    assert argv(["python", "a b.py", "$HOME"]) == ("python", "a b.py", "$HOME")


@pytest.mark.parametrize("command", ["sleep 60", "sleep '60'"])
def test_a_signal_to_the_started_process_reaches_the_program_itself(command: str):
    child = subprocess.Popen(argv(command))
    child.send_signal(signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("exit 42", 42),
        ("true && exit 3", 3),
        ("A=5; exit $A", 5),
        ("sh -c 'exit 7'", 7),
        ('python3 -c "import sys; sys.exit(4)"', 4),
        ("sh -c 'exit 9' > /dev/null 2>&1", 9),
        ("no-such-program-anywhere", 127),
    ],
)
def test_exit_codes_are_kept(command: str, code: int):
    assert subprocess.run(argv(command), capture_output=True, timeout=20).returncode == code
