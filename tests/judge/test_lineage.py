"""Lineages: what an example came from is shown to whoever has the public key, or it is refused."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lineage_scene import LineageScene, make_lineage_scene

from judge.errors import LineageError
from judge.lineage_files import find_lineage, line_of, open_lineage, write_lineage
from ledger.errors import SignatureError, VerificationError
from ledger.proof_files import open_proof, write_proofs
from ledger.reader import VerifiedLedger, open_verified

PROOF = "c2sp.org/tlog-proof@v1\n"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> LineageScene:
    return make_lineage_scene(tmp_path_factory.mktemp("lineage"))


@pytest.fixture(scope="module")
def ledger(scene: LineageScene) -> Iterator[VerifiedLedger]:
    with open_verified(scene.ledger, vkey=scene.vkey) as opened:
        yield opened


TO_A_RUN = ["run.decision_made", "run.started", "audit.started", "audit.scored"]
PROPOSAL = [
    f"proposal.{stage}" for stage in ("submitted", "branched", "tested", "evaluated", "concluded")
]
KEYS = ["key.granted", "key.granted"]  # the judge's, and the operator's who let it in


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("baseline", ["line.opened"]),
        ("tier two", ["checkpoint.promoted", *PROPOSAL]),
        ("tier one", ["checkpoint.promoted", "proposal.reviewed", *PROPOSAL]),
        ("adopted", ["checkpoint.adopted"]),
        ("valley", ["checkpoint.promoted", "valley.opened", *PROPOSAL]),
    ],
)
def test_lineage_leads_from_the_decision_to_the_keys(
    scene: LineageScene, ledger: VerifiedLedger, name: str, rest: list[str]
) -> None:
    text = write_lineage(ledger, scene.examples[name])
    found = open_lineage(text, vkey=scene.vkey).lineage
    assert sorted(step.entry.name for step in found.steps) == sorted([*TO_A_RUN, *rest, *KEYS])
    assert len(text) < 100_000


def test_preference_leads_from_both_decisions(scene: LineageScene, ledger: VerifiedLedger) -> None:
    text = write_lineage(ledger, scene.examples["pair"])
    found = [step.entry.name for step in open_lineage(text, vkey=scene.vkey).lineage.steps]
    assert sorted(found) == sorted(
        [*TO_A_RUN, *TO_A_RUN, *PROPOSAL, *PROPOSAL, "proposal.reviewed", *KEYS]
        + ["checkpoint.promoted"] * 2
    )


@pytest.mark.parametrize("name", ["tier two", "pair"])
def test_line_of_an_export_is_proved_with_its_seal(
    scene: LineageScene, ledger: VerifiedLedger, name: str
) -> None:
    line = line_of(scene.examples[name], scene.exported.read_bytes().splitlines())
    opened = open_lineage(write_lineage(ledger, scene.examples[name], line=line), vkey=scene.vkey)
    assert opened.line == line
    assert "export.sealed" in {step.entry.name for step in opened.lineage.steps}


@pytest.mark.parametrize(
    ("name", "message"),
    [("unlabelled", "names no checkpoint"), ("unjudged", "no audit of run")],
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
    with pytest.raises(LineageError, match="an example is"):
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


def test_every_missing_link_is_rejected(scene: LineageScene, text: str) -> None:
    head, proofs = split(text)
    assert open_lineage(head + "".join(proofs), vkey=scene.vkey)  # the honest control
    for left_out in range(len(proofs)):
        rest = proofs[:left_out] + proofs[left_out + 1 :]
        name = open_proof(proofs[left_out], vkey=scene.vkey).entry.name
        with pytest.raises(LineageError) as caught:
            open_lineage(head + "".join(rest), vkey=scene.vkey)
        assert re.search("missing|is there|no entry|no operator", str(caught.value)), name


def test_every_foreign_entry_is_rejected(
    scene: LineageScene, everything: dict[int, tuple[str, str]], text: str
) -> None:
    head, proofs = split(text)
    mine = {open_proof(proof, vkey=scene.vkey).entry.index: proof for proof in proofs}
    tried: list[str] = []
    for index, (name, proof) in everything.items():
        if index not in mine and tried.count(name) < 4:
            tried.append(name)
            with pytest.raises(LineageError, match=r"is no part of this lineage|a link is missing"):
                open_lineage(joined(head, {**mine, index: proof}), vkey=scene.vkey)
    assert len(set(tried)) > 15


def test_every_entry_swapped_for_another_of_its_kind_is_rejected(
    scene: LineageScene, everything: dict[int, tuple[str, str]], text: str
) -> None:
    head, proofs = split(text)
    mine = {open_proof(proof, vkey=scene.vkey).entry.index: proof for proof in proofs}
    swapped = set()
    for index in mine:
        name = everything[index][0]
        others = {n: proof for n, (kind, proof) in everything.items() if kind == name}
        for other in list(set(others) - set(mine))[:4]:
            rest = {n: proof for n, proof in mine.items() if n != index}
            with pytest.raises(LineageError):
                open_lineage(joined(head, {**rest, other: others[other]}), vkey=scene.vkey)
            swapped.add(name)
    assert len(swapped) >= 10


def test_proof_under_another_tree_head_is_rejected(
    scene: LineageScene, text: str, tmp_path: Path
) -> None:
    other = make_lineage_scene(tmp_path)
    with open_verified(other.ledger) as opened:
        example = other.examples["tier one"]
        line = line_of(example, other.exported.read_bytes().splitlines())
        theirs = write_lineage(opened, example, line=line)
    assert open_lineage(theirs, vkey=other.vkey)  # the honest control
    with pytest.raises(SignatureError, match="0 signatures by"):
        open_lineage(theirs, vkey=scene.vkey)
    head, proofs = split(text)
    _, others = split(theirs)
    for place in range(len(proofs)):
        mixed = [*proofs[:place], others[place], *proofs[place + 1 :]]
        with pytest.raises(VerificationError):
            open_lineage(head + "".join(mixed), vkey=scene.vkey)
    note = others[0].partition("\n\n")[2]
    with pytest.raises(VerificationError):
        open_lineage(text.replace(proofs[0].partition("\n\n")[2], note), vkey=scene.vkey)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("/v1", "/v2", 1), "no lineage"),
        (lambda t: re.sub(r"example (\S+)/1", r"example \1/2", t), "a link is missing: no run.dec"),
        (lambda t: re.sub(r"(?m)^line 1 ", "line 0 ", t), "does not lead"),
        (lambda t: re.sub(r"(?m)^(line .*)\n.*\n", r"\1\n", t), "too short"),
        (lambda t: re.sub(r"(?m)^line (.*)\n(\S+=\n)+", "", t), "is no part of"),
        (lambda t: re.sub(r"(?m)^line 1 .", "line 1 e30=", t, count=1), "base64"),
        (lambda t: t.replace("\n\n", "\n", 1), "no lineage"),
        (lambda t: t + "\n", "note"),
        (lambda t: "", "no lineage"),
        (lambda t: t.partition(PROOF)[0], "tlog-proofs"),
    ],
)
def test_malformed_lineage_is_rejected(
    scene: LineageScene, text: str, change: Callable[[str], str], message: str
) -> None:
    assert open_lineage(text, vkey=scene.vkey)
    with pytest.raises(VerificationError, match=message):
        open_lineage(change(text), vkey=scene.vkey)


def test_export_with_another_line_in_the_examples_name_is_rejected(
    scene: LineageScene, ledger: VerifiedLedger
) -> None:
    example = scene.examples["tier one"]
    lines = scene.exported.read_bytes().splitlines()
    forged = [line.replace(b"[]", b'["better"]') for line in lines]
    with pytest.raises(LineageError, match="in no sealed export"):
        write_lineage(ledger, example, line=line_of(example, forged))
    with pytest.raises(LineageError, match="the export holds no example"):
        line_of(scene.examples["adopted"], lines)
