"""What coordinator, agents and clients say to each other, and how: frames of msgpack over mutual TLS.

`messages` has every message, `frames` and `channel` carry them, `authority` and `tls` make the certificates
of a job, `status` is the status document, `tickets` are the links to pages.
"""
