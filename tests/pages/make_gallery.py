"""Makes the pictures of docs/gallery, from what the tutorial and the examples do: `make gallery`.

    python tests/pages/make_gallery.py [NAME...]

Each picture is the beginning of a real report, as Chromium shows it. `proctor` is on the path.
"""

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console_pages import EXAMPLES, console_lines, copy_example
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs/gallery"
LIMIT = 200_000  # bytes of a picture
# What is reported: the newest run, after each verdict of a page; or what a command's output names.
SCENES: Mapping[str, tuple[str, ...]] = {
    "docs/tutorial/first-run.md": ("run", "idle"),
    "docs/examples/cheat/README.md": ("caught",),
    "docs/how-to/compare-policies.md": ("comparison",),
    "proctor line init sample --demo": ("line",),
}
ENDS = {  # what a picture ends with
    "run": "#chart-loss",
    "idle": "#chart-loss",
    "caught": "#chart-loss",
    "comparison": "table",
    "line": ".tree >> nth=1",
}
WIDTH = 1080  # pixels
_REPORTED = re.compile(r"proctor (judge|compare|line init)\b")
_NAMED = re.compile(r"^(?:comparison|line) ([0-9a-f-]{36})", re.MULTILINE)


def main() -> None:
    os.environ["PROCTOR_STATE"] = "off"
    chosen = set(sys.argv[1:]) or {name for names in SCENES.values() for name in names}
    GALLERY.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scene, names in SCENES.items():
            if chosen & set(names):
                with tempfile.TemporaryDirectory(prefix="gallery-") as place:
                    for name, page in zip(names, reports(scene, Path(place)), strict=True):
                        if name in chosen:
                            print(name, take_picture(name, page, browser), "bytes", flush=True)


def reports(scene: str, place: Path) -> list[Path]:
    """Do what a page or a command says, and write the reports."""
    lines = [scene]
    if scene.endswith(".md"):
        text = (ROOT / scene).read_text(encoding="utf-8")
        lines = [command for command, _ in console_lines(text)]
        if scene in EXAMPLES:
            copy_example(scene, place)
    made: list[Path] = []
    for line in lines:
        if re.match(r"proctor (replay|sql|show|verify|report)\b", line):
            continue  # it only reads
        out = run(line, place)
        if _REPORTED.match(line):
            named = _NAMED.search(out)
            made.append(place / f"{len(made)}.html")
            run(f"proctor report {named[1] if named else 'latest'} --out {made[-1]}", place)
            if len(made) == len(SCENES[scene]):
                break
    return made


def run(line: str, place: Path) -> str:
    """Run a line in a shell, as a reader does; return what it prints."""
    done = subprocess.run(
        line, shell=True, cwd=place, stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout


def take_picture(name: str, page: Path, browser: Any) -> int:
    """Write the beginning of a page as PNG; return its size."""
    window = browser.new_page(viewport={"width": WIDTH, "height": 900})
    window.goto(page.as_uri())
    last = window.locator(ENDS[name]).first.bounding_box()
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": last["y"] + last["height"] + 8}
    shot = Image.open(io.BytesIO(window.screenshot(clip=clip, full_page=True))).convert("RGB")
    content = io.BytesIO()
    shot.quantize(256).save(content, "PNG", optimize=True)  # colours
    window.close()
    assert content.tell() <= LIMIT, f"{name}: {content.tell()} bytes"
    (GALLERY / f"{name}.png").write_bytes(content.getvalue())
    return content.tell()


if __name__ == "__main__":
    main()
