"""What can be wrong with a job file, found all at once.

In this order, as `howdah.spec.load` goes: `shape` (known keys, values of the right kind; what it says is in `hints`),
`rules` (what contradicts itself), `paths` (the only ones that look at the disk), `limits` (a site's). None knows a
framework: `howdah.frameworks.checks` does.
"""
