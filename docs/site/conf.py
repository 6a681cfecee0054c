"""Sphinx's settings for the pages that stage.py has gathered: `make site`."""

project = "Causeway"
copyright = "the authors of Causeway"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "index"
html_theme = "furo"
html_title = "Causeway"
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
