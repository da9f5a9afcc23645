"""What a failing command printed becomes one line and a remedy, whatever it printed."""

from pathlib import Path

import pytest
from gauntlet_scene import FILES, Scene
from msgspec.structs import replace

from judge.gauntlet.repository.failures import explained, fails_to_import, last_error
from judge.gauntlet.repository.manifest import Environment, Manifest, Text, parse_manifest

TRACEBACK = b'Traceback (most recent call last):\n  File "w.py", line 4, in <module>\n'
COLLECTION = b"""\
E   ModuleNotFoundError: No module named '%s'
=========================== short test summary info ============================
ERROR tests/test_text.py
!!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection !!!!!!!!!!!!!!!!!!!!
1 error in 0.45s
"""


@pytest.mark.parametrize(
    ("printed", "error", "imports"),
    [
        (COLLECTION % b"attrs", "ModuleNotFoundError: No module named 'attrs'", False),
        (TRACEBACK + b"ValueError: no\n\n", "ValueError: no", False),
        (b"/venv/bin/python: No module named pytest\n", "No module named pytest", True),
        (
            TRACEBACK + b"ImportError: cannot import name 'a' from 'b' (/tree/b.py)\n",
            "ImportError: cannot import name 'a' from 'b' (/tree/b.py)",
            True,
        ),
        (
            b"ERROR: usage: pytest [options]\npytest: error: unrecognized arguments: --cov\n"
            b"  rootdir: /tree\n",
            "pytest: error: unrecognized arguments: --cov",
            False,
        ),
        (b"1 failed, 2 passed in 0.3s\n", "1 failed, 2 passed in 0.3s", False),
        (b"", "it printed no error", False),
        (
            b"\x1b[31mOSError: \x1b]0;title\x07\xff\xe2\x80\xae gone\n",
            "OSError: ]0;title \ufffd gone",
            False,
        ),
        (b"E " + b"x" * 10_000_000, "x" * 300, False),
    ],
)
def test_error_is_one_bounded_printable_line(printed: bytes, error: str, imports: bool) -> None:
    assert (last_error(printed), fails_to_import(printed)) == (error, imports)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Return a repository with files that git ignores, as builds leave them."""
    top = tmp_path_factory.mktemp("failures") / "repo"
    scene = Scene(top, {**FILES, ".gitignore": "_version.py\n*.so\n", "src/own/a.py": ""})
    scene.write("src/own/_version.py", "version = '1'\n")
    scene.write("sample/_fast.cpython-311-x86_64-linux-gnu.so", "")
    return scene


def remedy(scene: Scene, error: str, environment: Path | None = None) -> str:
    manifest: Manifest = parse_manifest(scene.repository.read(scene.base, "judge/tiers.toml"))
    if environment is not None:
        manifest = replace(manifest, environment=Environment(path=Text(str(environment))))
    return explained(error.encode(), scene.repository, scene.base, manifest).partition("; ")[2]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "ModuleNotFoundError: No module named 'own._version'",
            "src/own/_version.py is in the work tree, but not in the commit: commit it with "
            "`git add --force src/own/_version.py`, then run `proctor line sign adopt --key KEY`",
        ),
        ("ImportError: cannot import name '_version' from 'own' (/x/own.py)", "own/_version.py is"),
        (
            "ImportError: cannot import name '_fast' from partially initialized module 'sample' "
            "(most likely due to a circular import) (/x)",
            "sample/_fast.cpython-311-x86_64-linux-gnu.so is in the work tree",
        ),
        ("ModuleNotFoundError: No module named 'own.parser'", "if a build generates own.parser, "),
        ("ModuleNotFoundError: No module named 'sample.c'", "if a build generates sample.c, "),
        ("ModuleNotFoundError: No module named 'attrs'", "name a virtual environment that has"),
        ("ImportError: cannot import name 'x' from 'attrs' (/x)", "correct it by hand"),
        ("ValueError: no", "correct it by hand, or the command in judge/tiers.toml"),
        ("ModuleNotFoundError: No module named '..'", "name a virtual environment"),
        ("ModuleNotFoundError: No module named '/etc/passwd'", "correct it by hand"),
    ],
)
def test_remedy_names_the_file_that_is_not_committed_or_the_environment(
    scene: Scene, error: str, words: str
) -> None:
    assert words in remedy(scene, error)


def test_remedy_names_the_environment_of_the_manifest(scene: Scene, tmp_path: Path) -> None:
    pip = f"`{tmp_path}/bin/python -m pip install PACKAGE`, then try again"
    absent = "ModuleNotFoundError: No module named 'attrs'"
    assert remedy(scene, absent, tmp_path) == f"install the package of this module with {pip}"
    metadata = "importlib.metadata.PackageNotFoundError: No package metadata was found for own"
    told = remedy(scene, metadata, tmp_path)
    assert told == f"install the repository itself ({scene.path}) with {pip}"
