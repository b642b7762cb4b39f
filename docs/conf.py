"""The documentation: `make docs` builds it into build/docs, without a network, and takes every warning for an error."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "langevin"
author = "the langevin authors"
copyright = author
version = release = installed("langevin")

extensions = ["sphinx.ext.autodoc", "myst_parser", "plain_docstrings", "mathml"]
exclude_patterns = ["extensions"]
# Names are not looked up in other projects: no build needs a network.
highlight_language = "none"
smartquotes = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
add_module_names = False

html_theme = "furo"
html_title = f"langevin {release}"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["langevin.css"]
html_copy_source = False
html_show_sourcelink = False
