"""`proctor keys` and `data review`: whose word stands in the ledger, and who signed what."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from frontdoor import call, call_here
from typer.testing import CliRunner

from aggregates.errors import AggregateError
from ledger.errors import AuthorityError, KeyFileError, LedgerError
from ledger.paths import LedgerPaths
from ledger.verification import reader
from ledger.verification.reader import check_ledger
from proctor.cli import data as data_cli
from proctor.cli import judging
from proctor.cli import keys as keys_cli
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.remembering import open_remembered


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "home"))


def keys(*arguments: str | Path, home: Path | None = None) -> str:
    """Run `proctor keys`, or raise what main() would explain."""
    return invoke(keys_cli.app, arguments, home)


def review(*arguments: str | Path, home: Path) -> str:
    return invoke(data_cli.app, ("review", *arguments), home)


def invoke(app: Any, arguments: tuple[str | Path, ...], home: Path | None) -> str:
    place = [] if home is None else ["--home", str(home)]
    done = CliRunner().invoke(app, [*map(str, arguments), *place])
    if isinstance(done.exception, AggregateError | LedgerError | ProctorError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def sql(home: Path, query: str) -> Any:
    done = call(["sql", query, "--json"], home=home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def listed(home: Path) -> list[dict[str, Any]]:
    return list(json.loads(keys("list", "--json", home=home)))


def openssl_public(key: Path) -> str:
    return subprocess.run(
        ["openssl", "pkey", "-in", key, "-pubout"], capture_output=True, text=True, check=True
    ).stdout


def test_publisher_is_granted_and_revoked_as_a_judge_is(home: Path, tmp_path: Path) -> None:
    publisher = tmp_path / "publisher.pem"
    keys("new", "publisher", publisher)
    with pytest.raises(ProctorError, match="a publisher's key; another kind of key"):
        keys("grant", "judge", f"{publisher}.vkey", home=home)
    keys("grant", "publisher", f"{publisher}.vkey", home=home)
    keys("revoke", f"{publisher}.vkey", "--since", "now", "--reason", "lost", home=home)
    assert [(each["role"], len(each["revocations"])) for each in listed(home)] == [
        ("ledger", 0),
        ("publisher", 1),
    ]
    key_id = listed(home)[1]["key_id"]
    assert sql(home, "SELECT role, key_id FROM revoked_keys") == [
        {"role": "publisher", "key_id": key_id}
    ]
    assert check_ledger(LedgerPaths(home / "ledger").directory).ok


def test_new_key_is_guarded_and_its_vkey_lies_beside_it(tmp_path: Path) -> None:
    for role in ("operator", "publisher", "witness"):
        path = tmp_path / f"{role}.pem"
        printed = keys("new", role, path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.with_name(f"{role}.pem.vkey").read_text() == printed
        assert printed.startswith(f"{role}+")
    with pytest.raises(ProctorError, match="already exists"):
        keys("new", "judge", tmp_path / "operator.pem")
    with pytest.raises(AssertionError, match="'ledger' is not one of 'judge', 'operator', 'publ"):
        keys("new", "ledger", tmp_path / "ledger.pem")
    with pytest.raises(ProctorError, match="cannot be a key's name"):
        keys("new", "judge", tmp_path / "judge.pem", "--name", "a+b")


def test_operator_takes_over_from_the_ledger_and_rules_alone(home: Path, tmp_path: Path) -> None:
    operator, judge = tmp_path / "operator.pem", tmp_path / "judge.pem"
    keys("new", "operator", operator)
    keys("new", "judge", judge)
    keys("grant", "operator", f"{operator}.vkey", home=home)
    with pytest.raises(AuthorityError, match="must be signed by operator"):
        keys("grant", "judge", f"{judge}.vkey", home=home)
    keys("grant", "judge", f"{judge}.vkey", "--key", operator, home=home)
    since = "2026-01-02T03:04:05Z"
    why = ("--since", since, "--reason", "lost", "--key", operator)
    keys("revoke", f"{judge}.vkey", *why, home=home)
    keys("rotate", home=home)
    ledger, one, two, rotated = listed(home)
    assert [key["role"] for key in (ledger, one, two, rotated)] == [
        "ledger",
        "operator",
        "judge",
        "ledger",
    ]
    assert (ledger["from"], ledger["to"]) == (0, rotated["from"] - 1)
    assert two["to"] == two["from"]  # the very next entry revoked it
    assert [r["since"] for r in two["revocations"]] == [since]
    assert "lost" in keys("list", home=home)
    assert check_ledger(LedgerPaths(home / "ledger").directory).ok
    assert sql(home, "SELECT name, signed_as FROM authority_events ORDER BY idx") == [
        {"name": "key.granted", "signed_as": "ledger"},
        {"name": "key.granted", "signed_as": "operator"},
        {"name": "key.revoked", "signed_as": "operator"},
        {"name": "key.rotated", "signed_as": None},
    ]
    assert sql(home, "SELECT idx FROM unreadable") == []


def test_wrong_input_is_rejected(home: Path, tmp_path: Path) -> None:
    operator = tmp_path / "operator.pem"
    keys("new", "operator", operator)
    with pytest.raises(ProctorError, match="never stood in the ledger"):
        keys("revoke", f"{operator}.vkey", "--since", "now", "--reason", "", home=home)
    with pytest.raises(ProctorError, match="give now, or a time like"):
        keys("revoke", f"{operator}.vkey", "--since", "then", "--reason", "", home=home)
    with pytest.raises(ProctorError, match="is a private key, which must stay secret"):
        keys("grant", "operator", operator, home=home)
    for text, says in (
        (openssl_public(operator), "is a PEM file"),
        ("none", "C2SP verifier key"),
    ):
        (tmp_path / "wrong").write_text(text)
        with pytest.raises(ProctorError, match=f"wrong.*{says}"):
            keys("grant", "operator", tmp_path / "wrong", home=home)
    with pytest.raises(ProctorError, match="operator's key; another kind of key is needed"):
        keys("grant", "witness", f"{operator}.vkey", home=home)
    with pytest.raises(ProctorError, match="there is no ledger"):
        keys("rotate", home=tmp_path / "nowhere")


def test_revocation_that_may_be_a_slip_wants_a_yes(home: Path, tmp_path: Path) -> None:
    operator, first = tmp_path / "operator.pem", home / "ledger" / "ledger.vkey"
    keys("new", "operator", operator)
    keys("grant", "operator", f"{operator}.vkey", home=home)
    keys("rotate", home=home)
    why = ("--since", "now", "--reason", "stolen", "--key", operator)
    with pytest.raises(ProctorError, match=r"rotated out in entry .* in force is proctor\.local"):
        keys("revoke", first, *why, home=home)
    with pytest.raises(ProctorError, match="the last operator"):
        keys("revoke", f"{operator}.vkey", *why, home=home)
    assert all(key["revocations"] == [] for key in listed(home))
    keys("revoke", first, *why, "--yes", home=home)
    with pytest.raises(ProctorError, match="was revoked in entry"):
        keys("revoke", first, *why, home=home)
    keys("revoke", f"{operator}.vkey", *why, "--yes", home=home)
    assert [bool(key["revocations"]) for key in listed(home)] == [True, True, False]


def test_revocation_since_a_time_to_come_is_rejected(home: Path) -> None:
    first = home / "ledger" / "ledger.vkey"
    with pytest.raises(ProctorError, match="yet to come"):
        keys("revoke", first, "--since", "2999-01-01", "--reason", "", home=home)
    keys("revoke", first, "--since", "now", "--reason", "", home=home)


def test_passphrase_is_asked_for_by_the_name_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = tmp_path / "operator.pem"
    monkeypatch.setenv("PROCTOR_KEY_PASSPHRASE", "right")
    keys("new", "operator", operator)

    def said() -> str:
        done = call_here(
            ["data", "review", "0", "gold", "--key", operator], home=tmp_path / "nowhere"
        )
        assert done.returncode == 2
        return done.stderr

    assert "there is no ledger" in said()  # the key itself is in order
    monkeypatch.setenv("PROCTOR_KEY_PASSPHRASE", "wrong")
    assert re.search("passphrase is wrong.*read from PROCTOR_KEY_PASSPHRASE", said())
    monkeypatch.delenv("PROCTOR_KEY_PASSPHRASE")
    assert re.search("needs a passphrase.*read from PROCTOR_KEY_PASSPHRASE", said())


def test_review_is_signed_by_an_operator_in_force(home: Path, tmp_path: Path) -> None:
    operator = tmp_path / "operator.pem"
    keys("new", "operator", operator)
    index = sql(home, "SELECT MIN(idx) AS idx FROM decisions")[0]["idx"]
    mark = ("gold", "--note", "just so", "--key", operator)
    with pytest.raises(AuthorityError, match="not in force"):
        review(str(index), *mark, home=home)
    keys("grant", "operator", f"{operator}.vkey", home=home)
    review(str(index), *mark, home=home)
    with pytest.raises(ProctorError, match="not a decision"):
        review("0", *mark, home=home)
    with pytest.raises(ProctorError, match="there is no entry 9999"):
        review("9999", *mark, home=home)
    with pytest.raises(AssertionError, match="'fine' is not one of 'gold', 'bad'"):
        review(str(index), "fine", "--key", operator, home=home)
    with pytest.raises(KeyFileError, match="cannot be read"):
        review(str(index), "bad", "--key", tmp_path / "nothing.pem", home=home)
    assert sql(home, "SELECT decision_idx, mark, note, signed_by FROM reviews") == [
        {
            "decision_idx": index,
            "mark": "gold",
            "note": "just so",
            "signed_by": listed(home)[1]["key_id"],
        }
    ]


def test_judge_verifies_the_ledger_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = LedgerPaths(home / "ledger").key.with_name("judge.pem")
    keys("new", "judge", judge)
    keys("grant", "judge", f"{judge}.vkey", home=home)
    verified, verify = [], reader._verify

    def counted(*arguments: Any, **options: Any) -> Any:
        verified.append(arguments[0])
        return verify(*arguments, **options)

    monkeypatch.setattr(reader, "_verify", counted)
    done = call_here(["judge", "--no-execute"], home=home)
    assert done.returncode == 0
    assert "unsigned" not in done.stdout
    assert len(verified) == 1


def test_audit_is_signed_once_the_judges_key_is_in_force(home: Path) -> None:
    judge = LedgerPaths(home / "ledger").key.with_name("judge.pem")
    keys("new", "judge", judge)
    with open_remembered(Home(home)) as ledger:
        assert judging.judge_key(Home(home), ledger) is None
    keys("grant", "judge", f"{judge}.vkey", home=home)
    done = call(["judge", "--no-execute"], home=home)
    assert "not signed" not in done.stderr
    *_, before, after = sql(home, "SELECT signed_by FROM audits ORDER BY scored_idx")
    assert before == {"signed_by": None}
    assert after == {"signed_by": listed(home)[1]["key_id"]}
    assert call(["verify"], home=home).returncode == 0
