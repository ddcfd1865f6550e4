"""Checkpoints that follow a job: folders of a task, saved as versions, brought back before a start.

- `watching`, `upload`, `versions`: when to save, how and what is promised of it, and what a version is
- `restoring`, `local_fallback`: bringing one back, and what the store did not take
- `unsaved_files`: files that no version has
"""
