"""The signals of many epochs at once, as aggregates/signals.py reads those of one.

Whatever is unusual is odd, and each epoch is then read by itself: a loss that a watched loop
reports, a zero with a sign, a field of another type.

Trust: as in fields.py.
I/O: none.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from projections.fields import Fields, OddError
from projections.rows import EPOCH_FLOATS

__all__ = ["precedence", "signals"]

_GRADIENTS = "measured.gradients."
_PROBES = f"{_GRADIENTS}probes?.*"
_LAYERS, _ACTIVATIONS = "measured.layers.*", "measured.activations.*"
_MOST = 1 << 31  # units: their sum is exact
Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def signals(fields: Fields) -> Mapping[str, pa.Array]:
    """Return the columns of the table of epochs that are signals."""
    columns = {column: fields.floats(path) for column, path in EPOCH_FLOATS.items()}
    for column in ("train_loss", "train_accuracy", "val_loss"):
        if columns[column].null_count:
            raise OddError
    _check_probes(fields)
    layers, activations = fields.lengths(_LAYERS), fields.lengths(_ACTIVATIONS)
    ranks = _integers(fields, f"{_LAYERS}.rank")
    norms, ratios, whole = (
        _Spans(fields, f"{_LAYERS}.{name}", layers, among=ranks >= 2)
        for name in ("grad_norm", "update_ratio", "epoch_update_ratio")
    )
    units, dead = (
        _summed(_integers(fields, f"{_ACTIVATIONS}.{name}"), activations)
        for name in ("units", "dead_units")
    )
    none = units == 0
    return {
        **columns,
        "gradients_finite": fields.column(f"{_GRADIENTS}finite", "BOOLEAN", nullable=False),
        "max_layer_grad_norm": norms.reduced("max"),
        "min_layer_grad_norm": norms.reduced("min"),
        "update_ratio": ratios.reduced("median"),
        "epoch_update_ratio": whole.reduced("median"),
        "dead_share": pa.array(dead / np.where(none, 1, units), mask=none),
        "sparsity": _Spans(fields, f"{_ACTIVATIONS}.sparsity", activations).reduced("mean"),
        "losses_reported": pa.array(np.zeros(len(layers), np.bool_)),
    }


def precedence(fields: Fields, places: Mapping[str, int]) -> Mapping[str, pa.Array]:
    """Return which of the rules that fired in an epoch goes first."""
    rules = fields.column("evaluations.**key", "VARCHAR", nullable=False).to_pylist()
    found = [places.get(rule) for rule in rules]
    if None in found:
        raise OddError
    return {"precedence": pa.array(found, pa.int32())}


def _check_probes(fields: Fields) -> None:
    """Raise unless probes are pairs of floats, and what belongs to them is there."""
    found, spread = fields.floats(f"{_PROBES}.*"), f"{_GRADIENTS}spread?"
    if found.null_count or (fields.lengths(f"{_PROBES}.*") != 2).any():
        raise OddError
    fields.floats(spread)
    pairs = fields.column(f"{_GRADIENTS}spread_pairs?", "BIGINT", nullable=True)
    if ((fields.lengths(_PROBES) >= 0) & (fields.missing(spread) | ~_valid(pairs))).any():
        raise OddError


class _Spans:
    """The numbers of each epoch, of a field that its layers or activations have."""

    def __init__(
        self,
        fields: Fields,
        path: str,
        lengths: Integers,
        among: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        found = fields.floats(path)
        numbers: Numbers = found.to_numpy(zero_copy_only=False)
        taken = _valid(found) if among is None else _valid(found) & among
        owners = np.repeat(np.arange(len(lengths)), lengths)
        self.numbers = numbers[taken]
        self.counts = np.bincount(owners[taken], minlength=len(lengths))
        self.starts = np.cumsum(self.counts) - self.counts
        if (np.signbit(self.numbers) & (self.numbers == 0)).any():
            raise OddError  # which of two zeros is the larger depends on who is asked first

    def reduced(self, how: str) -> pa.Array:
        """Return one number for each epoch: NaN if it has one that is, NULL if it has none."""
        found = np.full(len(self.counts), np.nan)
        for count in np.unique(self.counts[self.counts > 0]).tolist():
            which = np.flatnonzero(self.counts == count)
            block = self.numbers[self.starts[which][:, None] + np.arange(count)]
            if how == "mean":  # as Python sums floats, which depends on its version
                reduced = np.array([sum(row) / count for row in block.tolist()])
            else:
                block.sort(axis=1)
                reduced = _middle(block) if how == "median" else block[:, _ENDS[how]]
            found[which] = np.where(np.isnan(block).any(axis=1), np.nan, reduced)
        return pa.array(found, mask=self.counts == 0)


_ENDS = {"min": 0, "max": -1}


def _middle(block: Numbers) -> Numbers:
    """Return the median of each sorted row."""
    half = block.shape[1] // 2
    if block.shape[1] % 2:
        return block[:, half]
    with np.errstate(all="ignore"):
        return (block[:, half - 1] + block[:, half]) / 2


def _summed(numbers: Integers, lengths: Integers) -> Integers:
    if (numbers >= _MOST).any() or (numbers <= -_MOST).any():
        raise OddError
    sums: Integers = np.concatenate([[0], np.cumsum(numbers)])
    ends = np.cumsum(lengths)
    found: Integers = sums[ends] - sums[ends - lengths]
    return found


def _integers(fields: Fields, path: str) -> Integers:
    found: Integers = fields.column(path, "BIGINT", nullable=False).to_numpy()
    return found


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    bits = np.frombuffer(column.buffers()[0], np.uint8)  # without Arrow's part that computes
    return np.unpackbits(bits, bitorder="little")[: len(column)].astype(np.bool_)
