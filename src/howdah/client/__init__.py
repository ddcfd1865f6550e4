"""Jobs from the client's side: submit, find, follow, stop, add up. The command line is built on this.

Start with `handle` (asyncio; `sync` is the same for other programs) or `api`, what users import.

- to start a job: `submission`, and `sweep` for many; to find one: `lookup`; to follow one: `following`, `history`
- after it: `advice`, `accounting` and `usage`, `measurements`, `outputs`, `removal`; of this machine: `doctor`
"""
