"""What an attempt's end means."""

from __future__ import annotations

import errno

import pytest

from howdah.agent.outcome import EndedProgram, exit_of, not_started
from howdah.core.causes import describe_exit
from howdah.core.messages import Exit


def test_the_first_program_that_failed_by_itself_decides() -> None:
    ends = [
        EndedProgram(process=2, status=0),
        EndedProgram(process=1, status=42, tail=("boom",)),
        EndedProgram(process=0, status=-15, asked=True),
    ]
    exit = exit_of(ends)
    assert (exit.process, exit.code, exit.signal, exit.tail) == (1, 42, None, ("boom",))


def test_all_programs_that_ended_well_are_success_without_a_tail() -> None:
    exit = exit_of([EndedProgram(process=p, status=0, tail=("bye",)) for p in (1, 0)])
    assert (exit.code, exit.tail) == (0, ())


def test_a_signal_is_told_as_signal() -> None:
    exit = exit_of([EndedProgram(process=0, status=-11)])
    assert (exit.code, exit.signal) == (None, 11)


@pytest.mark.parametrize("status", [-9, 137])
def test_a_kill_is_out_of_memory_only_if_the_kernel_counted_one(status: int) -> None:
    ends = [EndedProgram(process=0, status=status)]
    assert not exit_of(ends).out_of_memory
    proven = exit_of(ends, kernel_kills=1, limit_mb=2048)
    assert "which may use 2048 MB" in proven.detail
    assert proven.out_of_memory
    assert "out-of-memory killer" in proven.detail


def test_another_failure_is_not_out_of_memory_though_the_kernel_counted_a_kill() -> None:
    assert not exit_of([EndedProgram(process=0, status=1)], kernel_kills=1).out_of_memory


def test_our_own_kill_is_not_out_of_memory() -> None:
    assert not exit_of(
        [EndedProgram(process=0, status=-9, asked=True)], kernel_kills=3
    ).out_of_memory


def test_ending_it_over_its_limit_is_out_of_memory_with_the_figures() -> None:
    exit = exit_of(
        [EndedProgram(process=0, status=-9, asked=True)], over_memory="used 120 MB of 100 MB"
    )
    assert exit.out_of_memory
    assert exit.detail == "used 120 MB of 100 MB"


OWN = (20001, 20002)

BIND_ERRORS = {
    "Python": ["OSError: [Errno 98] Address already in use"],
    "http.server, its source line": [
        "    self.socket.bind(self.server_address)",
        "OSError: [Errno 98] Address already in use",
    ],
    "Gloo": ["[../gloo/transport/tcp/device.cc:84] bind: Address already in use"],
    "Java": ["java.net.BindException: Address already in use (Bind failed)"],
    "TensorFlow": ["errors_impl.UnknownError: Could not start gRPC server"],
    "JAX": ["jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server"],
    "Dask": ["    raise RuntimeError(...) from exc", "RuntimeError: Scheduler failed to start."],
    "XGBoost": ["Failed to bind socket: Address already in use", "  [bt] (1) lib.so(+0x1cdc86)"],
}
"""Texts of frameworks that do not name the port."""


@pytest.mark.parametrize("text", BIND_ERRORS)
def test_where_no_port_is_named_a_reserved_one_counts_that_another_program_has(text: str) -> None:
    program = EndedProgram(process=0, status=1, tail=tuple(BIND_ERRORS[text]))
    free = exit_of([program], ports=OWN, is_held=lambda port: False)
    assert (free.port_taken, free.port) == (False, None)
    held = exit_of([program], ports=OWN, is_held=lambda port: port == 20002)
    assert (held.port_taken, held.port) == (True, 20002)


PORT = "PORT"
NAMED_BIND_ERRORS = {
    "Python": [
        "OSError: [Errno 98] Address already in use (while attempting to bind on address "
        "('127.0.0.1', PORT))"
    ],
    "asyncio, uvicorn": [
        "ERROR:    [Errno 98] error while attempting to bind on address ('::1', PORT, 0, 0): "
        "address already in use"
    ],
    "a source line": ["    s.bind(('', PORT))", "    ^^^^^", "OSError: Address already in use"],
    "c10d": [
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
        "network address. port: PORT, useIpv6: false, code: -98, name: EADDRINUSE, message: "
        "address already in use"
    ],
    "c10d of PyTorch 1": [
        "[socket.cpp:426] The server socket has failed to bind to [::]:PORT (errno: 98 - Address "
        "already in use)."
    ],
    "gRPC": ["RuntimeError: Failed to bind to address 0.0.0.0:PORT; set GRPC_VERBOSITY=debug"],
    "gRPC's core": [
        "E1122 17:01:12.621400    4638 chttp2_server.cc:1045] UNKNOWN:No address added out of "
        "total 1 resolved for '[::]:PORT' {children:[UNKNOWN:Unable to configure socket {fd:10}, "
        'UNKNOWN:Address already in use {syscall:"bind", errno:98}]}'
    ],
    "JAX": [
        "E1122 17:01:12.621400    4638 add_port.cc:83] Failed to add port to server: No address "
        "added out of total 1 resolved for '[::]:PORT'"
    ],
    "NCCL": [
        "node1:31234:31240 [0] misc/socket.cc:371 NCCL WARN Bind to 10.0.0.1<PORT> failed : "
        "Address already in use"
    ],
    "Ray": [
        "(gcs_server) grpc_server.cc:134: Check failed: server_ Failed to start the grpc server. "
        "The specified port is PORT. This means that Ray's core components"
    ],
    "LightGBM": ["lightgbm.basic.LightGBMError: Binding port PORT failed"],
    "TensorBoard": ["ERROR: TensorBoard could not bind to port PORT, it was already in use"],
    "gunicorn": ["[ERROR] Connection in use: ('0.0.0.0', PORT)"],
    "Flask": ["Address already in use", "Port PORT is in use by another program. Either identify"],
    "Node": ["Error: listen EADDRINUSE: address already in use :::PORT"],
    "Go": ["listen tcp :PORT: bind: address already in use"],
    "nginx": ["nginx: [emerg] bind() to 0.0.0.0:PORT failed (98: Address already in use)"],
}


