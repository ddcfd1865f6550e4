"""What each framework needs: roles, restart rules, and the environment of every program.

Start with `base`, the contract. `registry` finds a framework by name, `planning` turns a job into the core's plan
(with `checks` and `sidecars`), `programs` a topology into each program's command and environment (with `addresses`
and `tony`). `helpers` are the scripts that helper roles run. The other modules are one framework each;
CONTRIBUTING.md says how to add one.
"""
