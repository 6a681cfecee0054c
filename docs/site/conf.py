"""Sphinx's settings for the pages that stage.py has gathered: `make site`."""

import re
from pathlib import Path

_source = Path(__file__).parents[2] / "src/causeway/__init__.py"
_version = re.search(r'^__version__ = "(.+)"', _source.read_text(), re.MULTILINE)
if not _version:
    raise ValueError(f"{_source} has no __version__")

project = "Causeway"
release = _version[1]
copyright = "the authors of Causeway"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "index"
html_theme = "furo"
html_title = f"Causeway {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4  # GitHub's, so that links work in both places
myst_enable_extensions = ["colon_fence"]
smartquotes = False  # `--flag` stays as it is
copybutton_exclude = ".linenos, .gp"
maximum_signature_line_length = 88
