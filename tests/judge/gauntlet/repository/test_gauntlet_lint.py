"""The fence around changed code: what is refused, beside what honest code does."""

import pytest
from gauntlet_scene import MANIFEST, OWN, own_paths
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.gauntlet.repository.lint import check_code
from judge.gauntlet.repository.manifest import PATH, parse_manifest

SAMPLE = parse_manifest(MANIFEST.encode())
HONEST = '''"""Chooses rows."""

from __future__ import annotations

import math
import collections.abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from sample import core
from sample.core import LIMIT
from . import order

__all__ = ["Choice", "select"]


@dataclass(frozen=True)
class Choice:
    """What is chosen."""

    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("nothing is chosen")

    def __len__(self) -> int:
        return len(self.rows)


def select(rows: Sequence[int]) -> Choice:
    found = {}
    for _, row in enumerate(sorted(rows)):
        found[row] = math.sqrt(row)
    try:
        last = getattr(core, "LIMIT", 3)
    except (ValueError, Exception) as error:
        raise TypeError(type(error).__name__) from error
    first = replace(Choice(tuple(found)), rows=(1,))
    match first:
        case Choice(rows=(1, *_)):
            return first
    return Choice(tuple(found)[: min(last, LIMIT, order.STAGES[0])])


if __name__ == "__main__":
    print(select([3, 1, 2]))
'''


def checked(path: str, before: bytes | None, after: bytes) -> list[str]:
    form, fence = check_code(path, before, after, SAMPLE)
    return form + fence


def problems(after: str, before: str | None = None, path: str = "sample/select.py") -> str:
    found = checked(path, None if before is None else before.encode(), after.encode())
    return "\n".join(found)


