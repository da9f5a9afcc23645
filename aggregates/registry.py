"""The closed list of event names: what may be stored, and which class reads it back.

docs/reference/events.md lists the fields. What an aggregate's events are called, and what lifts
earlier versions of them, its declarations say; see aggregates/events.py.
"""

from aggregates.audit import Audit
from aggregates.campaign import Campaign
from aggregates.comparison import Comparison
from aggregates.credit import Credit
from aggregates.curation.corpus import Corpus
from aggregates.curation.export import Export
from aggregates.events import register
from aggregates.improvement.advice import Advice
from aggregates.improvement.bisection import Bisection
from aggregates.improvement.evolution import Evolution
from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from aggregates.review import Review
from aggregates.run import Run
from aggregates.transcript import Transcript
from ledger.mapper import EventRegistry

REGISTRY = EventRegistry()
REGISTRY.register("run.started", Run.Started, aggregate=Run)
REGISTRY.register("run.provoked", Run.Provoked)
REGISTRY.register("run.forked", Run.Forked)
REGISTRY.register("run.epoch_measured", Run.EpochMeasured)
REGISTRY.register("run.rules_evaluated", Run.RulesEvaluated)
REGISTRY.register("run.decision_made", Run.DecisionMade)
REGISTRY.register("run.remedy_applied", Run.RemedyApplied)
REGISTRY.register("run.remedy_refused", Run.RemedyRefused)
REGISTRY.register("run.restart_scheduled", Run.RestartScheduled)
REGISTRY.register("run.weights_saved", Run.WeightsSaved)
REGISTRY.register("run.snapshot_saved", Run.SnapshotSaved)
REGISTRY.register("run.ended", Run.Ended)
register(REGISTRY, Campaign, Comparison, Credit, Audit, Review)
REGISTRY.register("transcript.started", Transcript.Started, aggregate=Transcript)
REGISTRY.register("transcript.call_made", Transcript.CallMade)
REGISTRY.register("transcript.vote_counted", Transcript.VoteCounted)
REGISTRY.register("transcript.proposal_reviewed", Transcript.ProposalReviewed)
register(REGISTRY, Proposal, Line, Evolution, Advice, Bisection, Corpus, Export)
