"""Every threat that the documentation names, carried out; who finds it is on the page."""

from pathlib import Path

import pytest
from circular_pages import repeat_first_row
from stores import database_path
from threat_scene import Scene, Writer, make_scene, recorder
from threats import DETECTORS, THREATS, Threat, asked, carry_out, detected
from threats_page import PAGE, codes_of, rendered
from threats_selections import SELECTION_THREATS, SelectionThreat
from threats_tasks import TASK_THREATS, TaskThreat

from ledger.errors import LedgerError
from ledger.verification.reader import check_ledger

# What is asked of each target when nothing is left out: all that matters is found by it.
STRONGEST = {
    "ledger": "a kept head",
    "bundle": "a kept head",
    "proof": "the vkey",
    "evidence": "the rotations",
    "memory": "a memory",
    "clock": "whoever reads the events",
    "blob": "whoever reads it",
    "verdict": "whoever asks which verdict stands",
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("scene") / "honest")


def codes_of_the_page() -> dict[str, str]:
    return codes_of(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("target", DETECTORS)
def test_honest_ledger_is_accepted_by_every_detector(
    scene: Scene, target: str, tmp_path: Path
) -> None:
    copy = scene.copy(tmp_path / "copy")
    for name, detector in asked(target).items():
        assert detected(detector, copy) is None, name


@pytest.mark.parametrize("threat", THREATS, ids=lambda threat: f"{threat.by}: {threat.name}")
@pytest.mark.sampled(2)
def test_threat_is_rejected(threat: Threat, scene: Scene, tmp_path: Path) -> None:
    outcome = carry_out(threat, scene.copy(tmp_path / "copy"))
    found = outcome.found[STRONGEST[threat.target]]
    if threat.harmless or threat.undetected:
        assert found is None
    else:
        assert found is not None
        assert threat.vague or outcome.index in (None, found.index)
    codes = codes_of_the_page()[threat.name]
    if len(outcome.found) < len(codes):  # without the second verifier, which reads files only
        left_out = list(DETECTORS[threat.target]).index("second verifier")
        codes = codes[:left_out] + codes[left_out + 1 :]
    assert outcome.codes == codes


def test_page_lists_the_threats_and_nothing_else() -> None:
    assert len({threat.name for threat in THREATS}) == len(THREATS)
    assert PAGE.read_text(encoding="utf-8") == rendered(codes_of_the_page())


@pytest.mark.parametrize("threat", TASK_THREATS, ids=lambda threat: threat.name)
def test_attack_of_a_task_has_its_test(threat: TaskThreat) -> None:
    source = (Path(__file__).parents[2] / "proctor/runs/test_task_attacks.py").read_text("utf-8")
    _, found, rest = source.partition(f"def {threat.test}(")
    body = rest.partition("\n\n\n")[0]
    assert found
    steps = {None: "unchecked", "before the run": "refused("}
    assert steps.get(threat.step, f'"{threat.step}"') in body


@pytest.mark.parametrize("threat", SELECTION_THREATS, ids=lambda threat: threat.name)
def test_attack_by_selection_has_its_test(threat: SelectionThreat) -> None:
    tests = Path(__file__).parents[2]
    source = (tests / "proctor/handover/test_selected_entries.py").read_text("utf-8")
    tables = dict(zip(("folder", "report"), source.split("\nREPORTS: "), strict=True))
    for kind, table in tables.items():
        assert (f"    {threat.test}: " in table) == (kind in threat.kinds), kind
    assert bool(threat.lineage_test) == ("lineage" in threat.kinds)
    lineages = "".join(
        (tests / f"judge/lineage/test_{name}.py").read_text("utf-8")
        for name in ("judged_lineages", "lineage_attacks")
    )
    assert threat.lineage_test in lineages


@pytest.mark.parametrize("table", ["entries", "tree_heads"])
def test_table_without_end_is_rejected(table: str, tmp_path: Path) -> None:
    with recorder(tmp_path) as into:
        Writer(into).batch(2)
        Writer(into).batch(1)
    assert check_ledger(tmp_path).ok
    repeat_first_row(database_path(tmp_path), table)
    assert check_ledger(tmp_path).error_type == "ConsistencyError"
    with recorder(tmp_path) as into, pytest.raises(LedgerError, match=r"damaged|do not match"):
        Writer(into).batch(1)
