"""How Sphinx builds the documentation site: `make site`.

What comes in: the folder that `scripts/site_source.py` filled from the documents of this repository. What goes out:
HTML. Rules: 1. The documents are Markdown as GitHub shows it; nothing in them is for Sphinx only. 2. Any warning, a
broken link among them, fails the build.
Not here: which pages there are (`nav.toml`), what is generated (`scripts/reference.py`).
"""

from importlib.metadata import version as version_of

project = "amqpd"
author = "the amqpd authors"
version = release = version_of("amqpd")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
# Links to headings are those that GitHub makes.
myst_heading_anchors = 6
# Documents without a language in their blocks of code are shell, logs and pictures.
highlight_language = "none"
# Quotation marks of commands and settings stay as they are typed.
smartquotes = False

html_theme = "pydata_sphinx_theme"
html_title = "amqpd"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_persistent": ["search-button-field"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "navigation_depth": 2,
    "show_toc_level": 2,
}
copyright = "the amqpd authors, Apache License 2.0"