@pytest.mark.parametrize("text", NAMED_BIND_ERRORS)
def test_a_port_that_is_named_is_taken_only_if_it_was_reserved(text: str) -> None:
    def exit_with(port: int) -> Exit:
        tail = tuple(line.replace(PORT, str(port)) for line in NAMED_BIND_ERRORS[text])
        # Whatever holds a reserved port now: another one is named.
        program = EndedProgram(process=0, status=1, tail=tail)
        return exit_of([program], ports=OWN, is_held=lambda port: True)

    own, hard_coded = exit_with(20002), exit_with(8765)
    assert (own.port_taken, own.port) == (True, 20002)
    assert (hard_coded.port_taken, hard_coded.port) == (False, 8765)


@pytest.mark.parametrize(
    "tail",
    [
        ["ValueError: no such thing"],
        [],
        ["UserWarning: Port 8787 is already in use. Hosting the HTTP server on port 36431 instead"],
        ["Port 8787 is already in use.", "Hosting the HTTP server on port 36431 instead", "boom"],
        ["The port 8888 is already in use, trying another port.", "KeyError: 'x'"],
    ],
)
def test_other_failures_are_not_about_ports(tail: list[str]) -> None:
    exit = exit_of(
        [EndedProgram(process=0, status=1, tail=tuple(tail))], ports=OWN, is_held=lambda _: True
    )
    assert (exit.port_taken, exit.port) == (False, None)


def test_a_task_without_ports_has_none_taken() -> None:
    program = EndedProgram(process=0, status=1, tail=("Address already in use: port 8765",))
    exit = exit_of([program], ports=())
    assert (exit.port_taken, exit.port) == (False, 8765)


def test_a_taken_port_counts_only_for_a_failure_of_its_own() -> None:
    tail = ("OSError: [Errno 98] Address already in use: ('', 20001)",)
    assert exit_of([EndedProgram(process=0, status=1, tail=tail)], ports=(20001,)).port_taken
    stopped = EndedProgram(process=0, status=1, tail=tail, asked=True)
    assert not exit_of([stopped], ports=(20001,)).port_taken
    assert not exit_of([EndedProgram(process=0, status=0, tail=tail)], ports=(20001,)).port_taken


@pytest.mark.parametrize(
    ("asked", "told", "stopped"),
    [(True, True, True), (False, True, False), (True, False, False), (False, False, False)],
)
def test_an_end_is_our_stop_only_if_we_were_told_and_it_came_after(
    asked: bool, told: bool, stopped: bool
) -> None:
    end = EndedProgram(process=0, status=-9, asked=asked)
    assert exit_of([end], told=told).stopped is stopped


def test_the_run_time_out_is_named() -> None:
    exit = exit_of([EndedProgram(process=0, status=-15, asked=True)], timed_out=True, run_s=90.0)
    assert exit.timed_out
    assert "90 s" in exit.detail


@pytest.mark.parametrize(
    ("argv", "error", "words"),
    [
        (["pyhton"], FileNotFoundError(errno.ENOENT, "x", "pyhton"), "no program 'pyhton' on PATH"),
        (["./run"], FileNotFoundError(errno.ENOENT, "x", "./run"), "first line (#!)"),
        (["./run"], PermissionError(errno.EACCES, "x"), "chmod +x"),
        (["./run"], OSError(errno.ENOEXEC, "x"), "no program for this machine"),
        (["a"], OSError(errno.E2BIG, "x"), "too large together"),
        (["a"], OSError(errno.EAGAIN, "x"), "no room for another process"),
        (["a"], FileNotFoundError(errno.ENOENT, "x", "/gone"), "working folder /gone is gone"),
        (["a\0b"], ValueError("embedded null byte"), "embedded null byte"),
    ],
)
def test_a_start_that_fails_is_explained(argv: list[str], error: Exception, words: str) -> None:
    assert words in not_started(argv, "/gone", error)


TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/w/train.py", line 7, in <module>',
    "    step()",
    '  File "/usr/lib/python3/torch/nn.py", line 90, in forward',
    "    raise RuntimeError(",
    "RuntimeError: Sizes of tensors must match",
    "expected 3, got 4",
)


def test_a_failure_s_reason_has_the_exception_and_the_program_s_own_line() -> None:
    exit = exit_of([EndedProgram(process=0, status=1, tail=TRACEBACK)], folder="/w")
    said = "RuntimeError: Sizes of tensors must match (train.py, line 7)"
    assert describe_exit(exit) == f"exited with code 1: {said}"
    assert exit.defect == ""  # it may pass: it is tried again


def described(status: int, tail: tuple[str, ...]) -> str:
    return describe_exit(exit_of([EndedProgram(process=0, status=status, tail=tail)]))


def test_an_exception_that_was_caught_is_no_reason() -> None:
    assert described(3, TRACEBACK) == "exited with code 3"
    assert described(1, ("KeyError: 'x'",)) == "exited with code 1"
