"""Ways of having the wrong checkpoint blamed, each beside an honest search.

Whoever tries owns the folder and knows what will be asked: a search's id follows from its question,
so that he can be there first. None of these checkpoints is in the repository: what is not known
already cannot be tested, and it shows which verdicts were believed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from bare_places import bare_place, promote
from gauntlet_lines import Line

from aggregates.improvement.bisection import Bisection
from aggregates.registry import REGISTRY
from judge.bisection.driver import Question, go_on, open_search, working
from judge.bisection.probes import Command, plain_oracle
from judge.bisection.reports import fault_of, probes_of, search_of
from judge.bisection.search import RULES, standing
from judge.errors import BisectionError
from judge.gauntlet.workplace import Workplace
from ledger.application import LedgerApplication
from projections.projector import projected
from projections.source import open_source

ORACLE = Command(argv=("check",), files={"check.py": "0" * 64}, seconds=1.0, memory_bytes=2**20)
# The same name, and other content.
OTHER = msgspec.structs.replace(ORACLE, files={"check.py": "1" * 64})


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return Line(tmp_path_factory.mktemp("bisected"), ("late-rows",))


@pytest.fixture
def place(line: Line, tmp_path: Path) -> Workplace:
    made = bare_place(line, tmp_path)
    for number in range(1, 8):
        promote(made, number)
    return made


@pytest.fixture
def question(place: Workplace) -> Question:
    names = list(place.line().checkpoints)
    return Question(good=names[0], bad=names[-1], oracle=ORACLE)


def searched(place: Workplace, question: Question, **options: bool) -> Bisection:
    with working(place) as folder:
        return go_on(place, open_search(place, question, **options), folder=folder)


def planted(
    place: Workplace,
    question: Question,
    verdicts: Mapping[int, str],
    *,
    under: UUID | None = None,
    evidence: Mapping[str, Any] | None = None,
    rules: int = RULES,
) -> Bisection:
    """Put a search on record, with verdicts by nobody, under an id of one's choice."""
    names = list(place.line().checkpoints)
    made = Bisection.open(
        line=str(place.line_id),
        good=question.good,
        suspects=names[1:],
        oracle=plain_oracle(question.oracle),
        error=question.error,
        confidence=question.confidence,
        ends_believed=question.ends_believed,
        rules=rules,
        search_id=under or uuid4(),
    )
    for number, verdict in verdicts.items():
        made.probe(names[number], verdict, evidence or {"repeat": 0})
    place.log.save(made)
    return made


def id_of(line: Line, place: Workplace, question: Question, folder: Path) -> UUID:
    """Return the id that a question's search will have: try it elsewhere."""
    elsewhere = bare_place(line, folder)
    for number in range(1, 8):
        promote(elsewhere, number)
    assert list(elsewhere.line().checkpoints) == list(place.line().checkpoints)
    return open_search(elsewhere, question).id


TRUE = {4: "good", 6: "bad", 5: "good"}  # the sixth is the culprit
FALSE = {4: "bad", 2: "good", 3: "good"}  # and this says that the fourth is


def test_verdicts_of_the_same_oracle_are_believed(place: Workplace, question: Question) -> None:
    planted(place, question, TRUE)
    found = searched(place, question)
    assert found.culprit == found.suspects[5]


def test_verdicts_of_another_oracle_are_rejected(place: Workplace, question: Question) -> None:
    planted(place, replace(question, oracle=OTHER), FALSE)
    found = searched(place, question)
    assert (found.culprit, {verdict for _, verdict in found.probes}) == (None, {"skip"})


@pytest.mark.parametrize("evidence", [{"no": "repeat"}, {"repeat": [0]}, {"repeat": True}])
def test_verdicts_without_a_repeat_are_rejected(
    place: Workplace, question: Question, evidence: dict[str, Any]
) -> None:
    planted(place, question, FALSE, evidence=evidence)
    assert {verdict for _, verdict in searched(place, question).probes} == {"skip"}


def test_another_question_under_the_searchs_id_is_rejected(
    line: Line, place: Workplace, question: Question, tmp_path: Path
) -> None:
    own = id_of(line, place, question, tmp_path)
    planted(place, replace(question, oracle=OTHER), FALSE, under=own)
    with pytest.raises(BisectionError, match=r"does not match its id.*--afresh"):
        open_search(place, question)
    again = open_search(place, question, afresh=True)  # the honest control
    assert (again.oracle, again.probes) == (plain_oracle(ORACLE), [])


