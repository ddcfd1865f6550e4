"""Python as an archive: the user's environment, and Howdah's own runtime.

`environment` makes what a job file's ``[environment]`` names, with `venv`, `uv`, `conda` or a ready archive;
`runtime` makes Howdah's. `interpreter` is the part that runs wherever it is unpacked.
"""