def test_honest_code_passes() -> None:
    assert problems(HONEST, HONEST) == ""
    assert problems(HONEST) == "sample/select.py: has 46 lines; the maximum is 20"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        # Modules.
        ("import os", "imports os,"),
        ("import math, sys", "imports sys,"),
        ("import os.path as math", "imports os.path,"),
        ("import collections.abc, collections", "imports collections,"),
        ("from os import path", "imports os.path,"),
        ("from sample import *", "imports * from sample"),
        ("from samples import x", "imports samples.x,"),
        ("from .. import judge", "imports .judge,"),
        ("from dataclasses import sys", "imports dataclasses.sys,"),
        ("from sample.core import os", "imports sample.core.os,"),
        ("from sample.core import socket", "imports sample.core.socket,"),
        ("import dataclasses\ndataclasses.inspect", "accesses the module inspect"),
        ("import dataclasses as d\nd.inspect.x", "accesses the module inspect"),
        ("import dataclasses\ndataclasses.sys.modules", "accesses .sys"),
        ("import math\nmath._os", "accesses ._os"),
        ("def f():\n    import subprocess", "imports subprocess,"),
        ("__import__('os')", "special name __import__"),
        # Code from text, and names from text.
        ("exec('x = 1')", "uses exec"),
        ("eval('1')", "uses eval"),
        ("compile('1', '', 'eval')", "uses compile"),
        ("open('/etc/passwd')", "uses open"),
        ("f = eval", "uses eval"),
        ("globals()['x'] = 1", "uses globals"),
        ("locals()", "uses locals"),
        ("vars(object)", "uses vars"),
        ("breakpoint()", "uses breakpoint"),
        ("input()", "uses input"),
        ("exit(0)", "uses exit"),
        ("setattr(object, 'x', 1)", "uses setattr"),
        ("delattr(object, 'x')", "uses delattr"),
        ("getattr(math, 'fl' + 'oor')", "name that is computed at run time"),
        ("getattr(*arguments)", "name that is computed at run time"),
        ("getattr(math, f'{x}')", "name that is computed at run time"),
        ("getattr(math, '__loader__')", "special name __loader__"),
        ("getattr(math, 'sys')", "accesses .sys"),
        ("hasattr(x, '__dict__')", "special name __dict__"),
        ("g = getattr", "uses getattr without calling it"),
        ("map(getattr, a, b)", "uses getattr without calling it"),
        # Special names.
        ("().__class__", "special name __class__"),
        ("x.__globals__", "special name __globals__"),
        ("__builtins__", "special name __builtins__"),
        ("__loader__", "special name __loader__"),
        ("def __getattr__(name): ...", "special name __getattr__"),
        ("class A:\n    def __eq__(self, other): return True", "special name __eq__"),
        ("class A:\n    def __del__(self): ...", "special name __del__"),
        ("class A:\n    __class__ = int", "special name __class__"),
        ("def f(__builtins__): ...", "special name __builtins__"),
        ("f(__class__=1)", "special name __class__"),
        ("from sample.core import __loader__", "special name __loader__"),
        ("from sample.core import LIMIT as __builtins__", "special name __builtins__"),
        ("match x:\n    case object(__class__=y): ...", "special name __class__"),
        ("(x for x in y).gi_frame.f_back", "accesses .f_back"),
        ("int.mro()", "accesses .mro"),
        # What makes code of text on another's behalf.
        ("(x for x in y).gi_code.replace(co_names=('exec',))", "accesses .gi_code"),
        ("from sample.core import FunctionType", "accesses .FunctionType"),
        ("from sample.core import get_type_hints", "accesses .get_type_hints"),
        ("import sample.core\nsample.core.bltns.eval('1')", "accesses .bltns"),
        ("from sample.core import Formatter", "accesses .Formatter"),
        ("from sample.core import singledispatch", "accesses .singledispatch"),
        # Classes of names that are text: dataclass and namedtuple execute them.
        (
            "import dataclasses\n"
            'types = {"__annotations__": {"a: exec(PAY) if 1 else x": int}}\n'
            'dataclasses.dataclass(type("C", (), types))',
            "uses dataclass other than as",
        ),
        ("from dataclasses import dataclass\ndataclass(C)", "uses dataclass other than as"),
        ("from dataclasses import dataclass\nd = dataclass", "uses dataclass other than as"),
        ("from dataclasses import dataclass\nlist(map(dataclass, x))", "uses dataclass other"),
        ("from dataclasses import dataclass as d\nd(C)", "imports dataclass under another name"),
        ("from dataclasses import dataclass\n@dataclass(C)\nclass D: ...", "uses dataclass other"),
        (
            "from dataclasses import dataclass\n@dataclass(**x)\nclass D: ...",
            "uses dataclass other",
        ),
        ("from dataclasses import dataclass\n@dataclass\n@f\nclass D: ...", "uses dataclass other"),
        ("from dataclasses import dataclass\n@dataclass\ndef f(): ...", "uses dataclass other"),
        ("from dataclasses import dataclass\ndef f(x: dataclass(C)): ...", "uses dataclass other"),
        ("from sample.core import dataclass\ndataclass(C)", "uses dataclass other than as"),
        ("import dataclasses\ngetattr(dataclasses, 'dataclass')(C)", "reads dataclass by its name"),
        ("import dataclasses\ndataclasses._create_fn('f', [], ['x'])", "accesses the private name"),
        ("import math\ngetattr(math, '_x')", "accesses the private name _x"),
        ("from dataclasses import _create_fn", "imports the private name dataclasses._create_fn"),
        ("type('C', (), {})", "makes a class by calling type"),
        ("type(*x)", "makes a class by calling type"),
        ("def f(x: type('C', (), n)): ...", "makes a class by calling type"),
        ("t = type", "uses type as a value"),
        ("map(type, x)", "uses type as a value"),
        ("class C(type): ...", "uses type as a value"),
        ("type(C)('D', (), {})", "makes a class by calling the type of another"),
        ("type(C)(*x)", "makes a class by calling the type of another"),
        ("class C(metaclass=f): ...", "gives a class a metaclass"),
        ("class C(**x): ...", "gives a class a metaclass"),
        ("x = {'__annotations__': {}}", "special name __annotations__"),
        (
            "from sample.core import namedtuple\nnamedtuple('C', names)",
            "calls namedtuple with names",
        ),
        ("from sample.core import namedtuple\nnamedtuple(*x)", "calls namedtuple with names"),
        ("from sample.core import namedtuple\nn = namedtuple", "uses namedtuple without calling"),
        ("from sample.core import NamedTuple\nNamedTuple('C', x)", "calls NamedTuple with names"),
        ("from sample.core import Enum\nEnum('C', x)", "makes a class by calling Enum"),
        ("from sample.core import Enum as E", "imports Enum under another name"),
        ("from sample.core import attrgetter", "accesses .attrgetter"),
        ("from sample.core import exec as e", "imports exec"),
        # Attributes that a pattern reads.
        ("'{0.__class__}'.format(x)", "special name __class__"),
        ("p = '{0.a[0].__globals__[x]}'", "special name __globals__"),
        ("'{x.gi_frame}'.format_map(y)", "accesses .gi_frame in a pattern"),
        ("('{0._' + '_class__}').format(x)", "a pattern that is computed at run time"),
        ("''.join(x).format(y)", "a pattern that is computed at run time"),
        # Names that pytest looks for in every module that it collects.
        ("pytest_plugins = ['sample.hooks']", "uses the name pytest_plugins"),
        ("def pytest_pyfunc_call(pyfuncitem): ...", "uses the name pytest_pyfunc_call"),
        ("from sample.core import x as pytest_plugins", "uses the name pytest_plugins"),
        ("match x:\n    case pytest_plugins: ...", "uses the name pytest_plugins"),
        ("match x:\n    case [*pytest_plugins]: ...", "uses the name pytest_plugins"),
        ("match x:\n    case {**pytest_plugins}: ...", "uses the name pytest_plugins"),
        ("try: f()\nexcept ValueError as pytest_plugins: ...", "uses the name pytest_plugins"),
        ("def f():\n    global pytest_plugins", "uses the name pytest_plugins"),
        ("match x:\n    case __builtins__: ...", "special name __builtins__"),
        # Names that look like others, or like nothing.
        ("v\u0430lue = 1", "identifier 'v\\u0430lue': use ASCII"),
        ("\u3164 = 1", "invisible character"),
        ("x = 'a\ufe0fb'", "invisible character"),
        ("x = 'a\u034fb'", "invisible character"),
        ("# \U000e0041", "invisible character"),
        # What ends a process is not caught.
        ("try: f()\nexcept: ...", "catches every exception"),
        ("try: f()\nexcept BaseException: ...", "uses BaseException"),
        ("try: f()\nexcept (ValueError, SystemExit): ...", "uses SystemExit"),
        ("E = KeyboardInterrupt", "uses KeyboardInterrupt"),
        ("raise SystemExit(0)", "uses SystemExit"),
        # What was imported stays as it is.
        ("import math\nmath.pi = 3", "assigns to math.pi"),
        ("from sample import core\ncore.LIMIT += 1", "assigns to core.LIMIT"),
        ("from sample import core as c\ndel c.LIMIT", "assigns to c.LIMIT"),
        ("from sample import core\ncore.TABLE['x'] = 1", "assigns to core.TABLE"),
        ("from sample.core import Thing\nThing.method = f", "assigns to Thing.method"),
        ("from sample import core\ncore.a.b, x = 1, 2", "assigns to core.a.b"),
        ("from sample import core\nfor core.x in y: ...", "assigns to core.x"),
        ("from sample import core\nwith f() as core.x: ...", "assigns to core.x"),
        ("from sample import core\ncore.x: int = 3", "assigns to core.x"),
        ("def f():\n    from sample import core\n    core.x = 3", "assigns to core.x"),
        # What is no plain Python.
        ("def", "is not valid Python"),
        ("x = '\0'", "is not valid Python"),
        ("x = " + "(" * 5_000, "is not valid Python"),
        ("# unseen \u202e", "invisible character"),
        ("se\u200blect = 1", "is not valid Python"),
    ],
)
def test_code_that_reaches_out_is_rejected(line: str, message: str) -> None:
    plain = "x = 1\n"
    assert problems(plain) == ""
    assert message in problems(f"{plain}{line}\n")


