"""The job file: what a user may write, read, checked and turned into one `Job`."""
