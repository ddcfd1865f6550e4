"""Start a command in another task of the job, as ssh does on another host. Standard library only.

As a program: ``mpi_remote.py [-x] NODE WORD...``; the words are joined and given to a shell there, as
ssh joins them, and its exit code is this program's. Its output goes to the log of the task it runs in.

Both ends show the certificate that the agents of the job share (HOWDAH_CERTIFICATES), over TLS 1.3, and
ask for it: nobody but the job's own tasks can start anything here. The caller sends one line of JSON,
``{"command": …}`` or ``{"end": code}``, and is answered with another, ``{"code": …}``. A caller that goes
away ends what it has started.
"""

import contextlib
import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

PATIENCE_S = 300
"""For a task that does not listen yet: gangs start together, on machines that are not equally busy."""
STRANGER_S = 10
"""For a port that somebody else has, who has not this job's certificate."""
LONGEST = 1 << 20
"""Bytes of a request. A daemon's command has some thousand."""


def nodes() -> dict:
    """Addresses by node, in order: ``{"worker-0": ("10.0.0.1", 20000)}``."""
    found = {}
    for entry in filter(None, os.environ.get("HOWDAH_MPI_NODES", "").split(",")):
        name, _, rest = entry.partition("=")
        host, _, port = rest.rpartition("*")[0].rpartition(":")
        found[name] = (host.strip("[]"), int(port))
    return found


def slots() -> dict:
    """Slots by node, in order."""
    entries = filter(None, os.environ.get("HOWDAH_MPI_HOSTS", "").split(","))
    return {name: int(number) for name, _, number in (e.rpartition(":") for e in entries)}


def certificate_name() -> str:
    """The name in the certificate that the job's agents share."""
    digest = hashlib.sha256(os.environ["HOWDAH_JOB_ID"].encode()).hexdigest()[:32]
    return f"agent.{digest}.howdah"


def context(protocol):
    """TLS that demands the job's own certificate from the other side."""
    authority, certificate, key = os.environ["HOWDAH_CERTIFICATES"].split(os.pathsep)
    made = ssl.SSLContext(protocol)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cafile=authority)
    made.load_cert_chain(certfile=certificate, keyfile=key)
    return made


def ask(node, request, patience_s=PATIENCE_S):
    """Send a request to a node and wait for its answer, however long that takes.

    Raises:
        OSError: it can't be reached, or has gone.
    """
    address = nodes()[node]
    deadline = time.monotonic() + patience_s
    stranger_until = None
    tls = context(ssl.PROTOCOL_TLS_CLIENT)
    while True:
        plain = None
        try:
            plain = socket.create_connection(address, timeout=10)
            line = tls.wrap_socket(plain, server_hostname=certificate_name())
            break
        except OSError as error:
            if plain is None or isinstance(error, TimeoutError):  # a busy machine is no stranger
                stranger_until = None
            elif stranger_until is None:
                # Somebody else has the port for a moment, be it this connection's own other end.
                stranger_until = time.monotonic() + STRANGER_S
            if time.monotonic() > min(deadline, stranger_until or deadline):
                raise
            time.sleep(0.1)
    with line:
        line.settimeout(None)
        line.sendall(json.dumps(request).encode() + b"\n")
        answer = read_line(line)
    if not answer:
        raise ConnectionError(f"{node} has ended the connection")
    return json.loads(answer)


def read_line(line):
    """One line, or nothing if the other side has gone."""
    data = b""
    while not data.endswith(b"\n"):
        part = line.recv(65536)
        if not part or len(data) > LONGEST:
            return b""
        data += part
    return data


class CommandServer:
    """Runs what the job's other tasks send, in this task's folder and environment."""

    def __init__(self, address):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._listener = socket.create_server(address, family=family, backlog=64)
        self._context = context(ssl.PROTOCOL_TLS_SERVER)
        self._told = threading.Event()
        self.code = None
        """With what the task is to end, once it was told."""
        threading.Thread(target=self._accept, daemon=True).start()

    def wait(self):
        """Until the task is told to end; returns with which code."""
        self._told.wait()
        return self.code

    def _accept(self):
        while True:
            plain, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain):
        plain.settimeout(20)
        try:
            with self._context.wrap_socket(plain, server_side=True) as line:
                certificate = line.getpeercert() or {}
                names = [value for _, value in certificate.get("subjectAltName", ())]
                if names != [certificate_name()]:
                    return
                request = json.loads(read_line(line) or b"{}")
                if "command" in request:
                    line.settimeout(None)
                    answer = {"code": run(request["command"], line)}
                elif "end" in request:
                    answer = {"code": 0}
                else:
                    return
                line.sendall(json.dumps(answer).encode() + b"\n")
                if "end" in request:
                    self.code = int(request["end"])
                    self._told.set()
        except (OSError, ValueError):  # strangers, and callers that have gone
            plain.close()


def run(command, line):
    """Run a command to its end, or until the caller has gone; returns its exit code."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HYDRA_")}
    child = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, start_new_session=True, env=env
    )

    def watch():
        with contextlib.suppress(OSError, ValueError):
            line.recv(1)  # nothing more is sent: this returns when the caller has gone
        if child.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def main() -> int:
    words = sys.argv[1:]
    while words and words[0].startswith("-"):  # Hydra asks ssh for no X11
        words.pop(0)
    if len(words) < 2 or words[0] not in nodes():
        known = ", ".join(nodes()) or "none"
        name = words[0] if words else ""
        print(f"{name!r} is no node of this job; its nodes are: {known}", file=sys.stderr)
        return 255
    try:
        return ask(words[0], {"command": " ".join(words[1:])})["code"]
    except OSError as error:
        print(f"cannot start anything in {words[0]}: {error}", file=sys.stderr)
        return 255


if __name__ == "__main__":
    sys.exit(main())
