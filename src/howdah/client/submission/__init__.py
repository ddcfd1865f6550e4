"""Starting a job: from a job file, flags, a program or an earlier job to one that its backend has taken over.

Start with `submit`. `loading` gives it a job, `begin` lets the backend start up meanwhile, `checks` and `stores`
refuse what could not run; `resubmission` starts a job again, `functions` makes a job of a Python function (its
`function_script` is what runs in the task). Imports backends, and nothing else of the client but its errors.
"""
