"""Lineages: what an example came from is shown to whoever has the public key, or it is refused.

Two verifiers that share no code look at every file here, and have to agree.
"""

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lineage_scene import LineageScene, make_lineage_scene
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from judge.errors import LineageError
from judge.lineage.example import line_of
from judge.lineage.files import (
    find_lineage,
    open_lineage,
    remark_on_size,
    write_lineage,
)
from ledger.application import LedgerApplication
from ledger.errors import ConsistencyError, SignatureError, VerificationError
from ledger.handover.proof_files import open_proof, write_proofs
from ledger.verification.reader import VerifiedLedger, open_verified

PROOF = "c2sp.org/tlog-proof@v1\n"
SOURCE = Path(__file__).parents[3] / "ledger" / "handover" / "second_verifier.py"
SPEC = importlib.util.spec_from_file_location("second_verifier_of_lineages", SOURCE)
assert SPEC
assert SPEC.loader
SECOND = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SECOND)
Held = Callable[[str], bool]  # what the second verifier says of a file


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> LineageScene:
    return make_lineage_scene(tmp_path_factory.mktemp("lineage"))


@pytest.fixture
def held(scene: LineageScene, tmp_path: Path) -> Held:
    def check(text: str) -> bool:
        path = tmp_path / "one.lineage"
        path.write_text(text, encoding="utf-8")
        asked = argparse.Namespace(target=str(path), vkey=scene.vkey, head=None, witness=[])
        try:
            SECOND.check(asked)
        except Exception:
            return False
        return True

    return check


@pytest.fixture(scope="module")
def ledger(scene: LineageScene) -> Iterator[VerifiedLedger]:
    with open_verified(scene.ledger, vkey=scene.vkey) as opened:
        yield opened


TO_A_RUN = ["run.decision_made", "run.started", "audit.started", "audit.scored"]
PROPOSAL = [
    f"proposal.{stage}" for stage in ("submitted", "branched", "tested", "evaluated", "concluded")
]
REST = "proposal.rest_tested"
KEYS = ["key.granted", "key.granted"]  # the judge's, and the operator's who let it in


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("baseline", ["line.opened"]),
        ("tier two", ["checkpoint.promoted", *PROPOSAL]),
        ("tier one", ["checkpoint.promoted", "proposal.reviewed", *PROPOSAL, REST]),
        ("carried", ["checkpoint.promoted", "proposal.reviewed", PROPOSAL[0], *PROPOSAL]),
        ("refactored", ["checkpoint.promoted", "proposal.reviewed", *PROPOSAL]),
        ("adopted", ["checkpoint.adopted"]),
        ("upgraded", ["checkpoint.adopted"]),
        ("valley", ["checkpoint.promoted", "valley.opened", *PROPOSAL]),
    ],
)
def test_lineage_leads_from_the_decision_to_the_keys(
    scene: LineageScene, ledger: VerifiedLedger, held: Held, name: str, rest: list[str]
) -> None:
    text = write_lineage(ledger, scene.examples[name])
    assert held(text)
    found = open_lineage(text, vkey=scene.vkey).lineage
    assert sorted(step.entry.name for step in found.steps) == sorted([*TO_A_RUN, *rest, *KEYS])
    assert len(text) < 100_000


def test_large_lineage_is_remarked_on_with_what_it_is_made_of(
    scene: LineageScene, ledger: VerifiedLedger
) -> None:
    text = write_lineage(ledger, scene.examples["pair"])
    opened = open_lineage(text, vkey=scene.vkey)
    assert remark_on_size(text, opened) is None
    told = remark_on_size(text, opened, large=50_000)
    assert re.fullmatch(
        r"9\d{4} bytes, more than 50000: some 4\d{4} of them are proposal.evaluated", str(told)
    )


def test_preference_leads_from_both_decisions(
    scene: LineageScene, ledger: VerifiedLedger, held: Held
) -> None:
    text = write_lineage(ledger, scene.examples["pair"])
    assert held(text)
    assert len(text) < 200_000
    found = [step.entry.name for step in open_lineage(text, vkey=scene.vkey).lineage.steps]
    assert sorted(found) == sorted(
        [*TO_A_RUN, *TO_A_RUN, *PROPOSAL, *PROPOSAL, REST, "proposal.reviewed", *KEYS]
        + ["checkpoint.promoted"] * 2
    )


@pytest.mark.parametrize("name", ["tier two", "pair"])
def test_line_of_an_export_is_proved_with_its_seal(
    scene: LineageScene, ledger: VerifiedLedger, held: Held, name: str
) -> None:
    line = line_of(scene.examples[name], scene.exported.read_bytes().splitlines())
    text = write_lineage(ledger, scene.examples[name], line=line)
    opened = open_lineage(text, vkey=scene.vkey)
    assert held(text)
    assert opened.line == line
    assert "export.sealed" in {step.entry.name for step in opened.lineage.steps}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unlabelled", "names no checkpoint"),
        ("unjudged", "no valid audit of run"),
        ("failed", "the audit of run .* failed"),
        ("other code", "is not the code that the run recorded"),
        ("unknown checkpoint", "no entry before entry .* creates checkpoint"),
    ],
)
def test_lineage_of_what_may_not_be_used_is_refused(
    scene: LineageScene, ledger: VerifiedLedger, name: str, message: str
) -> None:
    with pytest.raises(LineageError, match=message):
        find_lineage(ledger, scene.examples[name])


