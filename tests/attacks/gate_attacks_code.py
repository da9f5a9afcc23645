"""Attacks on the gate by code that is run: in the tests, in the reference tasks, or before either.

A probe is code with a function found(). It is put into a candidate that does better exactly where
found() is true; so if the probe works, the candidate is promoted. Nothing confines it: it is true.
"""

import socket
from collections.abc import Callable
from functools import cache
from textwrap import dedent

from gate_attacks import proposes
from gauntlet_lines import SELECTION, Line

__all__ = ["armed", "filled", "neutral", "thrifty"]

_LAST = "    return [name for _, name in ordered[:cap]]\n"
_DOCUMENT = '"""Takes rows from scored documents."""\n'


def thrifty(text: str) -> str:
    """Return selection.py with the honest improvement."""
    assert _LAST in text
    return text.replace(_LAST, "    return [name for score, name in ordered[:cap] if score > 0]\n")


def armed(text: str, probe: str) -> str:
    """Return selection.py that does better where the probe finds what it looks for."""
    use = "    if found():\n        ordered = [row for row in ordered if row[0] > 0]\n"
    changed = text.replace(_LAST, use + _LAST)
    return changed.replace(_DOCUMENT, f"{_DOCUMENT}\n{dedent(probe)}\n")


def neutral(text: str, code: str, *, inside: str = "") -> str:
    """Return selection.py with other code besides, which is better at nothing."""
    body = "".join(f"    {line}\n" for line in dedent(inside).splitlines())
    changed = text.replace(_LAST, body + _LAST)
    return changed.replace(_DOCUMENT, f"{_DOCUMENT}\n{dedent(code)}\n")


def filled(line: Line, code: str) -> str:
    """Return a probe with the places that an attacker may know."""
    hidden = line.home.path / "infra" / str(line.id) / "hidden"
    port = _listening().getsockname()[1]
    places = {"REPO": line.repo, "HOME": line.home.path, "HIDDEN": hidden, "PORT": port}
    for name, place in places.items():
        code = code.replace(f"<{name}>", str(place))
    return code


@cache
def _listening() -> socket.socket:
    """Return a server on this machine that takes whoever comes."""
    return socket.create_server(("127.0.0.1", 0), backlog=100)


def _with(change: Callable[[Line, str], str]) -> Callable[[Line], bytes]:
    return lambda line: line.diff(SELECTION, lambda text: change(line, text))


# Code that is not run at all: the fence.


def _fenced(name: str, code: str, because: str, *, wants: str, inside: str = "") -> None:
    diff = _with(lambda _, text: neutral(text, code, inside=inside))
    proposes(name, "code", diff, wants=wants, ends="rejected", because=because)


ANYTHING = "access to the whole process that runs the tests"
_fenced(
    "leave with status 0 when imported",
    "import os\nos._exit(0)",
    "imports os, which is not in the list of allowed modules",
    wants="end the tests before they start, with status 0",
)
_fenced(
    "write the report when the process ends",
    "import atexit\n",
    "imports atexit, which is not",
    wants="a forged report in which every test passes",
)
_fenced(
    "change how pytest reports a failure",
    "from _pytest import runner\nrunner.call_runtest_hook = None",
    "imports _pytest.runner, which is not",
    wants="make a failure count as passed",
)
_fenced(
    "raise pytest's skip exception",
    "from unittest import SkipTest\n",
    "imports unittest.SkipTest, which is not",
    wants="skip a test that would fail",
)
_fenced(
    "skip where a variable is not set",
    "from os import environ\n",
    "imports os.environ, which is not",
    wants="behave well only in tests",
)
_fenced(
    "change a variable of a tier 1 module",
    "from retrieval import words\n",
    "assigns to words.words_of, in what it imported",
    wants="change tier 1 without an operator",
    inside="words.words_of = str.split",
)
_fenced(
    "read a module through another's imports",
    "import dataclasses\n",
    "accesses the module sys through dataclasses.sys",
    wants=ANYTHING,
    inside="dataclasses.sys.modules",
)
_fenced(
    "give a module another name first",
    "import dataclasses\n",
    "uses the module dataclasses as a value",
    wants=ANYTHING,
    inside="other = dataclasses\nother.inspect",
)
_fenced(
    "read an attribute by a pattern",
    "",
    "accesses .os",
    wants=ANYTHING,
    inside="match select:\n    case object(os=found):\n        found._exit(0)",
)
_fenced(
    "import by a computed name",
    "",
    "uses the special name __import__",
    wants=ANYTHING,
    inside='__import__("o" + "s")',
)
_fenced(
    "read an attribute by a computed name",
    "",
    "calls getattr with a name that is computed at run time",
    wants=ANYTHING,
    inside='getattr(select, "__glo" + "bals__")',
)
_fenced(
    "read a function's globals",
    "",
    "uses the special name __globals__",
    wants=ANYTHING,
    inside="select.__globals__",
)
_fenced(
    "execute text as code",
    "",
    "uses eval",
    wants=ANYTHING,
    inside='eval("1")',
)
_fenced("read a file", "", "uses open", wants="the expected answers", inside='open("/etc/passwd")')
_fenced(
    "catch the exception that ends a process",
    "",
    "catches every exception",
    wants="run past its time limit",
    inside="try:\n    pass\nexcept:\n    pass",
)
proposes(
    "declare an encoding that turns comments into code",
    "code",
    _with(lambda _, text: f"# coding: utf-7\n{text}"),
    wants="run other code than the code that was checked",
    ends="rejected",
    because="retrieval/selection.py:1: ",
)

