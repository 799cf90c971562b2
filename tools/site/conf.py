"""Sphinx's configuration: build the site from the repository's Markdown, `make site`.

The pages stay as GitHub shows them. Sphinx adds the site's own parts, such as the table
of contents and the diffs side by side, while reading them.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

from tools.pages import stored
from tools.pages.switches import read_outcomes
from tools.run import palette
from tools.site import additions, contents

project = "Six scripts, one loss curve"
html_title = project
copyright = "the authors of Six scripts, one loss curve, MIT license"
extensions = ["myst_nb", "notfound.extension"]
extensions += ["sphinx_copybutton", "sphinxext.opengraph"]
copybutton_prompt_text = "$ "
root_doc = "README"
include_patterns = ["*.md", "0*/*.md", "beyond/**.md", "transformer/**.md"]
include_patterns += ["docs/*.md", "exercises/*.md", "onecurve/*.md"]
include_patterns += ["data/sample/*.md", "notebooks/*.ipynb", "tools/site/*.md"]
exclude_patterns = ["**/.*"]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "attrs_block"]
html_math_renderer = "mathml"
suppress_warnings = ["misc.highlighting_failure"]

nb_execution_mode = "off"  # the notebooks contain their outputs
nb_merge_streams = True
nb_code_prompt_show = nb_code_prompt_hide = "Code"

html_theme = "furo"
COLORS = {  # furo's names for the palette's colors
    "font-stack": palette.SANS,
    "font-stack--monospace": palette.MONO,
    "color-background-primary": "var(--page)",
    "color-background-secondary": "var(--panel)",
    "color-background-border": "var(--line)",
    "color-foreground-primary": "var(--ink)",
    "color-foreground-secondary": "var(--soft)",
    "color-brand-primary": "var(--right)",
    "color-brand-content": "var(--right)",
    "color-brand-visited": "var(--right)",
}
html_theme_options = {"light_css_variables": COLORS, "dark_css_variables": COLORS}
templates_path = ["templates"]
pygments_style = "default"
pygments_dark_style = "github-dark"
html_static_path = ["static", "../pages/view", "../pages/svg/hero.svg", "playground"]
html_css_files = ["base.css", "view.css", "hero.css"]
html_css_files += ["playground.css", "step.css", "site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_favicon = "../pages/view/favicon.svg"
html_use_index = False

_, owner, name = stored.address().rsplit("/", 2)
html_context = {"main_pages": contents.MAIN, "palette": palette.switchable()}
html_context |= {"served_from": f"/{name}/"}
html_context["losses"] = read_outcomes()["steps"]["01_cpu"]["1"]
ogp_site_url = f"https://{owner}.github.io/{name}/"
ogp_social_cards = {"enable": False}  # one picture per page takes minutes
# GitHub Pages shows this page at every unknown address, at any depth. `mend` removes
# the slash, because templates/page.html contains the site's folder.
notfound_urls_prefix = "/"
notfound_template = "search.html"
html_copy_source = False
html_show_sphinx = False


def draw_formula(translator, node):
    """Write a formula as MathML, which browsers display without a script."""
    translator.body.append(f"<p>{tex2mathml(node.astext(), as_block=True)}</p>")
    raise SkipNode


def setup(app):
    renderers = draw_formula, None
    app.add_html_math_renderer("mathml", renderers, renderers)
    app.connect("source-read", additions.add)
    app.connect("build-finished", additions.finish)
