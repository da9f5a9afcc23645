"""Published vectors and the ledger's own frozen bytes, for both verifiers.

Sources: C2SP signed-note, tlog-checkpoint, tlog-cosignature, tlog-tiles; Go's sumdb/note tests;
the Certificate Transparency log Argon 2020 as Go's sumdb/tlog keeps it. The example in tlog-proof
cannot be checked: its signatures and most of its hashes are left out.
"""

import base64
import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from handmade_ledgers import ALICE, ORIGIN, SECOND, WITNESS, HandmadeLedger, Signer

from ledger.errors import ConsistencyError, VerificationError
from ledger.handover.bundle import export_bundle
from ledger.handover.proof_files import open_proof, write_proofs
from ledger.handover.tiles import Tiler, tile_path
from ledger.notes import NoteKey
from ledger.verification.proofs import roots_from_consistency, verify_inclusion
from ledger.verification.reader import open_verified
from ledger.verification.states import State
from ledger.verification.vectorized import Growth
from ledger.verification.verified_notes import (
    open_tree_head,
    parse_note,
    parse_tree_head,
    parse_vkey,
    verify_note,
)
from ledger.witnessing.cosignatures import open_cosignature, sign_cosignature


def load_second_verifier() -> ModuleType:
    path = Path(__file__).parents[3] / "ledger" / "handover" / "second_verifier.py"
    spec = importlib.util.spec_from_file_location("second_verifier_and_vectors", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SECOND_VERIFIER = load_second_verifier()


def open_first(note: str, vkey: str) -> str:
    signed = parse_note(note)
    verify_note(signed, key=parse_vkey(vkey))
    return signed.text


def open_second(note: str, vkey: str) -> str:
    signed = SECOND_VERIFIER.parse_note(note)
    SECOND_VERIFIER.need(
        signed.signed_once(SECOND_VERIFIER.parse_key(vkey, "ledger")), "not signed"
    )
    return str(signed.text)


REFUSALS = (VerificationError, SECOND_VERIFIER.Failed)
both = pytest.mark.parametrize("opened", [open_first, open_second])
Open = Callable[[str, str], str]

# --- Signed notes ---

EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE = (
    "This is an example message.\n\n"
    "\u2014 example.com/foo "
    "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)
PETER_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
ENOCH_KEY = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
PETER = (
    "\u2014 PeterNeumann "
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
ENOCH = (
    "\u2014 EnochRoot "
    "rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n"
)
POEM = "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera.\n"
POEM_LINE = (
    "\u2014 quasimodo.example/salvatore "
    "NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=\n"
)


@both
def test_example_of_signed_note_is_opened(opened: Open) -> None:
    assert opened(EXAMPLE, EXAMPLE_KEY) == "This is an example message.\n"


@both
def test_notes_of_go_are_opened_with_either_key(opened: Open) -> None:
    for lines in (PETER, PETER + ENOCH, ENOCH + PETER):
        assert opened(f"{TEXT}\n{lines}", PETER_KEY) == TEXT
    assert opened(f"{TEXT}\n{PETER}{ENOCH}", ENOCH_KEY) == TEXT


def test_text_with_empty_lines_ends_at_the_last_one() -> None:
    for parse in (parse_note, SECOND_VERIFIER.parse_note):
        assert parse(f"{POEM}\n{POEM_LINE}").text == POEM


@both
@pytest.mark.parametrize(
    "note",
    [
        TEXT,
        f"{TEXT}\n",
        f"{TEXT}\n{PETER[:-1]}",
        f"\x01{TEXT}\n{PETER}",
        f"{TEXT}\n\u2014 Bad Name {PETER.split(' ')[2]}",
        f"{TEXT}\n{PETER}Unexpected line.\n",
        f"{TEXT}\n{PETER * 101}",
        f"{TEXT}\n{PETER[:60]}ABCD{PETER[60:]}",
        f"{TEXT}\n{PETER.replace('PeterNeumann', 'CarmenSandiego')}",
        f"{TEXT}\n{PETER.replace('x08g', 'xxxx')}",
        f"{TEXT}\n{ENOCH}",
        f"{TEXT}{PETER}",
    ],
)
def test_note_that_go_refuses_is_rejected(opened: Open, note: str) -> None:
    assert opened(f"{TEXT}\n{PETER}", PETER_KEY) == TEXT
    with pytest.raises(REFUSALS):
        opened(note, PETER_KEY)


@both
def test_every_mangled_key_that_go_refuses_is_rejected(opened: Open) -> None:
    note, length = f"{TEXT}\n{PETER}", len(PETER_KEY)
    parts = {
        PETER_KEY[start:stop] for start in range(length) for stop in range(start, length + 1)
    } - {PETER_KEY}
    changed = {
        PETER_KEY[:at] + chr(ord(PETER_KEY[at]) + 1) + PETER_KEY[at + 1 :] for at in range(length)
    }
    odd = {  # of a wrong length, and of another type, each with the key id that fits
        "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",
        "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
    }
    for key in parts | changed | odd:
        with pytest.raises(REFUSALS):
            opened(note, key)


def test_go_s_private_key_writes_the_same_line() -> None:
    seed = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
    key = NoteKey("PeterNeumann", Ed25519PrivateKey.from_private_bytes(seed))
    assert (key.vkey, key.line(TEXT)) == (PETER_KEY, PETER)


# --- Tree heads and cosignatures ---

SOFA = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
SOFA_LINE = (
    "\u2014 example.com/behind-the-sofa "
    "Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
)
SOFA_WITNESS = (
    "\u2014 witness.example.com/w1 "
    "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
)


def test_example_of_tlog_checkpoint_is_read() -> None:
    for parse in (parse_tree_head, SECOND_VERIFIER.parse_head):
        for lines in (SOFA_LINE, SOFA_LINE + SOFA_WITNESS):
            head = parse(f"{SOFA}\n{lines}")
            assert (head.origin, head.size) == ("example.com/behind-the-sofa", 20852163)
            assert head.root.hex().startswith("0ac5186a91863e8e")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("20852163", "020852163"),
        ("20852163", "+20852163"),
        ("20852163", "20852163 "),
        ("20852163", "٢٠٨٥٢١٦٣"),
        ("20852163", "-1"),
        ("20852163", "9223372036854775808"),
        ("CsUY", "CsU"),
        ("q2I=", "q2J="),
        ("q2I=\n", "q2I=\n\n"),
        ("q2I=\n", "q2I=\nan extension\n"),
        ("20852163\n", ""),
    ],
)
def test_tree_head_of_another_form_is_rejected(old: str, new: str) -> None:
    for parse in (parse_tree_head, SECOND_VERIFIER.parse_head):
        with pytest.raises(REFUSALS):
            parse(f"{SOFA.replace(old, new)}\n{SOFA_LINE}")


def test_cosignature_signs_the_message_of_the_specification() -> None:
    time = 1679315147
    message = f"cosignature/v1\ntime {time}\n{SOFA}".encode()
    line = sign_cosignature(SOFA, name=WITNESS.name, key=WITNESS.private, seconds=time)
    assert line == WITNESS.cosign(SOFA, time)
    raw = base64.b64decode(line.split(" ")[2])
    WITNESS.private.public_key().verify(raw[12:], message)
    assert raw[4:12] == base64.b64decode(SOFA_WITNESS.split(" ")[2])[4:12]  # the example's time
    note = f"{SOFA}\n{SOFA_LINE}{SOFA_WITNESS}{line}"
    assert open_cosignature(parse_note(note), vkey=WITNESS.vkey) == time
    seen = SECOND_VERIFIER.Witnesses([SECOND_VERIFIER.parse_key(WITNESS.vkey, "witness")])
    seen.look(SECOND_VERIFIER.parse_head(note))
    assert list(seen.seen.values()) == [[(20852163, time)]]


# --- Trees: a log of other people's ---

ARGON_SIZE = 961984013
ARGON_ROOT = "dwlueapdd7LaOEnX2W2Wp9v2XE+KzejHRQGHwEx0oaM="
ARGON_INDEX = 10000
ARGON_LEAF = "nCs3mfIydh9x4CKyQ+u2xtmpxmFggA5MLymHwNQSlLg="
ARGON_OLD_SIZE = 3654490
ARGON_OLD_ROOT = "AuIZ5V6sDUj1vn3Y1K85oOaQ7y+FJJKtyRTl1edIKBQ="
ARGON_INCLUSION = """
T46AmJsuOM/gFiGlUp+IJJebp+1Z5qratFNW7U0JyOQ=
9Jj1Feodn42uRYEfffkV4HF/EIPFQ5Zo9IwkxbQ2uhk=
D53/1oCNebF4J59HHgioovKZxrmrKcVuCVhy3Izg8Ck=
wSFDgGSrsXRPA+1c8WHoAFCsWeUv8NDyP/Q/SgsyVyY=
516/RcwsgdwdzHn18v1dJHqBkgFUbNhmCIWOGjsMJaE=
naTFY2ajLFgrgs5XUl+zJYZnnlJksLGsA1VYwpLfqbY=
mKBRJo6qao+0Kdh/rhGkZUbHUAxMhrtrclrTpIbNjIg=
Co4ueOFE7lpifLio94irxxsv1wFMMaK3tPu2ZQkHlro=
yRgy800K6JMYCC05sWfqF2kvCg2riT/pVM+nEa6V5+0=
n2O38XJZC8/Wpbwi9HhgVizlUyeUHVZvYyQB1607MRc=
go3tAjuNfNSCj87y2Rg1xOroDknGN1eaf3cgvzObf7Q=
8D0Mj3/J7ySSnFb0afIHYXv6rlOhECnsebY6XKi1IR8=
6rcez46ZU8M5vPiWVMAUfJfAOV0pPP/mch/lYzZhj/M=
2rtIeXrPvSdUyHc5maIgSAVB2BzaKaupWxSAiVayDE4=
nniW/IMFQPN5xw8UsHFn7CRStYbm1gLu7NNa6kkRqJQ=
mRPPi7sQS22MduIEyvcNzCNFqIt6kLwYPkNKrVtIcu8=
JvTivzESNS9wHI8aph5a7uieVmtS/p9PciMZ5D6GyOo=
UTyQd+Ym0wY4zG+qK806bBORwi1CSVvFQ/KknnqoZj8=
hXODrqN+ff+U6zPqRQ+ZQKs6im1fPcxIerDSfNwflhE=
II6GE+WY/DrpZzfHztLwkR46o37zVkNLCyPYlf68zA0=
d609kWWcNBllbA8Jb/ad4XAVVGnScLRmtP8FYyr+Dck=
rikBsP0G0gioXRpBFED2CzQdSLrGPvRd0bEcbEZw1rI=
GXIElfmnRuWfbA4z7ubV/UwlpSRUbUeec7oL5HDDnh0=
pR0SH/NYP6s9+8azWwaeUXA4Ze/3WCIgMfh5YW6wvcE=
f3GuAKYVrF8RBg3s15jvA/YvV9oAliWtzP/imwPhQVA=
WHn8zDxlVgkV+lSlmzaOdfSBrTHoRr5nT3d76q0KKWE=
f2uV2ZxVgULzLPKuZcowRY3ZY7fRlX59iDBjV1R8kNQ=
NzQVjJsvQwbi7WStMr9oFkh9VbHfK7LB6o7WwAqwNTs=
C0LttBeYHZHgL+032JIcJC3CTBIyza/hsbmJUgJfmDI=
nixU5CWTFVDlF4BGdcU6kA7WSYurEpe9jRWc+F/7sOc=
"""
ARGON_CONSISTENCY = """
80Sfbj6UQEdVSZCSIgh9NMPj3vCBzcc1A48B2crJSWg=
FZcrgAHUk6nNPviJZq8kEK6jCG1d18pJOFE45ZDc1TQ=
Q67reWXmPBo1UfmwBap4Xi9PMPfFdUSSw3WGlRZdG7k=
eJ7CyhR4PxzBxDIsWgrVYW1eFUb9ndgf46tFmiqVrxA=
QrDwp062Grm5WY8KdrhFsBuuNjGzRox2Jb8PmVL5OYw=
XM4YMjMEdLH/XJam/ZWyaP14k3cmsOtnPsOWQ54lW1s=
SGiBh+jOTGccXU48ZzgQ88lRcBmtB4wz4oSDndv2QTg=
WAS6txqNLYKGL1GdBdpqmV42TTfn6cJsuDsqLXuTCNI=
QFmRS0rirUA7ZN3lxFjDncV+E1OCrn3NUB4RCp+5fzc=
Hdbp7It2XBNZmNDBpCN/KPd7vfVqxgzwOosqVIaEA9E=
mxvHL0ZiblBdD7j7pIa1jlfB0gSqfJ6oX0UGo7L0VsU=
q5hjyvoW6TL/PThgcitpDcSTrnKX2p1+aqscqH2euRA=
jTOWDqt3IHj2NVFeezyBz2ofpru+ztEywqKUAfFclKI=
GIRn0w3HqJdvU9j1WVD//eR6lk2AaTVjyzjsJNP8U88=
x52GJvxG81fnQBrgOTbll1A5tz95/LXK0Ag1NhB0r1I=
6/0OqrcTgc3o5dD5PymmoC96lB9yLPFuTHVvLy8fSGk=
Gf+iKLfcXO5l4JEFmsZvSdG5q1uEeWPfYLrds6pmjz0=
DGuaco+McyM3AfRSF6qX7RwSetwe2ieYJmxw5e9rVx0=
2tQJ9V32hnYp+fdpP6TcjmgJmLeNVOMKM0Ml1kk4cNU=
3PapK+IkyJr8I9yAErAmzuZezzLMzsg+PfeRCgNW8NQ=
s6xiYeejb+wtqHA+URJZ2I/SCPyIW8coP6aB00FJbMY=
z9lSpmdTcr5M5ZzKlc4EPh3SrSypKFdk6JUF/UccaZU=
GXIElfmnRuWfbA4z7ubV/UwlpSRUbUeec7oL5HDDnh0=
pR0SH/NYP6s9+8azWwaeUXA4Ze/3WCIgMfh5YW6wvcE=
f3GuAKYVrF8RBg3s15jvA/YvV9oAliWtzP/imwPhQVA=
WHn8zDxlVgkV+lSlmzaOdfSBrTHoRr5nT3d76q0KKWE=
f2uV2ZxVgULzLPKuZcowRY3ZY7fRlX59iDBjV1R8kNQ=
NzQVjJsvQwbi7WStMr9oFkh9VbHfK7LB6o7WwAqwNTs=
C0LttBeYHZHgL+032JIcJC3CTBIyza/hsbmJUgJfmDI=
nixU5CWTFVDlF4BGdcU6kA7WSYurEpe9jRWc+F/7sOc=
"""


def decoded(lines: str) -> list[bytes]:
    return [base64.b64decode(line) for line in lines.split()]


def test_inclusion_in_a_certificate_log_is_verified() -> None:
    leaf, root = base64.b64decode(ARGON_LEAF), base64.b64decode(ARGON_ROOT)
    proof = decoded(ARGON_INCLUSION)
    verify_inclusion(leaf, index=ARGON_INDEX, size=ARGON_SIZE, root=root, proof=proof)
    assert SECOND_VERIFIER.roots_of_proof(leaf, ARGON_INDEX, ARGON_SIZE, proof)[-1] == root
    for index, size in ((ARGON_INDEX + 1, ARGON_SIZE), (ARGON_INDEX, ARGON_SIZE // 4)):
        with pytest.raises(REFUSALS):
            verify_inclusion(leaf, index=index, size=size, root=root, proof=proof)


def test_consistency_of_a_certificate_log_is_verified() -> None:
    roots = base64.b64decode(ARGON_OLD_ROOT), base64.b64decode(ARGON_ROOT)
    told: Any = {"new": ARGON_SIZE, "proof": decoded(ARGON_CONSISTENCY), "old_root": roots[0]}
    assert roots_from_consistency(old=ARGON_OLD_SIZE, **told) == roots
    for old in (ARGON_OLD_SIZE - 1, ARGON_OLD_SIZE + 2):
        with suppress(ConsistencyError):
            assert roots_from_consistency(old=old, **told) != roots


# --- Tiles ---


def test_tile_path_is_that_of_the_specification() -> None:
    assert SECOND_VERIFIER.tile_name(1234067, 256) == "x001/x234/067"
    assert tile_path("entries", 1234067) == "tile/entries/x001/x234/067"
    assert SECOND_VERIFIER.tile_name(273, 112) == "273.p/112"
    assert tile_path(0, 273, width=112) == "tile/0/273.p/112"


class Widths:
    """Counts the hashes of each level that the second verifier would compare with tiles."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def put(self, level: int, node: bytes) -> None:
        self.counts[level] = self.counts.get(level, 0) + 1


@pytest.mark.parametrize(
    ("size", "tiles"),  # by level: full tiles, width of the partial one
    [
        (70_000, {0: (273, 112), 1: (1, 17), 2: (0, 1)}),
        (256, {0: (1, 0), 1: (0, 1)}),
        (255, {0: (0, 255)}),
    ],
)
def test_tree_has_the_tiles_of_the_specification(
    size: int, tiles: dict[int, tuple[int, int]]
) -> None:
    widths, tiler = Widths(), Tiler()
    tree = SECOND_VERIFIER.Tree(widths)
    leaves = [hashlib.sha256(b"%d" % leaf).digest() for leaf in range(size)]
    for node in leaves:
        tree.append(node)
    written = [tile.path for tile in tiler.take(Growth(State(), leaves).completed)]
    written.extend(tile.path for tile in tiler.rest())
    assert {level: divmod(count, 256) for level, count in widths.counts.items()} == tiles
    assert set(written) == {
        path
        for level, (full, width) in tiles.items()
        for path in [
            *(tile_path(level, n) for n in range(full)),
            *([tile_path(level, full, width=width)] if width else []),
        ]
    }


# --- The ledger's own bytes, frozen: what changes here breaks every ledger and proof out there ---


def frozen_ledger() -> HandmadeLedger:
    """Seven entries: a grant, an author, a rotation; two tree heads, the older one cosigned."""
    made = HandmadeLedger()
    made.add(bytes(range(16)), "test.event", b"body")
    made.grant("operator", ALICE, ("ledger", made.ledger))
    made.add(bytes(range(16)), "test.event", b"", ("operator", ALICE))
    made.sign((WITNESS, 1_790_000_000))
    made.rotate(SECOND)
    for number in range(3):
        made.add(bytes(16), "test.other", b"%d" % number)
    made.sign()
    made.blobs = [b"a blob"]
    return made


FROZEN_HEAD = """\
proctor.local/00112233445566778899aabbccddeeff
3
zkLPy2fozfBBmxcrK1ycJTRIvDa9au9QoF7nCWvg2OQ=

\u2014 proctor.local/00112233445566778899aabbccddeeff L+am3Brtp1Jybe9y/4XL1mUuhTJqELDuhz49zNbO\
MMzoVkmBroEvDu6bgrij2D5N/xixCFhOQ/NN/DgS0LzXVARC/Q8=
\u2014 witness.example/w1 9uImgwAAAABqsTuAYFtWecLP9JM7oopNniJZL9PNfu280iaBTNqiBRyRfcMrlEiWlKB5\
TWuOwQM2ppGMgHOY5E9e2Cj22UP4k6oRBw==
"""
FROZEN_ROTATION = """\
ledger/rotation/v1
proctor.local/00112233445566778899aabbccddeeff
proctor.local/00112233445566778899aabbccddeeff+2fe6a6dc+Ab2pOOV4yOKnHGVNF6G5yTA6JVAlh8z1J6Y6HQ\
DXvKV3
proctor.local/00112233445566778899aabbccddeeff+0472ae1d+Ad4cc5xB5R17tm/km/9OUOXgj7id95Gq1larvK\
RX/HFi

\u2014 proctor.local/00112233445566778899aabbccddeeff L+am3LP3jZq239db8AvYPjOghjDTZRN2xZVp02mr\
ffUoenI/nm098kyJa4lfy+tKvRMQv+0tpPFcvCJCXRCHJXQU+gs=
\u2014 proctor.local/00112233445566778899aabbccddeeff BHKuHYUmZMuTczs5T5s1jVzDU92zyNR7Zc6LhfjI\
vPuCpzyfdEDLYfz+ju6mn02XQR0Pl1HHiq/li+MCHskrRXuNqAY=
"""
FROZEN_PROOF = """\
c2sp.org/tlog-proof@v1
extra AFgBAAAAAAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEY11uEJD9LQJbLpfI1IAJyaybe1eLaZgad6s+cTcHM\
/NCCECSy/+C0AAp0ZXN0Lm90aGVyAAEwAi1sZWRnZXIvcm90YXRpb24vdjEKcHJvY3Rvci5sb2NhbC8wMDExMjIzMzQ0NT\
U2Njc3ODg5OWFhYmJjY2RkZWVmZgpwcm9jdG9yLmxvY2FsLzAwMTEyMjMzNDQ1NTY2Nzc4ODk5YWFiYmNjZGRlZWZmKzJm\
ZTZhNmRjK0FiMnBPT1Y0eU9LbkhHVk5GNkc1eVRBNkpWQWxoOHoxSjZZNkhRRFh2S1YzCnByb2N0b3IubG9jYWwvMDAxMT\
IyMzM0NDU1NjY3Nzg4OTlhYWJiY2NkZGVlZmYrMDQ3MmFlMWQrQWQ0Y2M1eEI1UjE3dG0va20vOU9VT1hnajdpZDk1R3Ex\
bGFydktSWC9IRmkKCuKAlCBwcm9jdG9yLmxvY2FsLzAwMTEyMjMzNDQ1NTY2Nzc4ODk5YWFiYmNjZGRlZWZmIEwrYW0zTF\
AzalpxMjM5ZGI4QXZZUGpPZ2hqRFRaUk4yeFpWcDAybXJmZlVvZW5JL25tMDk4a3lKYTRsZnkrdEt2Uk1RdiswdHBQRmN2\
Q0pDWFJDSEpYUVUrZ3M9CuKAlCBwcm9jdG9yLmxvY2FsLzAwMTEyMjMzNDQ1NTY2Nzc4ODk5YWFiYmNjZGRlZWZmIEJIS3\
VIWVVtWk11VGN6czVUNXMxalZ6RFU5Mnp5TlI3WmM2TGhmakl2UHVDcHp5ZmRFRExZZnoranU2bW4wMlhRUjBQbDFISGlx\
L2xpK01DSHNrclJYdU5xQVk9Cg==
index 4
8qe0Fx/Qu59U/S3pMVRLKrKlMYdhd1hgm/G95AoMj3U=
1j2XUbrlE4u38BjDvQ3vJDLWmXZvNapdnLr37Z3AuM0=
uAZRmTALOr8075AiQI0SDu38bqLpXNthZ4O7mlisB6g=

proctor.local/00112233445566778899aabbccddeeff
7
HMYfcuxZnMx2YWxqhzxuzPviphwpZzs2qyL6pBL4KK0=

\u2014 proctor.local/00112233445566778899aabbccddeeff BHKuHVXfDzzDiPEMKUysvg7x+VlLqHueBCrG44by\
imCSiMnbvByL0wnbE708z1WdXpzUPCiy4YwTArVZ8BWJNj4a8wE=
"""
BLOB = "5570a3cf02207f1d352d2cfea385be4bc0b2b9414f606baa6f55db60b232f221"
FROZEN_BUNDLE = {  # SHA-256 of each file
    "blobs/55/" + BLOB: BLOB,
    "checkpoint": "aa5b6824238583b1cc1b6d9dae8c687b7840485e2b1e87a08b9de92bb31ec736",
    "checkpoints/3": "ad9ec53cfe89ec61f79f60ca3fd8cf8265c5d6f38d5471e7aefea884020893e4",
    "ledger.vkey": "7cc0378792b1a2131feac3eba51cbc5118d6d17e1c49903d40bc1360e4982408",
    "tile/0/000.p/7": "a580bdf4c28af7ce5f98b3054ace8ee2007e3f4cbd97c7f87f16e085a073b2f7",
    "tile/entries/000.p/7": "e0f205a8aa837ff2be60c91f48c43bd109e31311734f43e11e1bced409f802bd",
}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frozen")
    frozen_ledger().write_database(folder)
    return folder


def test_cosigned_tree_head_has_its_frozen_bytes(frozen: Path) -> None:
    with open_verified(frozen) as ledger:
        assert next(iter(ledger.head_notes())) == FROZEN_HEAD
    head = parse_tree_head(FROZEN_HEAD)
    first = NoteKey(ORIGIN, frozen_ledger().first.private)
    written = first.tree_head(size=head.size, root=head.root)
    text = FROZEN_HEAD.partition("\n\n")[0] + "\n"
    seconds = 1_790_000_000
    written += sign_cosignature(text, name=WITNESS.name, key=WITNESS.private, seconds=seconds)
    assert written == FROZEN_HEAD
    assert open_tree_head(FROZEN_HEAD, vkey=first.vkey).size == 3


def test_rotation_has_its_frozen_bytes(frozen: Path) -> None:
    old, new = (NoteKey(ORIGIN, Signer(ORIGIN, seed).private) for seed in (0, SECOND.seed))
    assert old.rotation_to(new) == FROZEN_ROTATION
    with open_verified(frozen) as ledger:
        assert ledger.authority.rotations == (FROZEN_ROTATION,)


def test_proof_has_its_frozen_bytes(frozen: Path, tmp_path: Path) -> None:
    with open_verified(frozen) as ledger:
        assert write_proofs(ledger, [4]) == FROZEN_PROOF
    vkey = frozen_ledger().first.vkey
    assert open_proof(FROZEN_PROOF, vkey=vkey).entry.index == 4
    path = tmp_path / "frozen.tlog-proof"
    path.write_text(FROZEN_PROOF)
    keys = SECOND_VERIFIER.Keys(SECOND_VERIFIER.parse_key(vkey, "ledger"))
    assert (
        SECOND_VERIFIER.check_proofs(path, keys, [], SECOND_VERIFIER.Witnesses([]))[0]
        == "entry 4 of "
    )


def hashed(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "verify.py":
            name = str(path.relative_to(folder))
            yield name, hashlib.sha256(path.read_bytes()).hexdigest()


def test_bundle_has_its_frozen_files(frozen: Path, tmp_path: Path) -> None:
    export_bundle(frozen, tmp_path / "bundle")
    assert dict(hashed(tmp_path / "bundle")) == FROZEN_BUNDLE
