"""A line with a chain of checkpoints in real git, put on record without a gauntlet for each."""

from pathlib import Path

from gauntlet_lines import NAMES, SELECTION, UNSORTED, Line

from aggregates.improvement.proposal import Proposal
from judge.gauntlet.controller import Controller
from proctor.sample.demo import unified
from proctor.sample.repository import FILES

WORDS = "retrieval/words.py"
SCORING = "retrieval/scoring.py"
CHECK = '''\
"""Leaves with 1 where the best document is not chosen under the cap."""

import sys

from retrieval.component import choose

documents = [{"id": str(n), "title": "", "text": "river " * n + "sea"} for n in range(9)]
sys.exit(choose(documents, "river", cap=1) != ["8"])
'''
Change = tuple[str, str]  # path, and its new text


class Chain(Line):
    """Checkpoints that change nothing but a comment, one of which forgets to sort."""

    def __init__(
        self, path: Path, *, checkpoints: int, culprit: int, names: tuple[str, ...] = NAMES
    ) -> None:
        super().__init__(path, names)
        self.texts = dict(FILES)
        self.ids: list[str] = []
        self.proposals: list[str] = []  # of all but the first
        with self.controller() as controller:
            self.ids.append(controller.line.first)
            for number in range(1, checkpoints):
                self.promote(controller, *self.change(number, culprit))
        self.check = path / "check.py"
        self.check.write_text(CHECK)

    def change(self, number: int, culprit: int) -> Change:
        """Return what this checkpoint changes; comments come in two files by turns."""
        if number == culprit:
            return SELECTION, UNSORTED
        path = (WORDS, SCORING)[number % 2]
        return path, f"{self.texts[path]}# {number}\n"

    def promote(self, controller: Controller, path: str, text: str) -> None:
        """Put a change on the line as if it had passed."""
        place, line = controller.place, controller.line
        diff, base = unified(path, self.texts[path], text), line.head
        tree = place.repository.candidate_tree(base.commit, diff)
        proposal = Proposal.submit(
            line=str(line.id),
            targets={path: 2},
            diff=place.blobs.put(diff),
            diff_bytes=len(diff),
            base=base.commit,
            base_tree=base.tree,
            rationale=f"Change {path}.",
            trigger="operator_request",
            proposer="a test",
            evidence=[{"kind": "note", "text": path}],
        )
        commit = place.repository.commit(tree, base.commit, f"{proposal.id}", self.now)
        found = {"manifest": line.manifest, "reference_set": line.reference_set}
        proposal.record_branch(
            f"infra/{proposal.id}",
            commit=commit,
            tree=tree,
            changes=[],
            tier=2,
            configuration_only=False,
            against=base.commit,
            **found,
        )
        proposal.record_tests(
            passed=True,
            problem=None,
            cases=1,
            missing=[],
            added=[],
            seconds=0.0,
            expected=None,
            output=None,
            isolation=[],
            leftovers=0,
        )
        proposal.evaluate(
            "better",
            level=0.0,
            regressions=[],
            improvements=["one"],
            reasons=["so"],
            comparisons=[],
        )
        checkpoint = line.promote(commit=commit, tree=tree, proposals=[str(proposal.id)], **found)
        proposal.conclude("promoted", stage="conclude", reason="so", checkpoint=checkpoint)
        place.log.save(line, proposal)
        place.repository.advance("main", old=base.commit, new=commit)
        self.texts[path] = text
        self.ids.append(checkpoint)
        self.proposals.append(str(proposal.id))
