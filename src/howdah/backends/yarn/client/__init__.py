"""The submitting machine's side of the YARN backend: see `submit`, then `site` for a job that is there.

`checks` says what a cluster can never grant (pure), `staging` what is shipped, `doctor` what a cluster offers,
`remote_jobs` finds jobs of other machines.
"""
