"""How the command line looks: what it prints, in which form, and how that gets to the terminal.

Start with `attached`, which shows a job until it ends; `screen` has its lines for people and for programs, `summary`
what is said at the end. `formatting` has units, colours and tables. Text of others passes `terminal`, and `writer`
writes it beside a status line. Of the command line this imports nothing else.
"""
