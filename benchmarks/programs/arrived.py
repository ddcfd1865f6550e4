"""Notes when it runs, in a folder given as first argument; stays as long as the second says."""

import os
import sys
import time
from pathlib import Path

now = time.time()
note = Path(sys.argv[1], os.environ.get("CONTAINER_ID") or str(os.getpid()))
part = note.with_suffix(".part")
part.write_text(f"{now:.6f}")
part.rename(note)
print(f"started {now:.6f}", flush=True)
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
