"""Who a client is, and how servers are shown it: start with `login`.

`credentials` and `tokens` are Hadoop's tokens, `kms` those of encryption zones; `sasl` chooses among `kerberos` (by
`gss`) and `digest`; `names` are short names of principals.
"""