@pytest.mark.parametrize(
    "text",
    [
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass C:\n    x: int = 1",
        "import dataclasses\n\n@dataclasses.dataclass\nclass C:\n    x: type[int] = int",
        "def f(x: type) -> type:\n    return x if isinstance(x, type) else type(x)",
        "y = type(x)(1, 2)",
        "y = type(x) is type(z)",
        "from sample.core import namedtuple\nC = namedtuple('C', ['a', 'b'], defaults=[x])",
        "from sample.core import NamedTuple\nC = NamedTuple('C', [('a', int), ('b', list[int])])",
        "from sample.core import Enum\n\nclass C(Enum):\n    A = 1\n\nC(1)",
        "class C(Base, frozen=True): ...",
        "y = '{:>3} {0} {name} {0.real} {'.format(x, name=1)",
        "from sample._core import _limit",
        "from ._core import _limit",
        "x = 'Übung macht den Meister: größer, 你好'",
    ],
)
def test_honest_forms_beside_them_pass(text: str) -> None:
    assert problems(f"{text}\n") == ""


@pytest.mark.parametrize(
    "text",
    ["-" * 100_000 + "1", "1" + "+1" * 50_000, "math" + ".a" * 50_000, "[" * 150 + "]" * 150],
)
def test_deep_nesting_is_told_and_no_error(text: str) -> None:
    found = problems(f"import math\nx = {text}\n")
    assert found == "" or "is not valid Python" in found or "nested too deeply" in found


