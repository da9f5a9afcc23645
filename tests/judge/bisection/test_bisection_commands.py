"""Commands are looked at before they run: what they name has to be there for every probe."""

import pytest

from judge.bisection.probes import verify_command
from judge.errors import BisectionError


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("{files}/check.py", r"\{files\}/check\.py, which is not given: add --file check\.py"),
        ("--rules={files}/rules.toml", r"add --file rules\.toml"),
        ("cat {files}/a {files}/other; true", r"add --file other"),
        ("{files}/a.py", r"add --file a\.py"),  # `a` is given, this is not
        (
            "{pithon}",
            r"contains the unknown placeholder \{pithon\}; known are \{python\}, \{files\}",
        ),
        ("--seed={Repeat}", r"placeholder \{Repeat\}"),
    ],
)
def test_command_that_names_what_is_not_there_is_rejected(part: str, words: str) -> None:
    with pytest.raises(BisectionError, match=words):
        verify_command(["{python}", part], files={"a"})


@pytest.mark.parametrize(
    "part",
    [
        "{python}",
        "{repeat}",
        "{files}",
        "{files}/",
        "{files}/.",
        "{files}/a",
        "{files}/two words.py",
        "{files}/a::case",
        "cat {files}/a; cat {files}/a.toml",
        "cat {files}/b*.py",
        "{files}/seed-{repeat}.json",
        "[0-9]{3}",
        "echo ${HOME} {}",
    ],
)
def test_command_stands_when_all_that_it_names_is_there(part: str) -> None:
    verify_command([part], files={"a", "a.toml", "two words.py"})
