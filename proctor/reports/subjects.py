"""What a report is about, and the entries of the ledger that it rests on.

The same entries are chosen from a ledger when a report is written, and from the report's own proofs
when it is verified: what follows from them is the report.

Trust: entries are verified, or proved; what they say is hostile.
I/O: none.
Not covered: entries that are left out at the end of a stream, such as a later audit.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aggregates.comparison import training_of
from aggregates.improvement.evolution import Evolution
from aggregates.registry import REGISTRY
from aggregates.transcript import Transcript
from ledger.handover.proof_files import MOST_ENTRIES
from ledger.handover.selection import LAST, choose
from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import ProctorError
from proctor.home import find_named, find_run
from proctor.runs.replay import called_by

KINDS = ("run", "campaign", "comparison", "line")  # in the order in which `latest` looks for one
BEGINNINGS = {f"{kind}.started": kind for kind in KINDS[:3]} | {"line.opened": "line"}
_EDGES = ("run.started", "run.forked", "run.provoked", "run.restart_scheduled", "run.ended")
_ENDING = (*_EDGES, "run.decision_made", f"{LAST}run.epoch_measured")
_STANDING = ("line.opened", "checkpoint.promoted", "checkpoint.adopted", "checkpoint.rolled_back")
_CURVES = (
    *_EDGES,
    "run.decision_made",
    "run.epoch_measured",
    "run.remedy_applied",
    "run.rules_evaluated",
)
READ = {  # what has to be read of them
    *BEGINNINGS,
    "audit.started",
    "bisection.opened",
    "campaign.attempt_started",
    "checkpoint.adopted",
    "checkpoint.promoted",
    "comparison.run_allotted",
    "corpus.opened",
    "credit.started",
    "evolution.round_ended",
    "proposal.submitted",
    "run.forked",
}
_Wanted = dict[UUID, Collection[str] | None]  # by stream: names of events, None for all


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    kind: str
    id: str


@dataclass
class Overview:
    """How the streams of a ledger hang together."""

    subjects: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    parents: dict[str, str | None] = field(default_factory=dict)  # of runs
    called: dict[str, str] = field(default_factory=dict)  # names of runs
    forks: dict[str, str] = field(default_factory=dict)  # the run that each goes on from
    aside: set[str] = field(default_factory=set)  # forks that are no resumed loop
    labels: dict[str, str | None] = field(default_factory=dict)  # checkpoints of runs
    audits: dict[str, list[UUID]] = field(default_factory=dict)  # by run
    credits: dict[str, list[UUID]] = field(default_factory=dict)  # by run
    members: dict[str, list[str]] = field(default_factory=dict)  # runs of campaign or comparison
    trainings: dict[str, set[str]] = field(default_factory=dict)  # digests, by stream
    campaigns: dict[str, list[str]] = field(default_factory=dict)  # by run
    says: dict[str, list[str]] = field(default_factory=dict)  # runs, by the campaign they record
    of_line: dict[str, list[UUID]] = field(default_factory=dict)  # proposals and bisections
    rounds: dict[str, int] = field(default_factory=dict)  # how many, by evolution
    checkpoints: dict[str, set[str]] = field(default_factory=dict)  # by line
    corpora: list[UUID] = field(default_factory=list)  # what may be learned from
    tasks: dict[str, str] = field(default_factory=dict)  # of runs: configuration and data

    @classmethod
    def of(cls, entries: Iterable[VerifiedEntry]) -> "Overview":
        """Return what entries tell; those that cannot be read tell nothing."""
        found = cls()
        for entry in entries:
            if entry.name in READ:
                body = REGISTRY.readable(entry.name, entry.body)
                if body is not None:
                    found._add(entry, body)
        return found

    def _add(self, entry: VerifiedEntry, body: Mapping[str, Any]) -> None:
        stream = str(entry.stream_id)
        kind = BEGINNINGS.get(entry.name)
        if kind is not None and entry.stream_version == 1:
            self.subjects[kind].append(stream)
        if entry.name in ("campaign.started", "comparison.started", "run.started"):
            self.trainings[stream] = _trainings(body)
        if entry.name == "run.started":
            self.parents[stream] = body.get("parent_run")
            if entry.stream_version == 1:
                self.called[stream] = called_by(body["config"])
            self.says.setdefault(str(body.get("campaign")), []).append(stream)
            self.labels[stream] = body.get("checkpoint")
            config = {**body["config"], "seed": None}
            self.tasks[stream] = _digest([config, body["data"]])
        elif entry.name == "run.forked":
            self.forks[stream] = str(body.get("parent"))
            if body.get("state"):
                self.aside.add(stream)  # as find_recorded() has it
        elif entry.name == "corpus.opened":
            self.corpora.append(entry.stream_id)
        elif entry.name == "audit.started":
            self.audits.setdefault(str(body.get("run")), []).append(entry.stream_id)
        elif entry.name == "credit.started":
            self.credits.setdefault(str(body.get("run")), []).append(entry.stream_id)
        elif entry.name in ("campaign.attempt_started", "comparison.run_allotted"):
            self.members.setdefault(stream, []).append(str(body.get("run")))
            if entry.name == "campaign.attempt_started":
                self.campaigns.setdefault(str(body.get("run")), []).append(stream)
        elif entry.name == "evolution.round_ended":
            self.rounds[stream] = self.rounds.get(stream, 0) + 1
        elif entry.name in ("proposal.submitted", "bisection.opened"):
            self.of_line.setdefault(str(body.get("line")), []).append(entry.stream_id)
        elif "checkpoint" in body:
            self.checkpoints.setdefault(stream, set()).add(str(body["checkpoint"]))

    def find(self, name: str) -> Subject:
        """Return the subject that `name` means: an id, its start, or `latest`.

        The latest is the newest run that is no fork, as find_verified_run() has it; in a ledger
        without runs the newest campaign, and so on.
        """
        if name == "latest":
            for kind in KINDS:
                if known := sorted(self.subjects[kind], key=lambda each: each not in self.aside):
                    return Subject(kind, known[-1])
            raise ProctorError("the ledger has nothing to report; `proctor run` makes a run")
        kinds = {each: kind for kind in KINDS for each in self.subjects[kind]}
        if name in self.called.values() and not any(
            each.startswith(name.lower()) for each in kinds
        ):
            runs = {UUID(each): told for each, told in self.called.items()}
            last = sorted(runs, key=lambda each: str(each) not in self.aside)
            return Subject("run", str(find_run(last, name, runs)))
        found = find_named(
            kinds,
            name,
            noun="run, campaign, comparison or line",
            see="`proctor runs` and `proctor log` list them",
            names=self.called.values(),
        )
        return Subject(kinds[found], found)

    def family(self, run: str) -> list[str]:
        """Return the runs that a run descends from, nearest first, and those that go on from it."""
        found: list[str] = []
        parents = {**self.parents, **self.forks}
        parent = parents.get(run)
        while parent is not None and parent in parents and parent not in found:
            found.append(parent)
            parent = parents[parent]
        reached = {run}
        for each, its in parents.items():  # parents come before those who go on from them
            if its in reached and each not in reached:
                reached.add(each)
                found.append(each)
        return [each for each in found if each != run]

    def not_here(self, subject: Subject) -> dict[str, str]:
        """Return the runs that a report should rest on and no entry starts, by what follows them.

        Their ledger does not have them, or who made the report left them out.
        """
        rests_on = [UUID(subject.id), *self.wanted(subject)]
        runs = (str(stream) for stream in rests_on if subject.kind in ("run", "line"))
        named = {run: self.forks.get(run) or self.parents.get(run) for run in runs}
        return {run: it for run, it in named.items() if it and it not in self.parents}

    def runs_of(self, subject: Subject) -> list[str]:
        """Return the runs whose verdicts a page about a subject shows first."""
        if subject.kind == "run":
            return [subject.id]
        if subject.kind == "line":
            return self._runs_under(subject.id)
        return self.members.get(subject.id, [])

    def choose(
        self, entries: Iterable[VerifiedEntry], subject: Subject, *, origin: str
    ) -> list[VerifiedEntry]:
        """Return the entries that a report about a subject rests on; raises ProctorError."""
        chosen = choose(entries, self.wanted(subject), origin=origin)
        if len(chosen) > MOST_ENTRIES:
            how = "see `proctor serve`" if subject.kind == "line" else "report its runs one by one"
            raise ProctorError(
                f"a report about {subject.kind} {subject.id} would rest on {len(chosen)} entries; "
                f"the most is {MOST_ENTRIES}: {how}"
            )
        return chosen

    def wanted(self, subject: Subject) -> _Wanted:
        """Return the streams that a report about a subject rests on, beside the authority's."""
        wanted: _Wanted = {}
        {
            "run": self._want_run,
            "campaign": self._want_campaign,
            "comparison": self._want_comparison,
            "line": self._want_line,
        }[subject.kind](subject.id, wanted)
        return wanted

    def _want_run(self, run: str, wanted: _Wanted) -> None:
        measured = self.credits.get(run, ())
        for each in self.family(run):
            of_credit = measured and self.forks.get(each) == run
            self._want_verdict(each, wanted, _ENDING if of_credit else _EDGES)
        if measured:  # the same may have been asked of a run that was trained once more
            for other in self.credits.keys() & self.parents.keys() - {run}:
                if self.trainings[other] & self.trainings[run]:
                    self._want_credits(other, wanted)
        self._want_verdict(run, wanted, None)
        wanted |= dict.fromkeys(measured)

    def _want_credits(self, run: str, wanted: _Wanted) -> None:
        """Want what was measured of the decisions of another run, with its forks."""
        wanted |= dict.fromkeys(self.credits[run])
        for fork, parent in self.forks.items():
            if parent == run:
                self._want_verdict(fork, wanted, _ENDING)
        self._want_verdict(run, wanted, _CURVES)

    def _want_campaign(self, campaign: str, wanted: _Wanted) -> None:
        wanted |= {UUID(run): _EDGES for run in self.says.get(campaign, ())}
        self._want_alike(campaign, wanted)
        for run in self.members.get(campaign, ()):
            self._want_verdict(run, wanted, _CURVES)

    def _want_comparison(self, comparison: str, wanted: _Wanted) -> None:
        self._want_alike(comparison, wanted)
        for run in self.members.get(comparison, ()):
            self._want_verdict(run, wanted, _EDGES)

    def _want_alike(self, subject: str, wanted: _Wanted) -> None:
        """Want a subject, and what may be a further draw of the same."""
        asked = self.trainings.get(subject, set())
        for stream in (each for each, its in self.trainings.items() if its & asked):
            wanted[UUID(stream)] = _EDGES if stream in self.parents else None
        drawn = {stream for stream in self.parents if UUID(stream) in wanted}
        own = {*self.members.get(subject, ()), *drawn}  # and all that name one of these runs
        wanted |= {UUID(each): None for each, its in self.members.items() if own & set(its)}
        wanted[UUID(subject)] = None

    def _want_line(self, line: str, wanted: _Wanted) -> None:
        name = UUID(line)
        evolution = Evolution.id_of(name)
        wanted |= dict.fromkeys((name, evolution))
        for number in range(1, self.rounds.get(str(evolution), 0) + 1):
            wanted[Transcript.id_of(Evolution.round_id(name, number))] = None
        for stream in self.of_line.get(line, ()):
            wanted[stream] = None
        under = set(self._runs_under(line))
        # Whether a run is tainted depends on those that it has something of, on other lines and on
        # what was withdrawn; and whether it is a success, on the first runs of its task.
        tasks = {self.tasks[run] for run in under}
        alike = {run for run, task in self.tasks.items() if task in tasks and self.labels[run]}
        for run in self._with_sources(under | alike, wanted):
            self._want_verdict(run, wanted, _ENDING)
        for other in self.subjects["line"]:
            wanted.setdefault(UUID(other), _STANDING)
        wanted |= dict.fromkeys(self.corpora)

    def _with_sources(self, runs: Collection[str], wanted: _Wanted) -> set[str]:
        """Return runs and those that they have something of, and want the campaigns between."""
        found, waiting = set[str](), [*runs]
        while waiting:
            run = waiting.pop()
            if run not in self.parents or run in found:
                continue
            found.add(run)
            waiting += [each for each in (self.parents[run], self.forks.get(run)) if each]
            for campaign in self.campaigns.get(run, ()):
                wanted[UUID(campaign)] = None
                waiting += self.members[campaign]
        return found

    def _runs_under(self, line: str) -> list[str]:
        """Return the runs under a line's checkpoints, and those that go on from them."""
        checkpoints = self.checkpoints.get(line, set())
        under = [run for run, label in self.labels.items() if label in checkpoints]
        for run, parent in self.parents.items():
            if parent in under and run not in under:
                under.append(run)
        return under

    def _want_verdict(self, run: str, wanted: _Wanted, names: Collection[str] | None) -> None:
        """Want a run, or some of its events, with all audits and calls of it."""
        try:
            stream = UUID(run)
        except ValueError:  # an event names what is no run
            return
        wanted[stream] = names
        wanted[Transcript.id_of(stream)] = None
        for audit in self.audits.get(run, ()):
            wanted[audit] = None


def _trainings(body: Mapping[str, Any]) -> set[str]:
    """Return a digest of each training that a run, a campaign or a comparison is about."""
    told = body["conditions"].values() if "conditions" in body else [body["config"]]
    return {_digest(training_of(config)) for config in told if isinstance(config, dict)}


def _digest(value: object) -> str:
    """Return a digest of what an entry says, whatever that is."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
