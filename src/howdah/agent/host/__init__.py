"""What this machine says of its processes and sockets.

Others import `processes`, which has the same names on Linux (`procfs`) and where there is no /proc
(`portable`). `tcp_table` reads the kernel's tables of sockets, `socket_owners` says whose a socket is. The
standard library only, and psutil where there is no /proc.
"""