def test_end_that_the_probes_do_not_come_to_is_rejected(
    line: Line, place: Workplace, question: Question, tmp_path: Path
) -> None:
    own = id_of(line, place, question, tmp_path)
    made = planted(place, question, TRUE, under=own)
    innocent = made.suspects[3]
    made.end(culprit=innocent, candidates=[innocent], posterior=1.0, reason="so it is")
    place.log.save(made)
    with pytest.raises(
        BisectionError, match=f"ended with the culprit {innocent}, but its probes give"
    ):
        open_search(place, question)


def test_honest_end_is_taken_where_false_ones_are_not(place: Workplace, question: Question) -> None:
    planted(place, question, TRUE)
    found = searched(place, question)
    assert found.ended
    assert open_search(place, question).version == found.version


def test_probe_of_what_is_no_suspect_is_rejected(
    line: Line, place: Workplace, question: Question, tmp_path: Path
) -> None:
    made = planted(place, question, {}, under=id_of(line, place, question, tmp_path))
    told: dict[str, Any] = {
        "number": 1,
        "checkpoint": "nobody's",
        "verdict": "bad",
        "evidence": {"repeat": 0},
    }
    where: dict[str, Any] = {"originator_id": made.id, "originator_version": 2}
    where["timestamp"] = datetime.now(UTC)
    place.log.events.put([Bisection.Probed(**where, **told)])
    with pytest.raises(BisectionError, match="has probes of checkpoints that are not its suspects"):
        open_search(place, question)


def test_planted_beginning_is_not_believed_when_it_is_asked_afresh(
    line: Line, place: Workplace, question: Question, tmp_path: Path
) -> None:
    """As it is on record nobody can tell it from an honest one that was interrupted."""
    own = id_of(line, place, question, tmp_path)
    planted(place, question, FALSE, under=own)
    assert searched(place, question, afresh=True).culprit is None
    assert open_search(place, question, afresh=True).id != own


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        yield log


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "false",
    [
        {"suspects": "all of them"},
        {"suspects": {"a": 1}},
        {"suspects": 7},
        {"suspects": ["b"], "error": 1.0},
        {"suspects": ["b"], "error": 2.0},
        {"suspects": ["b"], "error": 0.1, "confidence": -1e300},
        {"suspects": ["b"], "error": 0.1, "rules": 7},
    ],
)
def test_search_that_cannot_be_hides_no_other(
    log: LedgerApplication, tmp_path: Path, false: dict[str, Any]
) -> None:
    told: dict[str, Any] = {
        "line": "a line",
        "good": "a",
        "oracle": {},
        "error": 0.0,
        "confidence": 0.95,
    }
    honest = Bisection.open(**told, suspects=["b"])
    log.save(honest)
    forged = {**told, "ends_believed": True, "rules": 2, **false}
    forged["originator_topic"] = "aggregates.improvement.bisection:Bisection"
    where: dict[str, Any] = {"originator_id": uuid4(), "originator_version": 1}
    where["timestamp"] = datetime.now(UTC)
    log.events.put([Bisection.Opened(**where, **forged)])
    with (
        open_source(tmp_path / "ledger") as ledger,
        projected(ledger.entries(start=0), quarantine=True) as connection,
    ):
        for view in ("bisection_suspects", "bisection_posterior", "bisection_standing"):
            sql = f"SELECT DISTINCT bisection_id FROM {view} WHERE bisection_id = ?"
            assert connection.execute(sql, [str(honest.id)]).fetchall() == [(str(honest.id),)]


def test_opening_of_version_1_has_the_first_rules() -> None:
    body = {"v": 1, "at": 0, "error": 0.2, "suspects": ["b"]}
    assert REGISTRY.upcast("bisection.opened", body) == {**body, "v": 2, "rules": 1}


def test_search_of_the_first_rules_ends_as_it_did_and_a_new_one_reuses_its_verdicts(
    place: Workplace, question: Question
) -> None:
    asked = replace(question, error=0.1)
    old = planted(place, asked, TRUE, rules=1)
    by_counts = 1 / (1 + 2 / 9 + 4 / 81)  # one suspect with no verdict against it, two with one
    assert standing(search_of(old), probes_of(old)).probability == pytest.approx(by_counts)
    new = open_search(place, asked)
    assert (new.rules, new.id != old.id) == (RULES, True)
    with working(place) as folder:
        new = go_on(place, new, folder=folder)
    assert {verdict for _, verdict in new.probes} >= {"good", "bad"}
    assert fault_of(new) is None
