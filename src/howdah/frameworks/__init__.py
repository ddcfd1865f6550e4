"""What each framework needs: roles, restart rules, and the environment of every program.

`base` is the contract, `registry` finds a framework by name, `planning` turns a job into the core's plan.
The other modules are one framework each; CONTRIBUTING.md says how to add one.
"""
