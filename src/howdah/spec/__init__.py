"""The job file: what a user may write, read, checked and turned into one `Job`.

Start with `model`, which has every table and key, and `load`, which goes the whole way. `readers` read a file, with
the line of every value; `site` has an administrator's defaults under it and `overrides` puts ``--set`` over it;
`checks` finds all that is wrong, for `problems` to say. `templates` are for ``howdah init``.
"""
