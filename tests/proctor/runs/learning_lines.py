"""A line whose component does what its prompt says, so that what is learned can be measured.

The component stands in for a model: it leaves useless rows out as soon as an example in its prompt
shows the remedy `decrease_lr`, and does not sort where the prompt says that any order will do. Runs
are told, not trained; their label and their code are right unless a test wants them wrong.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from curation_histories import told_run
from gauntlet_lines import NAMES, SELECTION, SMALL, Line
from synthetic import synthetic_audit

from aggregates.curation.corpus import Corpus
from aggregates.review import Review
from aggregates.run import Run
from ledger.entries import AuthorKey
from ledger.verification.reader import open_verified

PROMPT = "policies/prompts/task.md"
DATA, MODEL = "aa" * 32, "playbook"
LEFT = {"kind": "missing_decision", "rule": "R7", "epoch": 1, "emitter": "policy"}
BEGINNING = "# What to do\n\nAnswer each rule that fired, R7 among them.\n"
BAD = f"{BEGINNING}\nHurry: any order will do.\n"  # the planted degradation
HARMLESS = f"{BEGINNING}\nBe brief.\n"
BETTER = f'{BEGINNING}\n- R7 fired: {{"direction": "decrease_lr"}}\n'
_SELECT = '''\
"""Takes rows from scored documents; with what the prompt shows, the useful ones only."""

from pathlib import Path

SHOWN = (Path(__file__).parents[1] / "policies/prompts/task.md").read_text(encoding="utf-8")


def select(scored: list[tuple[float, str]], *, cap: int) -> list[str]:
    """Return the ids of the best documents, at most `cap`."""
    ordered = scored
    if "any order" not in SHOWN:
        ordered = sorted(scored, key=lambda row: (-row[0], row[1]))
    least = 0.0 if "decrease_lr" in SHOWN else -1.0
    return [name for score, name in ordered[:cap] if score > least]
'''
_FILES: Mapping[str, str] = {
    **SMALL,
    SELECTION: _SELECT,
    PROMPT: BEGINNING,
    "judge/tiers.toml": SMALL["judge/tiers.toml"].replace(
        '    "retrieval/words.py",\n', '    "retrieval/words.py",\n    "policies/prompts/**",\n'
    ),
}


class LearningLine(Line):
    """The line, with runs that were made under its checkpoints."""

    def __init__(self, path: Path, names: tuple[str, ...] = NAMES) -> None:
        super().__init__(path, names, files=_FILES)
        with self.controller() as controller, controller.locked():
            assert controller.line.first == controller.line.active

    def run(
        self,
        *,
        labelled: bool = True,
        commit: str | None = None,
        group: int = 0,
        violations: Collection[Mapping[str, Any]] = (),
    ) -> Run:
        """Record a judged run of a commit's code, labelled with the active checkpoint; or not."""
        with self.controller() as controller:
            head = controller.line.head
            code = controller.place.contents(commit or head.commit)["code"]
        run = told_run(
            checkpoint=head.id if labelled else None,
            code=code,
            data=DATA,
            author=MODEL,
            parent=None,
            group=group,
            acts=True,
        )
        with self.log() as log:
            log.save(run)
            synthetic_audit(log, run, violations=violations)
        return run

    def mark(self, run: Run, mark: str, note: str = "") -> None:
        """Have an operator mark the run's decision."""
        with open_verified(self.home.path / "ledger") as ledger:
            made = next(
                entry
                for entry in ledger.entries()
                if entry.stream_id == run.id and entry.name == "run.decision_made"
            )
        review = Review.of(
            index=made.index,
            entry_hash=made.entry_hash.hex(),
            run=str(run.id),
            mark=mark,
            note=note,
        )
        self._sign(review)

    def admit(self) -> None:
        """Let the data and the model in that these runs were made with."""
        corpus = Corpus.open()
        corpus.admit("data", DATA, "made here")
        corpus.admit("model", MODEL, "made here")
        self._sign(corpus)

    def withdraw(self) -> None:
        """Take the data out again."""
        with self.log() as log:
            corpus: Corpus = log.repository.get(Corpus.id_of())
        corpus.withdraw("data", DATA, "nobody knows any more where it is from")
        self._sign(corpus)

    def _sign(self, made: Any) -> None:
        with self.log() as log:
            log.save(made, author=AuthorKey("operator", self.operator))
