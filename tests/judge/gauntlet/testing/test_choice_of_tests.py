"""The choice of tests: whatever can reach a change is chosen, and what cannot is left out."""

from collections.abc import Collection, Mapping

import pytest
from gauntlet_scene import OWN, own_paths
from hypothesis import given
from hypothesis import strategies as st

from judge.gauntlet.repository.manifest import PATH, parse_manifest
from judge.gauntlet.testing.choice import Choice, choose

HOUSE: Mapping[str, str] = {
    "house/__init__.py": "",
    "house/__main__.py": "from house.front import open_door\nopen_door()\n",
    "house/front.py": "def open_door():\n    from house import hall\n    return hall\n",
    "house/hall.py": "from . import cellar\n",
    "house/cellar.py": "DEPTH = 3\n",
    "house/garden.py": "TREES = 2\n",
    "house/rules.txt": "No shoes.\n",
    "tests/helpers/key.py": "from house.front import open_door\n",
    "tests/test_garden.py": "from house.garden import TREES\n\ndef test_it():\n    assert TREES\n",
}
CELLAR, TEST = "house/cellar.py", "tests/test_one.py"


def chosen(files: Mapping[str, str], *changed: str) -> Choice:
    return choose(
        {path: text.encode() for path, text in files.items() if path.endswith(".py")},
        changed,
        paths={*files, *changed},
        is_test=lambda path: path.startswith("tests/"),
    )


REACHING = {
    "an import": "import house.cellar",
    "an import of what imports it": "import house.front",
    "an import from the package": "from house import cellar",
    "an import of everything": "from house.hall import *",
    "an import in a function": "def test_it():\n    from house.hall import cellar",
    "an import for types": "if TYPE_CHECKING:\n    from house.cellar import DEPTH",
    "a helper": "from key import open_door",
    "a helper by its folder": "from tests.helpers.key import open_door",
    "a module's name": "import importlib\nimportlib.import_module('house.hall')",
    "an attribute's name": "LAZY = {'hall': 'house.hall:cellar'}",
    "the beginning of a name": "def load(name):\n    return found(f'house.{name}')",
    "a command": "import subprocess\nsubprocess.run([PYTHON, '-m', 'house'])",
    "a program": "import subprocess\nsubprocess.run([PYTHON, '-c', 'import key'])",
    "a line of a shell": "import subprocess\nsubprocess.run('python -m house --help', shell=True)",
    "a file that is started": "import subprocess\nRUN = [PYTHON, 'house/hall.py']",
    "a plugin": "pytest_plugins = ['key']",
    "a file that is read": "TEXT = (ROOT / 'house' / 'cellar.py').read_text()",
    "a path that is read": "TEXT = open('house/cellar.py').read()",
    "a folder that is listed": "HERE = Path(__file__).parents[1]\nALL = HERE.rglob('*.py')",
    "a folder that is copied": "shutil.copytree(Path.cwd() / 'house', TMP)",
    "a folder that a helper knows": "from place import ROOT\nALL = list(ROOT.glob('*/*.py'))",
    "a list by git": "LISTED = run(['git', 'ls-files'])",
    "code that is none": "def broken(:",
}


@pytest.mark.parametrize("text", REACHING.values(), ids=REACHING.keys())
def test_test_that_reaches_a_changed_file_is_chosen(text: str) -> None:
    place = {"tests/helpers/place.py": "ROOT = Path(__file__).parents[2]\n"}
    found = chosen({**HOUSE, **place, TEST: text}, CELLAR)
    assert found.left_out == ("tests/test_garden.py",)
    assert found.reason == "1 of 2 test files reach house/cellar.py"


AWAY = {
    "a neighbour": "from house.garden import TREES",
    "the package alone": "import house",
    "prose": '"""What house.cellar does is tested elsewhere."""',
    "folders of its own": "def test_it(tmp_path):\n    assert not list(tmp_path.iterdir())",
    "a name that others have, too": "from json import loads\n\nROLE = 'house'",
    "another file's place": "TEXT = Path(__file__).with_name('rules.txt').read_text()",
}


@pytest.mark.parametrize("text", AWAY.values(), ids=AWAY.keys())
def test_test_that_does_not_reach_a_changed_file_is_left_out(text: str) -> None:
    assert chosen({**HOUSE, TEST: text}, CELLAR).left_out == ("tests/test_garden.py", TEST)


