"""TOML, YAML and JSON as they are written: plain values, each with its line, within bounds; nothing is known of jobs.

Start with `document`, which chooses the reader of a file. `reading` is what `toml_reader`, `yaml_reader` and
`json_reader` share.
"""
