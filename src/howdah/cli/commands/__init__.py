"""The commands, each in a module of its name; `howdah.cli.main` has those that share one.

- to run jobs: `job_file` (``init``, ``check``), `run` (``run``, ``submit``, ``rerun``, ``attach``), `dryrun` (``--dry-run``)
- to look at one: `show` (``status``, ``events``, ``metrics``, ``advice``, ``outputs``), `logs`, `stack`, `pages` (in the browser)
- to remove past ones: `removal` (``rm``, ``prune``)

At its top a module imports click and little else, so that ``--help`` is quick; the rest where it is used.
"""
