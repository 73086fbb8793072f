"""How the site is built: `make docs` writes it to docs/_build/html."""

import sys
from pathlib import Path

import activehuber

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))

project = "activehuber"
author = "The activehuber developers"
copyright = "The activehuber developers"
version = release = activehuber.__version__

extensions = [
    "mathml",
    "plain_docstrings",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "Thumbs.db", "README.md"]
templates_path = ["_templates"]
# `HLRegressor` in a docstring is a link where there is something to link to.
default_role = "py:obj"
highlight_language = "none"  # what a command prints is no Python

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3

# --- reference ----------------------------------------------------------------------------

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # types are in the docstrings, with their shapes
numpydoc_show_class_members = False  # the template of a class lists them
numpydoc_class_members_toctree = False

# --- gallery ------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "within_subsection_order": "gallery_order.place",
    "backreferences_dir": "api/generated/backreferences",
    "doc_module": ("activehuber",),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # how long an example took is no part of the site
    "write_computation_times": False,
}

# --- look ---------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "activehuber"
html_static_path = ["_static"]
html_css_files = ["activehuber.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "activehuber"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
# Pages without pages below them have no navigation to show.
ALONE = ["index", "mathematics", "comparison", "reproduction", "combinations", "commands"]
html_sidebars = {page: [] for page in [*ALONE, "architecture", "contributing", "changelog"]}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
