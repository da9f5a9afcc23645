"""What the rules said of every epoch of a run, kept as bytes but for the latest.

A run of many epochs is asked about the last few. As objects, an epoch's evaluations take 2 kB; as
bytes, a tenth.

I/O: none.
"""

from collections.abc import Iterator, Mapping

import msgspec

from aggregates.rules import RuleEvaluation

_LATEST = 8  # epochs that are kept as objects too
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Evaluations(Mapping[int, dict[str, RuleEvaluation]]):
    """The evaluations of each rule, by epoch."""

    def __init__(self) -> None:
        self._packed: dict[int, bytes] = {}
        self._latest: dict[int, dict[str, RuleEvaluation]] = {}

    def __repr__(self) -> str:
        return repr(dict(self))

    def __setitem__(self, epoch: int, found: dict[str, RuleEvaluation]) -> None:
        self._packed[epoch] = _encode(
            [(rule, *vars(each).values()) for rule, each in found.items()]
        )
        self._keep(epoch, found)

    def __getitem__(self, epoch: int) -> dict[str, RuleEvaluation]:
        """Return what the rules said of an epoch; raises KeyError for one without evaluations."""
        found = self._latest.get(epoch)
        if found is None:
            told = _decode(self._packed[epoch])
            found = {rule: RuleEvaluation(*values) for rule, *values in told}
            self._keep(epoch, found)
        return found

    def __contains__(self, epoch: object) -> bool:
        return epoch in self._packed

    def __iter__(self) -> Iterator[int]:
        """Yield the epochs in the order in which they came."""
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def _keep(self, epoch: int, found: dict[str, RuleEvaluation]) -> None:
        self._latest[epoch] = found
        if len(self._latest) > _LATEST:
            del self._latest[next(iter(self._latest))]
