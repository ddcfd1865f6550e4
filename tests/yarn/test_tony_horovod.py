"""The like of TonY's end-to-end tests of Horovod, which check what its programs are told."""

from __future__ import annotations

import json

import pytest

from tests.yarn.tony import Tony, conf

PROGRAM = """
import json, os, urllib.request
env = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
address = f"http://{env['HOROVOD_GLOO_RENDEZVOUS_ADDR']}:{env['HOROVOD_GLOO_RENDEZVOUS_PORT']}"
# What the programs of a job tell each other goes through the driver.
place = f"{address}/global/rank-{env['HOROVOD_RANK']}"
request = urllib.request.Request(place, data=b"here", method="PUT")
urllib.request.urlopen(request, timeout=30).read()
env["answer"] = urllib.request.urlopen(place, timeout=30).read().decode()
print("ENV " + json.dumps(env))
"""
DRIVER = """
import http.server, os
values = {}
class Store(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        values[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers()
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"own " + values[self.path])
http.server.HTTPServer(("", int(os.environ["HOWDAH_PORT"])), Store).serve_forever()
"""


HOROVOD = conf({"tony.application.framework": "horovod"})


@pytest.mark.tony("Horovod passes")
def test_horovods_programs_meet_at_their_driver(tony: Tony) -> None:
    job = tony.executes(PROGRAM, *HOROVOD, worker=2)
    final = job.wait(120)
    assert final.outcome == "succeeded", job.log("worker:0") + job.log("driver:0")
    found = [_env(job.log(f"worker:{index}")) for index in (0, 1)]
    assert [env["HOROVOD_RANK"] for env in found] == ["0", "1"]
    assert {env["HOROVOD_SIZE"] for env in found} == {"2"}
    assert {env["HOROVOD_CONTROLLER"] for env in found} == {"gloo"}
    assert {env["answer"] for env in found} == {"here"}


@pytest.mark.tony("Horovod with a driver of one's own passes")
def test_a_driver_of_ones_own_takes_the_place_of_ours(tony: Tony) -> None:
    tony.script("driver.py", DRIVER)
    job = tony.executes(
        PROGRAM,
        *HOROVOD,
        *conf(
            {
                "tony.driver.command": "python3 driver.py",
                "tony.application.untracked.jobtypes": "driver",
            }
        ),
        worker=2,
        driver=1,
    )
    final = job.wait(120)
    assert final.outcome == "succeeded", job.log("worker:0") + job.log("driver:0")
    assert {_env(job.log(f"worker:{index}"))["answer"] for index in (0, 1)} == {"own here"}


def _env(log: str) -> dict[str, str]:
    line = next(line for line in log.splitlines() if line.startswith("ENV "))
    return json.loads(line.removeprefix("ENV "))
