"""What Howdah costs and how fast it is, next to what one would use without it.

``python -m benchmarks [name …]``; see docs/benchmarks.md. A benchmark never fails for a figure:
it prints what it saw, the goal, and whether that was met.
"""
