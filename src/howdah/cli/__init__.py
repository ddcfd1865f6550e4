"""The ``howdah`` command. `main` finds the subcommand; each module has one command or a family of them.

`jobs` says how commands are told which job, `formatting`, `summary` and `screen` how it looks,
`failures` what errors print and exit with.
"""
