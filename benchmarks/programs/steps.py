"""Trains for ever, in small steps, and says every tenth: what a pause in training shows in.

usage: steps.py
"""

import os
import time

step = 0
while True:
    step += 1
    sum(x * x for x in range(20_000))
    time.sleep(0.01)
    if step % 10 == 0:
        os.write(1, f"step {step} {time.time():.3f}\n".encode())
