"""What a job ships: environment, source and files as archives, the same bytes for the same content.

`job_archives` has all of a job; `python` (a package), `source` and `files` are its parts, `store` uploads
what the cluster lacks. On one machine `in_place` and `snapshot` take their place.
"""
