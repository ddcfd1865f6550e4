"""The ``howdah`` command. `main` finds the subcommand and turns what it raises into words and a code.

`commands` has the commands, a module for each or for a family of them; `arguments` the options and arguments that
several have, such as how one is told which job. `display` is how it looks. `failures` says what errors print
and exit with, `tony_options` what ``--tony`` takes.
"""