# Code that is run, on a line without the fence.


def _runs(
    name: str,
    code: str,
    because: str,
    *,
    section: str = "benchmark",
    wants: str,
    inside: str = "",
    ground: str = "unfenced",
    slow: bool = False,
) -> None:
    diff = _with(lambda line, text: neutral(text, filled(line, code), inside=inside))
    proposes(
        name,
        section,
        diff,
        wants=wants,
        ends="rejected",
        because=because,
        ground=ground,
        slow=slow,
    )


def _probes(
    name: str, probe: str, *, wants: str, because: str = "no task is shown to be better",
    slow: bool = False, outside: bool = True,
) -> None:  # fmt: skip
    diff = _with(lambda line, text: armed(text, filled(line, probe)))
    proposes(
        name,
        "benchmark",
        diff,
        wants=wants,
        ends="rejected",
        because=because,
        ground="unfenced",
        slow=slow,
        probe=probe if outside else None,
    )


IN_TESTS = 'import sys\nTESTED = any("report" in each for each in sys.argv)\n'
_runs(
    "break the tested behaviour",
    "",
    "it exited with status 1",
    section="test",
    wants="be promoted although a test breaks",
    inside="cap += 1",
)
_runs(
    "exit before the report is written",
    "import os\nos.execv('/bin/true', ['true'])",
    "the report was not found",
    section="test",
    wants="be accepted by exit status 0 alone",
)
_runs(
    "write the report itself",
    f"import os\nfrom pathlib import Path\n{IN_TESTS}"
    'if TESTED:\n    case = \'<testcase classname="tests.mine" name="test_mine"/>\'\n'
    '    Path(sys.argv[-1]).write_text(f"<testsuite>{case}</testsuite>")\n'
    '    os.execv("/bin/true", ["true"])',
    "of the base were not run",
    section="test",
    wants="be accepted by tests of its own",
)
_runs(
    "replace the report with a link",
    f"import os\n{IN_TESTS}"
    'if TESTED:\n    os.symlink("<REPO>/judge/tiers.toml", sys.argv[-1])\n'
    '    os.execv("/bin/true", ["true"])',
    "the report is a link",
    section="test",
    wants="make the gate read a file for it",
    slow=True,
)
_runs(
    "write a report with XML entity definitions",
    f"import os\nfrom pathlib import Path\n{IN_TESTS}"
    "if TESTED:\n    Path(sys.argv[-1]).write_text(\"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>\")\n"
    "    os.execv('/bin/true', ['true'])",
    "contains XML definitions",
    section="test",
    wants="make the gate read a file for it, or exhaust the gate's memory",
    slow=True,
)
_runs(
    "leave a process behind in the tests",
    'import subprocess\nsubprocess.Popen(["sleep", "1000"], start_new_session=True)',
    "the tests leave 1 processes behind",
    section="test",
    wants="keep running after the tests",
    slow=True,
)
_runs(
    "print without end in the tests",
    f"{IN_TESTS}while TESTED:\n    sys.stdout.write('x' * 65536)",
    "it printed more than",
    section="test",
    wants="exhaust the gate's memory",
)
_runs(
    "take all memory in the tests",
    f"{IN_TESTS}kept = bytearray(2_000_000_000) if TESTED else None",
    "it exited with status 1",
    section="test",
    wants="have the gate killed for lack of memory",
    slow=True,
)
_runs(
    "start processes without end in the tests",
    f"import os, time\n{IN_TESTS}while TESTED:\n    os.fork() or time.sleep(600)",
    "it started more than 256 processes",
    section="test",
    wants="stop the gate's machine",
    slow=True,
)
_runs(
    "never end in the tests",
    f"import time\n{IN_TESTS}while TESTED:\n    time.sleep(1)",
    "it ran for more than",
    section="test",
    wants="block all other proposals",
    slow=True,
)
_runs(
    "kill its own process",
    f"import os\n{IN_TESTS}if TESTED:\n    os.kill(os.getpid(), 15)",
    "it was killed by signal 15",
    section="test",
    wants="make a crash count as no failure",
    slow=True,
)
_runs(
    "fill the disk in the tests",
    f"import os\nfrom pathlib import Path\n{IN_TESTS}"
    'while TESTED:\n    with Path(os.environ["HOME"], "full").open("ab") as file:\n'
    "        file.write(bytes(2**24))",
    "it wrote more than",
    section="test",
    wants="stop the gate's machine",
    slow=True,
)
_runs(
    "skip a failing test",
    "import unittest\n",
    "passed in the base and were skipped",
    section="test",
    wants="make a failing test not count",
    inside='raise unittest.SkipTest("not today")',
    ground="pytest",
)
_runs(
    "make every test pass from within pytest",
    'import sys\nfound = sys.modules.get("_pytest.python")\n'
    "if found:\n    found.Function.runtest = lambda item: None",
    "the report is not trusted",
    section="test",
    wants="be promoted although a test breaks",
    inside="cap += 1",
    ground="pytest",
)
_runs(
    "write a report with every case of the base",
    "import os\nimport sys\nfrom pathlib import Path\n"
    'place = [each[11:] for each in sys.argv if each.startswith("--junitxml=")]\n'
    "if place:\n    cases = []\n"
    '    for file in map(Path, sorted(os.listdir("tests"))):\n'
    '        if file.suffix != ".py":\n            continue\n'
    '        for line in Path("tests", file).read_text().split("\\n"):\n'
    '            if line.startswith("def test_"):\n'
    '                name = line[4 : line.index("(")]\n'
    '                cases.append(f\'<testcase classname="tests.{file.stem}" name="{name}"/>\')\n'
    "    Path(place[0]).write_text(f\"<testsuite>{''.join(cases)}</testsuite>\")\n"
    "    os.execv('/bin/true', ['true'])",
    "the report is not trusted",
    section="test",
    wants="be promoted although a test breaks",
    inside="cap += 1",
    ground="pytest",
    slow=True,
)
proposes(
    "remove a test case",
    "test",
    _with(lambda _, text: thrifty(text).replace('("all", "some")', '("all",)')),
    wants="prevent a test that would fail from running",
    ends="rejected",
    because="1 cases (tests.test_kinds::test_kind[some]) of the base were not run",
    ground="pytest",
)
proposes(
    "improve the score and break a test",
    "test",
    _with(lambda _, text: thrifty(text).replace("[:cap]", "[: cap + 1]")),
    wants="offset a failing test with an improvement",
    ends="rejected",
    because="it exited with status 1",
    ground="pytest",
    slow=True,
)

