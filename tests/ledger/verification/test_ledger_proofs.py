"""Proofs of inclusion and consistency against published vectors and the RFC's own recursion."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_trees import leaf, leaves, path, root, subproof

from ledger.errors import ConsistencyError, InclusionError
from ledger.verification.proofs import (
    Node,
    consistency_proof,
    earlier_roots,
    inclusion_proofs,
    leaf_hash,
    roots_from_consistency,
    verify_inclusion,
)

# Trees over these leaves, and proofs in them, as published with certificate-transparency-go.
PUBLISHED = [
    leaf(bytes.fromhex(each))
    for each in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
LEFT_4 = "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"
RIGHT_4 = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"
PAIR_2 = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e"
PAIR_4 = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a"
PAIR_6 = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0"
LEAF_0 = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
LEAF_1 = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7"
LEAF_4 = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"
INCLUSION = {
    (0, 1): [],
    (0, 8): [LEAF_1, PAIR_2, RIGHT_4],
    (5, 8): [LEAF_4, PAIR_6, LEFT_4],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [LEAF_0, PAIR_2, LEAF_4],
}
CONSISTENCY = {
    (1, 1): [],
    (1, 8): [LEAF_1, PAIR_2, RIGHT_4],
    (6, 8): [PAIR_4, PAIR_6, LEFT_4],
    (2, 5): [PAIR_2, LEAF_4],
}
LEAVES = leaves(4_500)
HASH = hashlib.sha256(b"another").digest()


def published(hashes: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(each) for each in hashes]


@pytest.mark.parametrize(("index", "size"), INCLUSION)
def test_inclusion_proof_is_the_published_one(index: int, size: int) -> None:
    proof = published(INCLUSION[index, size])
    tree = PUBLISHED[:size]
    assert inclusion_proofs(tree, [index])[0] == proof
    verify_inclusion(PUBLISHED[index], index=index, size=size, root=root(tree), proof=proof)


@pytest.mark.parametrize(("old", "new"), CONSISTENCY)
def test_consistency_proof_is_the_published_one(old: int, new: int) -> None:
    proof = published(CONSISTENCY[old, new])
    assert consistency_proof(PUBLISHED[:new], old) == proof
    roots = root(PUBLISHED[:old]), root(PUBLISHED[:new])
    assert roots_from_consistency(old=old, new=new, proof=proof, old_root=roots[0]) == roots


def test_proofs_of_the_example_in_the_rfc_have_its_nodes() -> None:
    """RFC 6962 section 2.1.3, by the names that it gives to the nodes."""
    d = LEAVES[:7]
    a, b, c, f, j = d[0], d[1], d[2], d[5], d[6]
    e = d[4]
    g, h, i = root(d[0:2]), root(d[2:4]), root(d[4:6])
    k, el = root(d[0:4]), root(d[4:7])
    assert inclusion_proofs(d, [0])[0] == [b, h, el]
    assert inclusion_proofs(d, [3])[0] == [c, g, el]
    assert inclusion_proofs(d, [4])[0] == [f, j, k]
    assert inclusion_proofs(d, [6])[0] == [i, k]
    assert consistency_proof(d, 3) == [c, d[3], g, el]
    assert consistency_proof(d, 4) == [el]
    assert consistency_proof(d, 6) == [i, j, k]
    assert a != e


def test_proofs_are_those_of_the_recursive_definition_for_small_sizes() -> None:
    for size in range(1, 71):
        tree = LEAVES[:size]
        whole = root(tree)
        for place in range(size):
            proof = path(place, tree)
            assert inclusion_proofs(tree, [place])[0] == proof
            verify_inclusion(tree[place], index=place, size=size, root=whole, proof=proof)
            check_consistency(tree, place + 1)


def test_proofs_of_several_entries_are_those_of_each_when_made_in_one_walk() -> None:
    for size in (1, 2, 7, 64, 69):
        tree = LEAVES[:size]
        places = range(0, size, 3)
        assert inclusion_proofs(iter(tree), places) == [path(place, tree) for place in places]
    assert inclusion_proofs(LEAVES[:3], []) == []
    for asked, missing in (([0, 3], 3), ([-1, 0], -1)):
        with pytest.raises(InclusionError, match=f"entry {missing} not found"):
            inclusion_proofs(LEAVES[:3], asked)


@pytest.mark.slow
def test_subtrees_in_which_no_index_lies_stand_for_their_leaves() -> None:
    for size in (1, 7, 8, 9, 40):
        tree = LEAVES[:size]
        for index in range(size):
            blocks = [tree[at : at + 4] for at in range(0, size, 4)]
            nodes: list[Sequence[Node]] = [
                [(4, root(each))] if len(each) == 4 and index // 4 != number else each
                for number, each in enumerate(blocks)
            ]
            assert inclusion_proofs(chain(*nodes), [index]) == inclusion_proofs(tree, [index])
            with pytest.raises(InclusionError, match="its leaf is not given"):
                inclusion_proofs([*chain(*nodes), (8, HASH)], [index, size + 3])


def test_proofs_are_those_of_the_recursive_definition_for_all_sizes_to_140() -> None:
    for size in range(71, 141):
        tree = LEAVES[:size]
        whole = root(tree)
        for place in range(size):
            proof = path(place, tree)
            assert inclusion_proofs(tree, [place])[0] == proof
            verify_inclusion(tree[place], index=place, size=size, root=whole, proof=proof)
            check_consistency(tree, place + 1)


@given(st.data())
def test_proofs_are_those_of_the_recursive_definition_for_large_sizes(data: st.DataObject) -> None:
    size = data.draw(st.integers(300, len(LEAVES)))
    place = data.draw(st.integers(0, size - 1))
    tree = LEAVES[:size]
    proof = path(place, tree)
    assert inclusion_proofs(iter(tree), [place])[0] == proof
    verify_inclusion(tree[place], index=place, size=size, root=root(tree), proof=proof)
    check_consistency(tree, place + 1)


def check_consistency(tree: list[bytes], old: int) -> None:
    roots = root(tree[:old]), root(tree)
    proof = consistency_proof(tree, old)
    assert proof == subproof(old, tree)
    assert roots_from_consistency(old=old, new=len(tree), proof=proof, old_root=roots[0]) == roots
    complete = consistency_proof(tree, old, with_old_root=True)
    assert roots_from_consistency(old=old, new=len(tree), proof=complete) == roots


@given(st.data())
def test_mutated_inclusion_proof_is_rejected(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 300))
    index = data.draw(st.integers(0, size - 1))
    tree = LEAVES[:size]
    honest = inclusion_proofs(tree, [index])[0]
    verify_inclusion(tree[index], index=index, size=size, root=root(tree), proof=honest)
    for proof in mutations(data, honest):
        with pytest.raises(InclusionError, match=r"the inclusion proof|hash in the proof"):
            verify_inclusion(tree[index], index=index, size=size, root=root(tree), proof=proof)


@given(st.data())
def test_mutated_consistency_proof_is_rejected(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 300))
    old = data.draw(st.integers(1, size - 1))
    tree = LEAVES[:size]
    roots = root(tree[:old]), root(tree)
    honest = consistency_proof(tree, old)
    assert roots_from_consistency(old=old, new=size, proof=honest, old_root=roots[0]) == roots
    for proof in mutations(data, honest):
        with suppress(ConsistencyError):
            found = roots_from_consistency(old=old, new=size, proof=proof, old_root=roots[0])
            assert found != roots


def mutations(data: st.DataObject, honest: list[bytes]) -> list[list[bytes]]:
    changed = [[*honest, HASH], [HASH, *honest], [*honest, b""], [*honest, bytes(33)]]
    if honest:
        at = data.draw(st.integers(0, len(honest) - 1))
        bit = data.draw(st.integers(0, 255))
        flipped = bytearray(honest[at])
        flipped[bit // 8] ^= 1 << bit % 8
        changed += [
            honest[:-1],
            honest[1:],
            [*honest[:at], bytes(flipped), *honest[at + 1 :]],
            [*honest[:at], honest[at], *honest[at:]],
        ]
    if len(honest) > 1:
        changed.append([honest[1], honest[0], *honest[2:]])
    return changed


def test_inclusion_proof_for_another_place_or_leaf_is_rejected() -> None:
    for size in range(2, 34):
        tree = LEAVES[:size]
        for index in range(size):
            proof = inclusion_proofs(tree, [index])[0]
            for other in range(size):
                if other != index:
                    with pytest.raises(InclusionError, match="the inclusion proof"):
                        verify_inclusion(
                            tree[index], index=other, size=size, root=root(tree), proof=proof
                        )
            with pytest.raises(InclusionError, match=f"lead from entry {index} to the root"):
                verify_inclusion(HASH, index=index, size=size, root=root(tree), proof=proof)


def test_inner_node_presented_as_a_leaf_is_rejected() -> None:
    tree = LEAVES[:8]
    proof = inclusion_proofs(tree, [0])[0]
    with pytest.raises(InclusionError, match="too short"):
        verify_inclusion(root(tree[:2]), index=0, size=8, root=root(tree), proof=proof[1:])
    assert leaf_hash(tree[0] + tree[1]) != root(tree[:2])  # the prefixes tell them apart


@pytest.mark.parametrize(
    ("index", "size"), [(0, 0), (1, 1), (5, 4), (-1, 4), (0, 2**63), (2**63 - 1, 2**63)]
)
def test_inclusion_at_an_impossible_place_is_rejected(index: int, size: int) -> None:
    with pytest.raises(InclusionError, match=f"entry {index} is out of range: the tree has {size}"):
        verify_inclusion(HASH, index=index, size=size, root=HASH, proof=[])


@pytest.mark.parametrize(("old", "new"), [(0, 4), (-1, 4), (5, 4), (1, 2**63)])
def test_consistency_of_impossible_sizes_is_rejected(old: int, new: int) -> None:
    with pytest.raises(ConsistencyError, match=f"no proof leads from size {old} to size {new}"):
        roots_from_consistency(old=old, new=new, proof=[], old_root=HASH)


def test_longest_proof_is_of_63_hashes_and_a_longer_one_is_rejected() -> None:
    last = 2**63 - 2
    proof = [HASH] * 63
    for place in (0, 1, last // 2):
        with pytest.raises(InclusionError, match="does not lead"):
            verify_inclusion(HASH, index=place, size=last + 1, root=HASH, proof=proof)
    with pytest.raises(InclusionError, match="at most 63 hashes"):
        verify_inclusion(HASH, index=0, size=last + 1, root=HASH, proof=[HASH] * 64)
    with pytest.raises(ConsistencyError, match="at most 63 hashes"):
        roots_from_consistency(old=3, new=last, proof=[HASH] * 100)


def test_proofs_of_what_is_not_there_are_refused() -> None:
    with pytest.raises(InclusionError, match="entry 4 not found"):
        inclusion_proofs(LEAVES[:4], [4])[0]
    with pytest.raises(InclusionError, match="entry -1 not found"):
        inclusion_proofs(LEAVES[:4], [-1])[0]
    with pytest.raises(ConsistencyError, match="there are fewer than 5 entries"):
        consistency_proof(LEAVES[:4], 5)
    with pytest.raises(ConsistencyError, match="the smallest size is 1"):
        consistency_proof(LEAVES[:4], 0)


def test_old_root_of_a_power_of_two_is_taken_from_the_caller() -> None:
    tree = LEAVES[:7]
    proof = consistency_proof(tree, 4)
    found = roots_from_consistency(old=4, new=7, proof=proof, old_root=HASH)
    assert found[0] == HASH
    assert found[1] != root(tree)


def test_earlier_roots_are_those_that_the_tree_had() -> None:
    hashes = leaves(40)
    for size in range(1, len(hashes) + 1):
        for index, proof in enumerate(inclusion_proofs(hashes[:size], range(size))):
            before, upto = earlier_roots(hashes[index], index=index, size=size, proof=proof)
            assert before == (root(hashes[:index]) if index else None)
            assert upto == root(hashes[: index + 1])
