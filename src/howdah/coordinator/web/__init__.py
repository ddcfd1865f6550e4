"""The job's own web page and HTTP API, served by the coordinator over a `LiveJob`.

Nothing is imported here: the coordinator loads `app` and `server` only after the first tasks are
launched.
"""
