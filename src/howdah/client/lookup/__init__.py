"""Which jobs there are: one by what a user calls it (`find`), many at a glance (`listing`).

Start with `find`. `site` asks a job's backend where it is and whether it goes on. `states` has the one word that lists
show and choose by; it imports nothing, because the command line needs it for its help.
"""