@pytest.mark.parametrize("example", ["", "x/1", "{}/0", "{}/1>", "{}/1>{}/1>{}/1", "{}"])
def test_example_that_is_none_is_refused(
    scene: LineageScene, ledger: VerifiedLedger, example: str
) -> None:
    with pytest.raises(LineageError, match="an example must be"):
        find_lineage(ledger, example.format(*[scene.runs["tier two"]] * 3))


@pytest.fixture(scope="module")
def text(scene: LineageScene, ledger: VerifiedLedger) -> str:
    """The lineage with the most kinds of links, and its line in an export."""
    example = scene.examples["tier one"]
    line = line_of(example, scene.exported.read_bytes().splitlines())
    return write_lineage(ledger, example, line=line)


@pytest.fixture(scope="module")
def everything(ledger: VerifiedLedger) -> dict[int, tuple[str, str]]:
    """Name and proof of every entry in the ledger, by its index."""
    _, proofs = split(write_proofs(ledger, range(ledger.size)))
    return {entry.index: (entry.name, proofs[entry.index]) for entry in ledger.entries()}


def joined(head: str, proofs: dict[int, str]) -> str:
    return head + "".join(proofs[index] for index in sorted(proofs))


def split(text: str) -> tuple[str, list[str]]:
    """Return what stands before the proofs, and each proof."""
    head, *proofs = text.split(PROOF)
    return head, [PROOF + proof for proof in proofs]


@pytest.mark.slow
def test_every_missing_link_is_rejected(scene: LineageScene, held: Held, text: str) -> None:
    head, proofs = split(text)
    assert open_lineage(head + "".join(proofs), vkey=scene.vkey)  # the honest control
    assert held(text)
    for left_out in range(len(proofs)):
        rest = proofs[:left_out] + proofs[left_out + 1 :]
        name = open_proof(proofs[left_out], vkey=scene.vkey).entry.name
        with pytest.raises(VerificationError) as caught:
            open_lineage(head + "".join(rest), vkey=scene.vkey)
        assert re.search(
            "missing|not in force|leaves out|found|no entry|not signed by an operator",
            str(caught.value),
        ), name
        assert not held(head + "".join(rest)), name


@pytest.mark.slow
def test_every_foreign_entry_is_rejected(
    scene: LineageScene, everything: dict[int, tuple[str, str]], held: Held, text: str
) -> None:
    head, proofs = split(text)
    mine = {open_proof(proof, vkey=scene.vkey).entry.index: proof for proof in proofs}
    tried: list[str] = []
    for index, (name, proof) in everything.items():
        if index not in mine and name not in tried:
            tried.append(name)
            with pytest.raises(VerificationError, match=r"nothing here rests on|leaves out|found"):
                open_lineage(joined(head, {**mine, index: proof}), vkey=scene.vkey)
            assert not held(joined(head, {**mine, index: proof})), name
    assert len(tried) > 15


@pytest.mark.slow
def test_every_entry_swapped_for_another_of_its_kind_is_rejected(
    scene: LineageScene, everything: dict[int, tuple[str, str]], held: Held, text: str
) -> None:
    head, proofs = split(text)
    mine = {open_proof(proof, vkey=scene.vkey).entry.index: proof for proof in proofs}
    swapped = set()
    for index in mine:
        name = everything[index][0]
        others = {n: proof for n, (kind, proof) in everything.items() if kind == name}
        for other in sorted(set(others) - set(mine))[:1]:
            rest = {n: proof for n, proof in mine.items() if n != index}
            with pytest.raises(VerificationError):
                open_lineage(joined(head, {**rest, other: others[other]}), vkey=scene.vkey)
            assert not held(joined(head, {**rest, other: others[other]})), name
            swapped.add(name)
    assert len(swapped) >= 10


