"""The filters of an export, beyond the conditions that every example must meet.

I/O: none.  Units: accuracies and scores from 0 to 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from aggregates.curation.export import KINDS
from judge.errors import CurationError

MARGIN = 0.02  # of validation accuracy, between chosen and rejected
_CONDITIONS = {  # by the filter that asks for it
    "max_temperature": "({run}.asked = 0 OR {run}.temperature <= ?)",
    "decided_by": "LIST_HAS_ALL(?, {answer}.authors)",
    "dataset": "{run}.dataset = ?",
    "min_process_score": "{run}.process_score >= ?",
    "min_accuracy": "{run}.validation_accuracy >= ?",
    "provoked": "({run}.provocation IS NOT NULL) = ?",
    "gold": "{answer}.gold = ?",
}


@dataclass(frozen=True, kw_only=True)
class Query:
    """Conditions on runs and answers; what is None or empty asks for nothing."""

    kind: str  # one of aggregates.curation.export.KINDS
    max_temperature: float | None = None  # of models that were asked
    decided_by: tuple[str, ...] = ()  # authors; every decision of an answer is one of theirs
    dataset: str | None = None
    min_process_score: float | None = None
    min_accuracy: float | None = None  # on the validation set, as the judge measured it
    provoked: bool | None = None  # whether the run had a fault put in on purpose
    gold: bool = False  # only answers with a decision that people marked so
    as_it_was: bool = False  # as of an earlier index, with what was excluded since; on record only
    margin: float = MARGIN  # of preferences, at least; noise is always exceeded as well
    measured: bool = False  # preferences by measured credit: intervals in place of the margin
    false_discoveries: float | None = None  # of measured: expected share of pairs due to chance

    def __post_init__(self) -> None:
        """Refuse what cannot be met, by its name."""
        if self.kind not in KINDS:
            raise CurationError(
                f"the kind of an export must be {' or '.join(KINDS)}, not {self.kind!r}"
            )
        for name in (
            "max_temperature",
            "min_process_score",
            "min_accuracy",
            "margin",
            "false_discoveries",
        ):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise CurationError(f"{name} must be a finite number of at least 0, not {value!r}")
        if self.measured and (self.kind != "preferences" or self.margin != MARGIN):
            raise CurationError(
                "measured works for preferences only, and without a margin: a pair is taken if the "
                "interval of its measured difference excludes zero"
            )
        if self.false_discoveries is not None and not self.measured:
            raise CurationError("false_discoveries works for measured preferences only")
        told = {key for key in self.to_dict() if key not in ("as_it_was", "decided_by")}
        if self.kind == "proposals" and told:
            raise CurationError(
                f"{', '.join(sorted(told))}: proposals can be chosen by decided_by alone, because "
                "the other filters are about runs"
            )

    @classmethod
    def of(cls, kind: str, told: Mapping[str, Any]) -> "Query":
        """Return the query that to_dict() tells so; raises CurationError where there is none."""
        try:
            words: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in told.items()
            }
            query = cls(kind=kind, **words)
        except TypeError as error:
            raise CurationError(f"{told!r:.200} is not a query: {error}") from error
        if query.to_dict() != dict(told):
            raise CurationError(f"{told!r:.200} is not a query in the form that exports record")
        return query

    def to_dict(self) -> dict[str, Any]:
        """Return what is asked, as the seal records it: what is not asked is left out."""
        told: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            margin = self.kind == "preferences" and not self.measured
            if each.name == "kind" or (each.name == "margin" and not margin):
                continue
            if value is None or value == () or (value is False and each.name != "provoked"):
                continue
            told[each.name] = sorted(set(value)) if isinstance(value, tuple) else value
            if isinstance(value, int) and not isinstance(value, bool):
                told[each.name] = float(value)  # 1 and 1.0 are one question
        return told

    def of_rejected(self) -> "Query":
        """Return what is asked of the worse answer: how it came about, and not that it is good."""
        return replace(self, min_process_score=None, min_accuracy=None, gold=False)

    def conditions(self, run: str, answer: str) -> tuple[str, list[Any]]:
        """Return SQL over run_forces AS `run` and curated_answers AS `answer`, with parameters."""
        asked = {name: value for name, value in self.to_dict().items() if name in _CONDITIONS}
        parts = (_CONDITIONS[name].format(run=run, answer=answer) for name in asked)
        return "".join(f" AND {sql}" for sql in parts), [*asked.values()]
