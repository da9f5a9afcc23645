"""Settings of the documentation's web site, which `make docs` builds with Sphinx."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Proctor"
author = "the authors of Proctor"
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
# The site's pages are read in the repository itself, so that links between folders hold.
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "policies/prompts/*.md", "tests/golden/README.md"]
# Prompts and the like are pages because others link to them; they are in no menu.
suppress_warnings = ["toc.not_included"]
html_theme = "furo"
html_title = "Proctor"
html_show_sphinx = False
html_copy_source = False
templates_path: list[str] = []

# A heading of any depth can be linked to, under the same name as on a code host.
myst_heading_anchors = 4
myst_enable_extensions = ["linkify"]
myst_linkify_fuzzy_links = False
# A prompt is shown in the examples and not copied with them.
copybutton_prompt_text = "$ "

FOLDERS = {
    "docs/reference": "Reference",
    "docs/explanation": "Explanation",
    "docs/explanation/decisions": "Decisions",
    "docs/studies": "Studies",
}
REPOSITORY = Path(__file__).parent.parent
FIRST_PAGE = """<!doctype html><meta charset="utf-8"><title>Proctor</title>
<meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">Proctor</a>
"""


def add_navigation(_app: "Sphinx", page: str, source: list[str]) -> None:
    """Append the navigation to the first page: guides as docs/README.md lists them, then folders.

    The pages stay plain Markdown this way and are read as well where nothing is built.
    """
    if page != root_doc:
        return
    start = ("README", "how-to/install", "tutorial/first-run", "examples/README", "figures")
    parts = {"": [f"docs/{name}" for name in (*start, "examples/cheat/README")]}
    index = (REPOSITORY / "docs/README.md").read_text(encoding="utf-8")
    for caption, text in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", index, re.MULTILINE):
        guides = dict.fromkeys(re.findall(r"\((how-to/[a-z-]+)\.md", text))
        parts[caption] = [f"docs/{name}" for name in guides]
    parts["You contribute"] += ["CONTRIBUTING", "SECURITY", "CHANGELOG"]
    for folder, caption in FOLDERS.items():
        pages = sorted((REPOSITORY / folder).glob("*.md"))
        parts[caption] = [file.relative_to(REPOSITORY).with_suffix("").as_posix() for file in pages]
    for caption, names in parts.items():
        menu = [":hidden:", f":caption: {caption}" if caption else "", "", *names]
        source[0] += "\n\n" + "\n".join(["```{toctree}", *menu, "```"])


def add_first_page(app: "Sphinx", error: Exception | None) -> None:
    """Write `index.html`, which leads to the first page."""
    if error is None:
        (Path(app.outdir) / "index.html").write_text(FIRST_PAGE, encoding="utf-8")


def setup(app: "Sphinx") -> dict[str, bool]:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