def test_conftest_and_init_files_lead_to_what_they_import() -> None:
    conftest = {"tests/conftest.py": "import key\n", "tests/deep/test_two.py": "A = 1\n"}
    assert chosen({**HOUSE, **conftest}, CELLAR).left_out == ()
    init = {"house/__init__.py": "from house import hall\n"}
    assert chosen({**HOUSE, **init}, CELLAR).left_out == ()
    beside = {"tests/deep/conftest.py": "import key\n", "tests/deep/test_two.py": "A = 1\n"}
    assert chosen({**HOUSE, **beside}, CELLAR).left_out == ("tests/test_garden.py",)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("house/rules.txt", "all test files: house/rules.txt is not Python"),
        ("house/numbers.toml", "all test files: house/numbers.toml is not Python"),
        ("tests/helpers/key.py", "all test files: tests/helpers/key.py is used by tests"),
        ("house/conftest.py", "all test files: house/conftest.py is used by tests"),
    ],
)
def test_every_test_is_chosen_when_imports_do_not_tell(path: str, reason: str) -> None:
    found = chosen({**HOUSE, TEST: "A = 1\n"}, CELLAR, path)
    assert found.left_out == ()
    assert found.reason.startswith(reason)


def test_file_that_a_change_adds_or_deletes_is_reached_by_its_name() -> None:
    tries = "try:\n    from house import attic\nexcept ImportError:\n    attic = None\n"
    assert chosen({**HOUSE, TEST: tries}, "house/attic.py").left_out == ("tests/test_garden.py",)


# Any graph

FORMS = (
    "import pack.m{0}\n",
    "import pack.m{0} as other\n",
    "from pack import m{0}\n",
    "from pack.m{0} import VALUE\n",
    "def later():\n    from pack.m{0} import VALUE\n    return VALUE\n",
    "if TYPE_CHECKING:\n    import pack.m{0}\n",
    "LAZY = 'pack.m{0}'\n",
)
INSIDE = (*FORMS, "from . import m{0}\n", "from .m{0} import VALUE\n")
edges = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from(INSIDE)))
tests_of = st.lists(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(FORMS))), max_size=6)


def reached(start: Collection[int], edges: Collection[tuple[int, int, str]]) -> set[int]:
    """What is loaded with some modules, by a plain definition."""
    found = set(start)
    while more := {to for at, to, _ in edges if at in found} - found:
        found |= more
    return found


@given(edges=edges, tests=tests_of, changed=st.integers(0, 7))
def test_exactly_the_tests_that_import_a_changed_module_are_chosen(
    edges: list[tuple[int, int, str]], tests: list[list[tuple[int, str]]], changed: int
) -> None:
    files = {"pack/__init__.py": ""}
    for number in range(8):
        imports = [form.format(to) for at, to, form in edges if at == number]
        files[f"pack/m{number}.py"] = "VALUE = 1\n" + "".join(imports)
    reaching = set()
    for number, uses in enumerate(tests):
        path = f"tests/test_{number}.py"
        files[path] = "".join(form.format(to) for to, form in uses)
        if changed in reached([to for to, _ in uses], edges):
            reaching.add(path)
    found = chosen(files, f"pack/m{changed}.py")
    assert {f"tests/test_{number}.py" for number in range(len(tests))} - reaching == {
        *found.left_out
    }


# This repository's own


@pytest.fixture(scope="module")
def own() -> Mapping[str, bytes]:
    return {path: (OWN / path).read_bytes() for path in own_paths() if path.endswith(".py")}


@pytest.mark.slow
def test_tests_of_each_tier_2_module_are_chosen_here(own: Mapping[str, bytes]) -> None:
    manifest = parse_manifest((OWN / PATH).read_bytes())
    assert manifest.tests.choose == "imports"
    measured = sorted(path for path in own if manifest.tier_of(path) == 2)
    for path in ("policies/offers.py", "policies/answers.py"):
        assert path in measured
        found = choose(own, {path}, paths=own_paths(), is_test=manifest.is_test)
        name = path.removesuffix(".py").replace("/", ".").encode()
        users = {each for each in own if b"from " + name + b" import" in own[each]}
        users |= {"tests/proctor/runs/test_ten_seeds.py", "tests/docs/test_snippets.py"}
        assert not users.intersection(found.left_out)
        assert "tests/aggregates/test_rules.py" in found.left_out
        assert "tests/monitor/test_monitor_weights.py" in found.left_out