def test_proof_under_another_tree_head_is_rejected(
    scene: LineageScene, held: Held, text: str, tmp_path: Path
) -> None:
    other = make_lineage_scene(tmp_path)
    with open_verified(other.ledger) as opened:
        example = other.examples["tier one"]
        line = line_of(example, other.exported.read_bytes().splitlines())
        theirs = write_lineage(opened, example, line=line)
    assert open_lineage(theirs, vkey=other.vkey)  # the honest control
    with pytest.raises(SignatureError, match="0 signatures by"):
        open_lineage(theirs, vkey=scene.vkey)
    assert not held(theirs)
    head, proofs = split(text)
    _, others = split(theirs)
    for place in range(0, len(proofs), 3):
        mixed = [*proofs[:place], others[place], *proofs[place + 1 :]]
        with pytest.raises(VerificationError):
            open_lineage(head + "".join(mixed), vkey=scene.vkey)
        assert not held(head + "".join(mixed))
    note = others[0].partition("\n\n")[2]
    with pytest.raises(VerificationError):
        open_lineage(text.replace(proofs[0].partition("\n\n")[2], note), vkey=scene.vkey)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("/v2", "/v3", 1), "not a lineage"),
        (lambda t: t.replace("/v2", "/v1", 1), "does not belong to this lineage"),
        (lambda t: re.sub(r"example (\S+)/1", r"example \1/2", t), "a link is missing: no run.dec"),
        (lambda t: re.sub(r"(?m)^line 1 ", "line 0 ", t), "does not lead"),
        (lambda t: re.sub(r"(?m)^(line .*)\n.*\n", r"\1\n", t), "too short"),
        (lambda t: re.sub(r"(?m)^line (.*)\n(\S+=\n)+", "", t), "nothing here rests on"),
        (lambda t: re.sub(r"(?m)^line 1 .", "line 1 e30=", t, count=1), "base64"),
        (lambda t: t.replace("\n\n", "\n", 1), "not a lineage"),
        (lambda t: t + "\n", "note"),
        (lambda t: "", "not a lineage"),
        (lambda t: t.partition(PROOF)[0], "tlog-proofs"),
    ],
)
def test_malformed_lineage_is_rejected(
    scene: LineageScene, held: Held, text: str, change: Callable[[str], str], message: str
) -> None:
    assert open_lineage(text, vkey=scene.vkey)
    assert not held(change(text))
    with pytest.raises(VerificationError, match=message):
        open_lineage(change(text), vkey=scene.vkey)


def test_export_with_another_line_in_the_examples_name_is_rejected(
    scene: LineageScene, ledger: VerifiedLedger
) -> None:
    example = scene.examples["tier one"]
    lines = scene.exported.read_bytes().splitlines()
    forged = [line.replace(b"[]", b'["better"]') for line in lines]
    with pytest.raises(LineageError, match="not in a sealed export"):
        write_lineage(ledger, example, line=line_of(example, forged))
    with pytest.raises(LineageError, match="not found in the export"):
        line_of(scene.examples["adopted"], lines)


def test_older_head_of_the_same_ledger_beside_the_newest_is_rejected(
    scene: LineageScene, held: Held, text: str, tmp_path: Path
) -> None:
    """The ledger has grown: one of the proofs is made again, under its newer tree head."""
    grown = Path(shutil.copytree(scene.ledger, tmp_path / "ledger"))
    with LedgerApplication.open(grown, REGISTRY) as log:
        synthetic_run(log, epochs=1)
    head, proofs = split(text)
    first = open_proof(proofs[0], vkey=scene.vkey).entry.index
    with open_verified(grown, vkey=scene.vkey) as opened:
        newer = write_proofs(opened, [first])
    assert open_proof(newer, vkey=scene.vkey)  # the honest control
    mixed = head + "".join([newer, *proofs[1:]])
    with pytest.raises(ConsistencyError, match="is proved under a different tree head"):
        open_lineage(mixed, vkey=scene.vkey)
    assert not held(mixed)


@settings(max_examples=40)
@given(data=st.data())
def test_file_with_a_flipped_bit_is_judged_alike_by_both(
    scene: LineageScene, text: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = bytearray(text.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 6))
    path = tmp_path_factory.getbasetemp() / "flipped.lineage"
    path.write_bytes(raw)
    asked = argparse.Namespace(target=str(path), vkey=scene.vkey, head=None, witness=[])
    with pytest.raises(VerificationError):
        open_lineage(raw.decode(errors="replace"), vkey=scene.vkey)
    with pytest.raises((SECOND.Failed, ValueError)):
        SECOND.check(asked)


def test_lineage_holds_on_the_command_line_of_the_second_verifier(
    scene: LineageScene, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "one.lineage"
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-I", str(SOURCE), str(path), "--vkey", scene.vkey]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith(f"held: example {scene.examples['tier one']}; run "), done
    assert ", approved by ada+" in done.stdout
    assert "; line 1 of 3 in export " in done.stdout


EARLIER = Path(__file__).parents[2] / "golden" / "example_1.lineage"
EARLIER_VKEY = (
    "proctor.local/52aa5895573272613aeb6447e8c6b8ce+3a99bf72+"
    "Aece3xuLK2Z4u9r4Y6/WQzv340SOEA/bHY2zRETzHEF2"
)


def test_lineage_of_an_earlier_version_holds_and_says_what_it_leaves_out() -> None:
    opened = open_lineage(EARLIER.read_text(), vkey=EARLIER_VKEY)
    assert opened.earlier
    assert [audit.signed for audit in opened.audits] == [True]
    asked = argparse.Namespace(target=str(EARLIER), vkey=EARLIER_VKEY, head=None, witness=[])
    assert SECOND.check(asked).startswith("example ")