def test_other_encodings_are_rejected() -> None:
    hidden = b"# coding: utf-7\nx = '+AG8-'\n"
    assert "is written in utf-7" in checked("sample/a.py", None, hidden)[0]
    assert "is not valid Python" in checked("sample/a.py", None, b"x = '\xff'\n")[0]
    assert checked("sample/a.py", None, "# coding: utf-8\nx = 'ü'\n".encode()) == []


def test_problems_that_were_there_do_not_count() -> None:
    before = "import os\nx = open('a')\n"
    assert problems(f"y = 1\n{before}", before) == ""
    assert problems(f"{before}z = open('b')\n", before) == "sample/select.py:3: uses open"
    assert problems("x = 1\n", "def\n") == ""


def test_file_may_not_grow_beyond_its_bound() -> None:
    bound = SAMPLE.lint.max.file_lines or 0
    assert problems("x = 1\n" * bound) == ""
    assert f"the maximum is {bound}" in problems("x = 1\n" * (bound + 1))
    longer = "x = 1\n" * (bound + 5)
    assert problems(longer, longer) == ""  # it was as long before
    assert problems(f"{longer}x = 1\n", longer) != ""


def test_relative_imports_are_those_of_the_files_place() -> None:
    assert problems("from . import x\n", path="sample/deep/a.py") == ""
    assert problems("from .. import x\n", path="sample/deep/a.py") == ""
    assert "imports other.x" in problems("from .. import x\n", path="other/deep/a.py")
    assert "imports judge.x" in problems("from .judge import x\n", path="a.py")


@settings(deadline=None)  # machines can be busy
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
def test_any_bytes_are_looked_at_without_an_error(data: bytes) -> None:
    check_code("sample/a.py", data, data + b"\nimport os\n", SAMPLE)


def test_own_code_of_tier_2_passes_its_own_fence() -> None:
    manifest = parse_manifest((OWN / PATH).read_bytes())
    freed = [path for path in own_paths() if path.endswith(".py") and manifest.tier_of(path) == 2]
    assert len(freed) >= 7
    for path in freed:
        assert check_code(path, None, (OWN / path).read_bytes(), manifest) == ([], [])
