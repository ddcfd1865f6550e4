"""What is seen of a task's programs while they run.

- `metrics`: use of the machine, memory against its limit, progress; `reports`: what `howdah.task` says
- `probes`: whether a program has found its peers; `stacks`: where its processes stand
- `pages`: web pages that the programs serve
"""
