"""`proctor line init FOLDER --function`: ordinary packages are put under the gauntlet, or not."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from environments import make_environment
from frontdoor import call_here

from proctor.sample.init import git

TEXT = """\
import re
from functools import partial

open({sentinel!r}, "w").close()
LIMIT = 3
shorten = partial(str.strip)
first = last = lambda text: text[:1]
limits: list = [1, 2]
try:
    from slugs._fast import quick
except ImportError:
    def quick(text):
        return text


def slugify(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


async def fetch(text):
    return text


class Slugger:
    def slug(self, text):
        return slugify(text)


class Pair(tuple):
    pass


slug_of = Slugger().slug
if LIMIT:
    def guarded(text):
        return text
"""
FILES = {
    ".gitignore": "_version.py\n.venv/\n",
    "src/slugs/__init__.py": "from . import text\nfrom .text import slugify as make, LIMIT\n"
    "from ._version import version\nfrom attrs import frozen\nfrom .nowhere import gone\n",
    "src/slugs/text.py": TEXT,
    "src/slugs/star.py": "from .text import *\n",
    "src/slugs/lazy.py": "def __getattr__(name):\n    return name\n",
    "src/slugs/filled.py": "for name in 'ab':\n    globals()[name] = str\n",
    "src/slugs/late.py": "def fill():\n    global filled\n    filled = str\n",
    "src/slugs/newer.py": "def f(:\n",
    "src/slugs/round.py": "from .other import there\n",
    "src/slugs/other.py": "from .round import there\n",
    "src/slugs/built.pyx": "",
    "src/slugs/wraps.py": "from .built import fast\n",
    **{f"src/slugs/long{n}.py": f"from .long{n + 1} import nowhere\n" for n in range(500)},
    "flat.py": "from src.slugs import text\ndef only(text):\n    return text\n",
    "tests/test_text.py": "def test_nothing():\n    pass\n",
}


def make_repository(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All of it")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("enroll")
    text = TEXT.replace("{sentinel!r}", repr(str(top / "imported")))
    repo = make_repository(top / "repo", {**FILES, "src/slugs/text.py": text})
    (repo / "src/slugs/_version.py").write_text("version = '1'\n")
    return repo


def init(repo: Path, *functions: str, line: str = "main") -> subprocess.CompletedProcess[str]:
    options = [part for each in functions for part in ("--function", each)]
    return call_here(["line", "init", repo, "--line", line, *options], home=repo.parent / "home")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("slugs.txt:slugify", "module slugs.txt not found on branch 'main' (searched: src/slugs/"),
        ("slugs.txt:slugify", "); did you mean slugs.text?"),
        ("nothing.like.it:f", "name a module that is on the branch"),
        ("slugs.text:slugfy", "src/slugs/text.py on branch 'main' has no function slugfy; did you"),
        ("slugs.text:zzz", "; it has quick, slugify, guarded"),
        ("slugs.text:slug", "slug is a method of Slugger: name a function that calls it"),
        ("slugs.text:Slugger", "Slugger in src/slugs/text.py is a class"),
        ("slugs.text:fetch", "fetch in src/slugs/text.py is a coroutine function"),
        ("slugs.text:LIMIT", "LIMIT in src/slugs/text.py is a value"),
        ("slugs.text:limits", "limits in src/slugs/text.py is a value"),
        ("slugs.text:re", "re in src/slugs/text.py is a module"),
        ("slugs:text", "text in src/slugs/__init__.py is a module"),
        ("slugs:LIMIT", "LIMIT in src/slugs/text.py is a value"),
        ("slugs:version", "src/slugs/_version.py is in the work tree, but not on branch 'main'"),
        ("slugs._version:version", "commit it with `git add --force src/slugs/_version.py`"),
        ("slugs:gone", "module slugs.nowhere not found on branch 'main'"),
        ("slugs:mak", "did you mean make?"),
        ("slugs.round:there", "imports there from itself"),
        ("flat:onyl", "did you mean only?"),
        ("slugs.text:Slugger.slug", "write it as package.module:name"),
        ("../slugs:slugify", "write it as package.module:name"),
    ],
)
def test_function_that_is_not_there_is_refused(repository: Path, function: str, words: str) -> None:
    done = init(repository, "slugs.text:slugify", function)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: --function {function}: " in done.stderr
    assert words in done.stderr
    assert not (repository / "judge").exists()
    assert not (repository.parent / "imported").exists(), "nothing of it has run"


@pytest.mark.parametrize(
    "functions",
    [
        ["slugs.text:slugify", "slugs:make", "flat:only"],
        ["slugs.text:shorten", "slugs.text:first", "slugs.text:last", "slugs.text:slug_of"],
        ["slugs.text:quick", "slugs.text:guarded", "slugs.text:Pair", "slugs.text:partial"],
        ["slugs:frozen", "slugs.star:slugify", "slugs.lazy:any", "slugs.filled:a"],
        ["slugs.late:filled", "slugs.newer:f", "slugs.wraps:fast", "slugs.built:fast"],
        ["slugs.long0:nowhere"],
    ],
)
def test_function_that_is_there_or_may_be_is_enrolled(
    repository: Path, functions: list[str]
) -> None:
    try:
        done = init(repository, *functions)
        assert done.returncode == 0, done.stderr
        compile((repository / "judge/reference_tasks/worker.py").read_text(), "worker.py", "exec")
    finally:
        for written in ("tiers.toml", "reference_tasks/worker.py"):
            (repository / "judge" / written).unlink(missing_ok=True)
        (repository / "judge/reference_tasks").rmdir()
        (repository / "judge").rmdir()
    assert "not on branch 'main', so tests and tasks will not find it: src/slugs/_version.py" in (
        done.stdout
    )


def test_branch_of_another_name_is_told(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "--quiet", "--initial-branch=main")
    assert "branch 'main' not found in" in (told := init(repo, "roman:roman").stderr)
    assert told.endswith(": commit to it first\n")
    (repo / "roman.py").write_text("def roman(n):\n    return n\n")
    commit(repo)
    git(repo, "branch", "--move", "master")
    assert ": name one with --line, as 'master'\n" in init(repo, "roman:roman").stderr
    done = init(repo, "roman:roman", line="master")
    assert "`proctor line task new NAME --line master`" in done.stdout


def test_module_in_the_top_folder_can_be_changed(tmp_path: Path) -> None:
    files = {"roman.py": "def roman(n):\n    return n\n", "setup.py": "", "test_roman.py": ""}
    repo = make_repository(tmp_path / "repo", files)
    (repo / "more.py").touch()
    done = init(repo, "roman:roman")
    assert (done.returncode, "not on branch" in done.stdout) == (0, False), "it is in no package"
    manifest = tomllib.loads((repo / "judge/tiers.toml").read_text())
    assert manifest["tiers"]["2"] == ["roman.py"]
    assert {"roman.*", "typing.TYPE_CHECKING"} < set(manifest["code"]["imports"])
    assert "typing" not in manifest["code"]["imports"], "it leads to sys"


@pytest.mark.parametrize(
    ("place", "paths", "additions"),
    [
        ("tests/unit/test_roman.py", "tests/**", "tests/test_*.py"),
        ("roman/tests/test_roman.py", "roman/tests/**", "roman/tests/test_*.py"),
        ("test_roman.py", "test_*.py", "test_*.py"),
        ("roman/roman_test.py", "roman/*_test.py", "roman/*_test.py"),
    ],
)
def test_tests_can_be_added_where_the_repositorys_tests_are(
    tmp_path: Path, place: str, paths: str, additions: str
) -> None:
    code = {"roman/__init__.py": "def roman(n):\n    return n\n", "conftest.py": ""}
    repo = make_repository(tmp_path / "repo", {**code, place: ""})
    assert init(repo, "roman:roman").returncode == 0
    tests = tomllib.loads((repo / "judge/tiers.toml").read_text())["tests"]
    assert set(tests["paths"]) == {"conftest.py", paths}
    assert tests["additions"] == [additions]


def test_suite_runs_without_coverage_where_the_environment_measures_it(tmp_path: Path) -> None:
    for plugin, option in (("pytest_cov", True), ("pytest_mock", False)):
        repo = make_repository(tmp_path / plugin, {"roman.py": "def roman(n):\n    return n\n"})
        (repo / ".venv/lib/python3.11/site-packages" / plugin).mkdir(parents=True)
        assert init(repo, "roman:roman").returncode == 0
        command = tomllib.loads((repo / "judge/tiers.toml").read_text())["tests"]["command"]
        assert ("--no-cov" in command) is option


FLAT = {
    "pytest.ini": "[pytest]\naddopts = --doctest-modules\n",
    "roman.py": "def roman(n):\n    return 'I' * n\n",
    "test_roman.py": "from roman import roman\n\n\ndef test_one():\n    assert roman(1) == 'I'\n",
}


@pytest.mark.slow
def test_fix_is_promoted_where_all_lies_in_the_top_folder_and_modules_are_doctests(
    tmp_path: Path,
) -> None:
    repo, home = make_repository(tmp_path / "repo", FLAT), tmp_path / "home"

    def ask(*arguments: str | Path) -> str:
        done = call_here(arguments, home=home)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout

    assert init(repo, "roman:roman").returncode == 0
    call = ("--function", "roman:roman", "--argument", "2", "--expect", '"II"')
    ask("line", "task", "new", "two", *call, "--repo", repo)
    commit(repo)
    git(repo, "switch", "--quiet", "--create", "work")
    (repo / "roman.py").write_text("def roman(n):\n    return 'IV' if n == 4 else 'I' * n\n")
    shows = (
        FLAT["test_roman.py"].replace("one", "four").replace("roman(1) == 'I'", "roman(4) == 'IV'")
    )
    (repo / "test_four.py").write_text(shows)
    git(repo, "add", ".")
    (tmp_path / "change.diff").write_text(git(repo, "diff", "--cached"))
    git(repo, "reset", "--quiet", "--hard")
    ask("line", "propose", tmp_path / "change.diff", "--rationale", "Four.", "--repo", repo)
    key = tmp_path / "operator.pem"
    ask("keys", "new", "operator", key)
    ask("keys", "grant", "operator", f"{key}.vkey")
    (waiting,) = json.loads(ask("line", "show", "--list", "waiting", "--json", "--repo", repo))
    ask("line", "sign", "approve", waiting["proposal"], "--key", key, "--repo", repo)
    assert "promoted: better: test_four::test_four: fails" in ask("line", "run", "--repo", repo)


PACKAGE = {
    ".gitignore": "_version.py\n.venv/\n",
    "pyproject.toml": "[tool.setuptools_scm]\nversion_file = 'src/slugs/_version.py'\n",
    "src/slugs/__init__.py": "from ._version import version\n",
    "src/slugs/text.py": "import only_here\n\nprint(only_here.ANSWER)\n\n\n"
    "def slugify(text):\n    return text.lower()\n",
    "tests/test_text.py": "from slugs.text import slugify\n\n\n"
    "def test_letters_are_small():\n    assert slugify('A') == 'a'\n",
}


@pytest.mark.slow
def test_first_runs_name_what_is_missing_until_a_change_is_promoted(tmp_path: Path) -> None:
    repo, home = make_repository(tmp_path / "repo", PACKAGE), tmp_path / "home"

    def ask(*arguments: str | Path, code: int = 0) -> str:
        done = call_here(["line", *arguments, "--repo", repo], home=home)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    make_environment(repo / ".venv")
    (module,) = (repo / ".venv").glob("lib/python3*/site-packages/only_here.py")
    module.unlink()
    (repo / "src/slugs/_version.py").write_text("version = '1.0'\n")
    assert init(repo, "slugs.text:slugify").returncode == 0
    call = ("--function", "slugs.text:slugify", "--argument", '"A b"', "--expect", '"a-b"')
    ask("task", "new", "words", *call)
    commit(repo)
    git(repo, "switch", "--quiet", "--create", "work")
    text = repo / "src/slugs/text.py"
    text.write_text(text.read_text().replace("lower()", 'lower().replace(" ", "-")'))
    (tmp_path / "change.diff").write_text(git(repo, "diff"))
    git(repo, "checkout", "--quiet", "src")
    ask("propose", tmp_path / "change.diff", "--rationale", "Words are joined.")
    key = tmp_path / "operator.pem"
    for what, file in (("new", key), ("grant", f"{key}.vkey")):
        assert call_here(["keys", what, "operator", file], home=home).returncode == 0

    told = ask("run", code=2)
    assert "ModuleNotFoundError: No module named 'slugs._version'; " in told
    assert "commit it with `git add --force src/slugs/_version.py`, then run `proctor line" in told
    git(repo, "switch", "--quiet", "main")
    git(repo, "add", "--force", "src/slugs/_version.py")
    commit(repo)
    git(repo, "switch", "--quiet", "work")
    ask("sign", "adopt", "--key", key)

    missing = "ModuleNotFoundError: No module named 'only_here'; install the package"
    assert missing in ask("run", code=2)
    assert missing in ask("run", "--measure", code=2)
    module.write_text("ANSWER = 42\n")
    assert "reference  0%          0%" in ask("run", "--measure"), "it answers, and wrongly"
    module.rename(module.with_suffix(".gone"))
    assert missing in ask("run", code=2)
    module.with_suffix(".gone").rename(module)
    queue = json.loads(ask("show", "--json"))["queue"]
    assert [(each["stage"], each["outcome"]) for each in queue] == [("test", None)]
    assert "promoted: better" in ask("run")
