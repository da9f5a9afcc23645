"""The closed list of event names: what may be stored, and which class reads it back.

docs/reference/events.md lists the fields. What an aggregate's events are called, and what lifts
earlier versions of them, its declarations say; see aggregates/events.py.
"""

from aggregates.annotation import Annotation
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
register(REGISTRY, Run, Campaign, Comparison, Credit, Audit, Review, Transcript, Annotation)
register(REGISTRY, Proposal, Line, Evolution, Advice, Bisection, Corpus, Export)
