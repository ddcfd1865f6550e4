"""The job file: what a user may write, read, checked and turned into one `Job`.

Start with `model`, which has every table and key. `load` reads a file, `overrides` puts ``--set`` over
it, `rules` checks it, and `site` has an administrator's defaults and limits. `schema` and `templates`
are for editors and ``howdah init``.
"""