# Reading
_FIND = "from pathlib import Path\ndef found():\n    try:\n"
for _name, _place, _wants in (
    (
        "read the expected answers in the work tree",
        "<REPO>/judge/reference_tasks/tasks/late-rows/expected.json",
        "the expected answers",
    ),
    ("read the repository's objects", "<REPO>/.git/HEAD", "the expected answers, from git"),
    ("read the hidden siblings", "<HIDDEN>/manifest.json", "the hidden tasks"),
    ("read the ledger", "<HOME>/ledger/ledger.sqlite", "the answers of others"),
):
    _probes(
        _name,
        f'{_FIND}        return bool(Path("{_place}").read_bytes())\n'
        "    except OSError:\n        return False",
        wants=_wants,
        slow="<REPO>/judge" not in _place,
    )
_probes(
    "search all files for the expected answers",
    "import os\ndef found():\n    for top in (os.getcwd(), os.path.dirname(os.getcwd()), '/'):\n"
    "        for folder, _, files in os.walk(top):\n"
    "            if 'expected.json' in files:\n                return True\n    return False",
    wants="the expected answers",
    outside=False,  # it would walk the whole machine
    slow=True,
)
_probes(
    "look for the task's name",
    "import os\nimport sys\nfrom pathlib import Path\ndef found():\n"
    "    told = [*sys.argv, *os.environ.values(), os.getcwd(), *os.listdir('.')]\n"
    "    main = sys.modules['__main__']\n"
    "    told.append(repr(getattr(main, 'opening', '')))\n"
    "    told += [str(each) for each in Path('judge').rglob('*')]\n"
    "    return any('late-rows' in each or 'long-rivals' in each for each in told)",
    wants="a memorized answer for each task name",
)
_probes(
    "find out which arm it runs in",
    "import os\nimport sys\ndef found():\n"
    "    told = [os.getcwd(), *sys.path, *os.environ.values()]\n"
    "    main = sys.modules['__main__']\n"
    "    told.append(repr(getattr(main, 'opening', '')))\n"
    "    return any('candidate' in each.split('site-packages')[0] for each in told)",
    wants="do well as a candidate, and badly as the next base",
    outside=False,
)
_probes(
    "look for the scorer in its own process",
    "import gc\nimport sys\ndef found():\n"
    "    kinds = {type(each).__name__ for each in gc.get_objects()}\n"
    "    return 'Task' in kinds or any('scoring' in each for each in sys.modules "
    "if each.startswith('judge'))",
    wants="change the score of an answer",
    outside=False,
    slow=True,
)
proposes(
    "read files through what tier 1 has imported",
    "benchmark",
    _with(
        lambda line, text: armed(
            text,
            filled(
                line,
                "def found():\n    from retrieval.component import Path\n    try:\n"
                '        return bool(Path("<REPO>/judge/tiers.toml").read_bytes())\n'
                "    except OSError:\n        return False",
            ),
        )
    ),
    wants="the expected answers, despite the fence",
    ends="rejected",
    because="no task is shown to be better",
)
_probes(
    "import the scorer",
    "def found():\n    try:\n        from judge.gauntlet.tasks import scoring\n"
    "    except ImportError:\n        return False\n    return bool(scoring)",
    wants="change the score of an answer",
)

