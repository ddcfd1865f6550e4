"""How Sphinx builds the documentation: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate_diagrams

# The texts in docs/diagrams are the pictures' source.
generate_diagrams.main()

project = "Howdah"
author = "The Howdah authors"
project_copyright = "The Howdah authors"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "diagrams"]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Howdah"
html_favicon = "../src/howdah/coordinator/web/static/icon.svg"
# Of pictures also the dark ones, which pages do not name: see howdah.js.
html_static_path = ["_static", "images"]
html_css_files = ["howdah.css"]
html_js_files = [("howdah.js", {"defer": "defer"})]
html_extra_path = ["../src/howdah/spec/job-file.schema.json"]
html_copy_source = False
html_show_sourcelink = False
# Python is highlighted where a block says so; everything else in a console is plain text.
highlight_language = "none"
