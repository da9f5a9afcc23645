"""Errors of the aggregates package; one root, so that callers catch one thing."""


class AggregateError(Exception):
    """Something that must not happen to an aggregate was asked of it."""


class InvariantError(AggregateError):
    """A command came out of order or would contradict what is already recorded."""


class SpecError(AggregateError):
    """A model specification or an edit of it is malformed or cannot be applied."""


class DecisionError(AggregateError):
    """A decision is malformed, out of bounds, or cites what did not fire."""


class RemedyRefused(AggregateError):  # noqa: N818 - an answer on the way, not a failure
    """A decision that cannot be carried out on the run as it is."""


class MeasurementError(AggregateError):
    """The measured part of an epoch lacks a field or holds a value of the wrong kind."""


class WeightsError(AggregateError):
    """Weights that are not safetensors in the canonical form, or not those of the model at hand."""


class ProvocationError(AggregateError):
    """A provocation that no catalogue has, or a configuration without the fault that it claims."""
