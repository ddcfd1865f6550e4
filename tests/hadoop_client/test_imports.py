"""What importing the library costs, and drags in."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys, time
import google.protobuf.message, google.protobuf.descriptor_pool, asyncio
before = set(sys.modules)
begun = time.process_time()
import howdah.hadoop.resourcemanager, howdah.hadoop.scheduler, howdah.hadoop.nodemanager
import howdah.hadoop.namenode, howdah.hadoop.security.credentials
took = time.process_time() - begun
print(json.dumps([took, sorted(set(sys.modules) - before)]))
"""


def test_importing_is_light_and_stays_within_the_library() -> None:
    best = 9.9
    modules: list[str] = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
        took, modules = json.loads(done.stdout)
        best = min(best, took)
    assert best < 0.5
    ours = [name for name in modules if name.startswith("howdah.") and "hadoop" not in name]
    assert not ours
    assert not {"msgspec", "hdfs_native", "fsspec"} & set(modules)
