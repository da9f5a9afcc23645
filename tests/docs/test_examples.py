"""The folder of examples: complete, short, and its notebook prints what is saved in it.

The console blocks of the examples' pages are run by test_snippets.py.
"""

import ast
import contextlib
import doctest
import io
import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from console_pages import EXAMPLES, run_line

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/examples"
NOTEBOOK = FOLDER / "audit/audit.ipynb"
GOLDEN = ROOT / "tests/golden"


def cells(kind: str) -> list[Any]:
    return [
        cell
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == kind
    ]


def test_index_names_each_example_and_the_page_that_runs_it() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| .*?\]\(([^)#]+)", index, re.MULTILINE))
    pages = {name: (FOLDER / link).resolve().relative_to(ROOT) for name, link in rows.items()}
    assert set(EXAMPLES.items()) <= {page.as_posix(): name for name, page in pages.items()}.items()
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(rows)


def test_index_of_the_documentation_names_each_guide() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    guides = {path.name for path in (ROOT / "docs/how-to").glob("*.md")}
    assert set(re.findall(r"\(how-to/([a-z-]+\.md)", index)) == guides


def test_files_of_the_examples_can_be_read() -> None:
    for path in FOLDER.rglob("*"):
        if path.suffix == ".py":
            ast.parse(path.read_text(encoding="utf-8"))
        elif path.suffix == ".toml":
            tomllib.loads(path.read_text(encoding="utf-8"))
    for cell in cells("code"):
        source = "".join(cell["source"])
        if not source.startswith("%%sh\n"):
            ast.parse(source)


def test_guide_shows_the_loop_of_the_example() -> None:
    guide = (ROOT / "docs/how-to/watch-your-own-loop.md").read_text(encoding="utf-8")
    shown, *_ = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert shown in (FOLDER / "watch/mine.py").read_text(encoding="utf-8")


def test_gallery_shows_each_picture_that_is_made_and_all_are_small() -> None:
    gallery = ROOT / "docs/gallery"
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^]]{40,}\]\(\.\./gallery/(\w+\.png)\)", page)
    made = re.findall(
        r'^    "(\w+)": "', (ROOT / "tests/pages/make_gallery.py").read_text(encoding="utf-8"), re.M
    )
    assert sorted(shown) == sorted(path.name for path in gallery.glob("*.png"))
    assert sorted(shown) == sorted(f"{name}.png" for name in made)
    assert all((gallery / name).stat().st_size <= 200_000 for name in shown)


@pytest.mark.slow
def test_notebook_prints_what_is_saved_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home,) = GOLDEN.glob("calibrated_2/runs/*/submission")
    shutil.copytree(GOLDEN / "calibrated_2_bundle", tmp_path / "bundle")
    shutil.copytree(home, tmp_path / "submission")
    shutil.copy(GOLDEN / "calibrated_2/ledger/ledger.vkey", tmp_path / "owner.vkey")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    names: dict[str, Any] = {}
    frames = 0
    for cell in cells("code"):
        source = "".join(cell["source"])
        if source.startswith("%%sh\n"):
            line = source.removeprefix("%%sh\n").removesuffix(" || true")
            printed, error = run_line(line, cwd=tmp_path, environment=dict(os.environ), forked=True)
            assert "Traceback" not in error, error
        else:
            printed, value = run_cell(source, names)
            if hasattr(value, "_repr_html_"):
                frames += value._repr_html_().startswith("<iframe sandbox ")
            elif value is not None:
                printed += repr(value)
        saved = "".join(text_of(output) for output in cell["outputs"])
        assert doctest.OutputChecker().check_output(saved, printed, doctest.NORMALIZE_WHITESPACE), (
            f"{source}\nsaved:\n{saved}\nprints:\n{printed}"
        )
    assert frames == 1


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, object]:
    """Run a cell as a notebook does; return what it prints, and the value of its last line."""
    *lines, last = ast.parse(source).body
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(lines, []), "cell", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        else:
            exec(compile(source, "cell", "exec"), names)
    return out.getvalue(), value


def text_of(output: dict[str, Any]) -> str:
    """Return what a saved output shows as text; a report is saved without its page."""
    if output["output_type"] == "stream":
        text = "".join(output["text"]) if output["name"] == "stdout" else ""
    else:
        text = "" if "text/html" in output["data"] else "".join(output["data"]["text/plain"])
    return re.sub("\x1b\\[[0-9;]*m", "", text)
