"""Jobs from the client's side: submit, find, follow, stop, add up. The command line is built on this.

- to start a job: `loading`, `checks`, `submit`, `resubmission`, `sweep`
- to find one: `job_lookup`, `listing`, `liveness`
- to follow one: `handle` (asyncio), `sync`, `remote` (a coordinator), `offline_job` (its directory)
- after it: `advice`, `accounting` and `usage`, `outputs`, `removal`
- what users import: `api`
"""