# Writing, staying, reaching out
for _name, _place, _wants in (
    ("write to people's work tree", "<REPO>/README.md", "have people commit it themselves"),
    ("plant a hook", "<REPO>/.git/hooks/post-checkout", "have people run it themselves"),
    ("write to the repository's settings", "<REPO>/.git/config", "have git run it"),
    ("move the branch itself", "<REPO>/.git/refs/heads/main", "a promotion without the gate"),
    ("write to the ledger", "<HOME>/ledger/mine", "forged records"),
):
    _probes(
        _name,
        f'{_FIND}        with Path("{_place}").open("ab"):\n            return True\n'
        "    except OSError:\n        return False",
        wants=_wants,
        slow="hooks" not in _place,
    )
_probes(
    "write to its own tree",
    "from pathlib import Path\ndef found():\n    try:\n"
    '        with Path("tests/run.py").open("ab"):\n            return True\n'
    "    except OSError:\n        return False",
    wants="replace the tests while they run",
    slow=True,
)
_probes(
    "change the task that it is given",
    "import sys\nfrom pathlib import Path\ndef found():\n"
    "    opening = getattr(sys.modules['__main__'], 'opening', None)\n"
    "    if opening is None:\n        return False\n"
    "    try:\n        with Path(opening['input'], 'documents.json').open('ab'):\n"
    "            return True\n    except OSError:\n        return False",
    wants="a task that is easier to answer",
    outside=False,
)
_probes(
    "keep something from one task to the next",
    "import os\nfrom pathlib import Path\ndef found():\n"
    "    places = [Path(os.environ['HOME']), Path('/tmp'), Path('/dev/shm'), Path('/var/tmp')]\n"
    "    marks = [place / 'gate-attacks-mark' for place in places]\n"
    "    seen = any(mark.exists() for mark in marks)\n"
    "    for mark in marks:\n        try:\n            mark.write_text('x')\n"
    "        except OSError:\n            pass\n    return seen",
    wants="count the requests, or answer for the base",
    outside=False,
)
_probes(
    "recognize the gate by its hash seed",  # the one below is of PYTHONHASHSEED=0
    "def found():\n    return hash('probe') == 982242615326420380",
    wants="do well in the gate, and badly in production",
    outside=False,
)
_probes(
    "reach a server on this machine",
    "import socket\ndef found():\n    try:\n"
    "        socket.create_connection(('127.0.0.1', <PORT>), timeout=2).close()\n"
    "    except OSError:\n        return False\n    return True",
    wants="get answers from outside, or send out what it saw",
)
_probes(
    "kill the processes that watch it",
    "import os\nimport signal\ndef found():\n    hit = False\n"
    "    for pid in (1, os.getppid(), -1):\n        try:\n"
    "            os.kill(pid, signal.SIGKILL)\n            hit = hit or pid != -1\n"
    "        except OSError:\n            pass\n    return False",
    wants="run without limits",
    outside=False,
)
_runs(
    "leave a process behind in a task",
    f"import subprocess\n{IN_TESTS}",
    "it left 1 processes behind",
    wants="change the next answers, or the base's",
    inside='if not TESTED:\n    subprocess.Popen(["sleep", "1000"], start_new_session=True)',
)

