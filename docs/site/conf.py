# The site, for Sphinx (sphinx-build -c docs/site PAGES OUT). MyST reads Markdown as GitHub does (CommonMark, and the same
# anchors of headings), and Furo needs nothing from the network: fonts are the reader's, the search is a script of the site.
project = "Tutti"
author = "the authors of Tutti"
extensions = ["myst_parser"]
myst_heading_anchors = 6
myst_enable_extensions = []
root_doc = "index"
html_theme = "furo"
html_title = "Tutti"
html_static_path = ["static"]
html_css_files = ["tutti.css"]
html_copy_source = False
html_show_sphinx = False
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]
