"""Checkpoints that follow a job: folders of a task, saved as versions, brought back before a start.

- `helper`: the process an agent starts for all of it; what is promised stands there
- `watching`, `upload`, `versions`: when to save, how, and what a version is
- `restoring`, `local_fallback`: bringing one back, and what the store did not take
- `unsaved_files`: files that no version has
"""