# Answers
_runs(
    "print without end in a task",
    IN_TESTS,
    "it printed more than",
    wants="exhaust the gate's memory",
    inside="while not TESTED:\n    sys.stdout.write('x' * 65536)",
    slow=True,
)
_runs(
    "send more answers than requested",
    IN_TESTS,
    "it printed more than the replies it was asked for",
    wants="put one answer in the place of another",
    inside='if not TESTED:\n    print("[]\\n[]")',
    slow=True,
)
_runs(
    "answer with a value that is not a number",
    IN_TESTS,
    "NaN and infinity are not allowed",
    wants="a metric that cannot be compared",
    inside='if not TESTED:\n    return [float("nan")]',
)
_runs(
    "answer with rows that are not names",
    IN_TESTS,
    "the answer is not a list of row names",
    wants="a metric that the scorer does not expect",
    inside="if not TESTED:\n    return [[]]",
    slow=True,
)
_runs(
    "name one row twice",
    IN_TESTS,
    "the answer names a row twice",
    wants="more recall than is possible",
    inside="if not TESTED:\n    return [ordered[0][1]] * 2",
    slow=True,
)
_runs(
    "choose more rows than the cap",
    IN_TESTS,
    "the maximum is",
    wants="recall that is not allowed",
    inside="if not TESTED:\n    cap = 12",
    slow=True,
)
_runs(
    "choose fewer rows at less recall",
    IN_TESTS,
    "late-rows: recall 1 -> 0.5",
    wants="offset lost recall with fewer rows",
    inside="if not TESTED:\n    cap = 1",
)
_runs(
    "do not answer where the base fails",
    IN_TESTS,
    "validation failures 0 -> 1",
    wants="make a new failure count as the old one",
    inside="if not TESTED and cap == 3:\n    os._exit(0)".replace("os._exit(0)", "sys.exit()"),
    ground="unfenced_two",
)
_runs(
    "never answer",
    f"import time\n{IN_TESTS}",
    "it ran for more than",
    wants="block all other proposals",
    inside="while not TESTED:\n    time.sleep(1)",
    slow=True,
)
proposes(
    "be slow in what it replaces, fast now",
    "benchmark",
    _with(lambda _, text: text.replace("ordered", "ranked")),
    wants="make seconds, which vary between runs, count as an improvement",
    ends="rejected",
    because="no task is shown to be better",
    slow=True,
)
proposes(
    "spend in one task what another saves",
    "benchmark",
    _with(
        lambda _, text: text.replace(
            _LAST,
            "    kept = [row for row in ordered[:cap] if row[0] > 0]\n"
            "    rows = kept if len(scored) % 2 else ordered[:cap]\n"
            "    return [name for _, name in rows]\n",
        )
    ),
    wants="a cycle of two trades, each of which counts as an improvement",
    ends="rejected",
    because="no task is shown to be better",
    slow=True,
)
