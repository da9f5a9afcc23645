"""What the controller's parts share: the log, the repository, and the contents of a commit.

I/O: the log, the repository and the folder that are passed in.  Units: POSIX seconds.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random, SystemRandom
from typing import Any
from uuid import UUID

from eventsourcing.domain import Aggregate

from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from judge.approvals import LEDGER, TEXT_SHOWN, ledger_digest
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.errors import GauntletError, ManifestError, RepositoryError
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import PATH, Manifest, parse_manifest
from judge.gauntlet.shown import applied, digest_of_shown, facts
from judge.gauntlet.tasks.benchmark import Others
from judge.gauntlet.tasks.reference_set import ReferenceSet, load
from judge.gauntlet.tasks.scoring import SCORERS, Scorer
from ledger.application import LedgerApplication
from ledger.blobs import Blobs
from ledger.entries import AuthorKey
from ledger.errors import ConflictError
from ledger.verification.authority import Authority
from monitor.code import decides_a_run, hash_files

SCRATCH = "scratch"  # below the folder; emptied whenever somebody begins to work
_TRIES = 20


@dataclass(frozen=True, kw_only=True)
class Workplace:
    """One line, and all that is needed to judge proposals on it."""

    log: LedgerApplication
    repository: Repository
    branch: str = "main"
    blobs: Blobs
    folder: Path  # resolved
    clock: Callable[[], int]  # s
    authority: Callable[[], Authority]  # what stands in the ledger now
    tell: Callable[[str, str], None] = lambda _id, _what: None  # proposal's id, what is done
    scorers: Mapping[str, Scorer] = field(default_factory=lambda: SCORERS)  # of reference tasks
    settings: ComparisonSettings = field(default_factory=ComparisonSettings)
    others: Others | None = None  # processes that ask arms; None: this one does
    random: Random = field(default_factory=SystemRandom)  # draws seeds and orders, all recorded
    _sets: dict[str, ReferenceSet] = field(default_factory=dict)  # by commit, which never changes
    _manifests: dict[str, Manifest] = field(default_factory=dict)  # by commit, too

    @cached_property
    def line_id(self) -> UUID:
        """The line's stream: of the branch as it was when this was first asked for."""
        return Line.id_of(self.repository.root(self.branch), self.branch)

    @cached_property
    def ledger(self) -> str:
        """The digest that names this ledger in an approval; a rotation does not change it."""
        return ledger_digest(self.authority().ledger_vkey_at(0))

    def line(self) -> Line:
        """Return the line as it is recorded; put on record now, where it is, if it is not."""
        line_id = self.line_id
        if line_id not in self.log.repository:
            self._verify_new()
            commit = self.repository.head(self.branch)
            root = self.repository.root(self.branch)
            self.log.save(Line.open(root=root, branch=self.branch, **self.contents(commit)))
        found: Line = self.log.repository.get(line_id)
        return found

    def _verify_new(self) -> None:
        """Raise RepositoryError where the branch is not new, but was moved off another line.

        A line is named by its branch's first commit, so that a branch which is moved to another
        history would be a line without a past, and nobody would have approved where it is.
        """
        for each in self.log.notifications("line.opened"):
            other = self.log.readable(UUID(str(each.originator_id)), Line)
            if other is None:
                continue
            if other.branch == self.branch and self.repository.holds(other.head.commit):
                raise RepositoryError(
                    f"branch {self.branch!r} has another first commit than line {other.id}, whose "
                    f"checkpoint {other.head.commit[:12]} is in this repository: it was moved to "
                    "another history. Move it back; or, if this is intended, begin the line on "
                    "another branch or with another --home"
                )

    def proposal(self, proposal_id: UUID) -> Proposal:
        """Return a proposal of this line as it is recorded."""
        if proposal_id in self.log.repository:
            found: Any = self.log.repository.get(proposal_id)
            if isinstance(found, Proposal) and found.line == str(self.line_id):
                return found
        raise GauntletError(f"proposal {proposal_id} not found on this line")

    def recorded(self, names: Sequence[str]) -> Iterator[Any]:
        """Return the events of these names, of whatever line, in the ledger's order."""
        return map(self.log.mapper.to_domain_event, self.log.notifications(*names))

    def save(
        self, make: Callable[[], Sequence[Aggregate]], *, author: AuthorKey | None = None
    ) -> None:
        """Save what `make` returns in one batch; it is asked again where somebody was quicker."""
        for _ in range(_TRIES):
            try:
                self.log.save(*make(), author=author)
            except ConflictError:
                continue
            return
        raise GauntletError("other processes keep appending to this line; try again later")

    def change_line(
        self, change: Callable[[Line], object], *, author: AuthorKey | None = None
    ) -> Line:
        """Change the line as it is recorded, save it, and return it."""

        def make() -> list[Line]:
            line = self.line()
            change(line)
            return [line]

        self.save(make, author=author)
        return self.line()

    def alarm(
        self, kind: str, detail: str, *, tasks: Sequence[str] = (), commit: str | None = None
    ) -> None:
        """Raise an alarm about a commit, by default the active checkpoint's."""
        self.change_line(
            lambda line: line.alarm(
                commit=commit or line.head.commit, kind=kind, detail=detail, tasks=tasks
            )
        )

    def manifest(self, commit: str) -> Manifest:
        """Return the manifest in a commit; raise ManifestError if it is another line's."""
        if commit not in self._manifests:
            manifest = parse_manifest(self.repository.read(commit, PATH))
            if manifest.line != self.branch:
                raise ManifestError(
                    f"{PATH}: the line is {manifest.line!r}, but the requested branch is "
                    f"{self.branch!r}"
                )
            self._manifests[commit] = manifest.located(self.repository.path)
        return self._manifests[commit]

    def reference_set(self, commit: str) -> ReferenceSet:
        """Return the reference set in a commit."""
        if commit not in self._sets:
            path = self.manifest(commit).reference_set
            self._sets[commit] = load(
                self.repository, commit=commit, path=path, scorers=self.scorers
            )
        return self._sets[commit]

    def set_in(self, folder: Path) -> ReferenceSet:
        """Return the reference set in a folder outside of the repository."""
        return load(folder, scorers=self.scorers)

    def contents(self, commit: str) -> dict[str, str]:
        """Return what a checkpoint of a commit records; `code` as runs record it."""
        return {
            "commit": commit,
            "tree": self.repository.tree_of(commit),
            "manifest": self.manifest(commit).sha256,
            "reference_set": self.reference_set(commit).sha256,
            "code": hash_files(self.repository.contents(commit, keep=decides_a_run)),
        }

    def line_subjects(self, base: str) -> dict[str, str]:
        """Return what a word on the line itself has to be about, at one of its checkpoints."""
        return {
            "base": base,
            "base_tree": self.repository.tree_of(base),
            LEDGER: self.ledger,
            "manifest": self.manifest(base).sha256,
            "reference_set": self.reference_set(base).sha256,
        }

    def subjects(self, proposal: Proposal) -> dict[str, str]:
        """Return what an operator's word on a proposal has to be about."""
        changes = applied(self.repository, self.blobs, proposal)
        return self.line_subjects(proposal.base) | {
            "base_tree": proposal.base_tree,
            "diff": proposal.diff,
            TEXT_SHOWN: digest_of_shown(facts(proposal), changes=changes),
        }

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Give a folder that is gone afterwards, at the latest when the next process begins."""
        base = self.folder / SCRATCH
        base.mkdir(parents=True, exist_ok=True)
        # After an error another process may still be at work there: its word is the first one.
        with tempfile.TemporaryDirectory(dir=base, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def operators(self) -> list[str]:
        """Return the vkeys of the operators whose keys are in force."""
        keys = self.authority().keys
        return [key.vkey for key in keys if key.role == "operator" and key.ended is None]
