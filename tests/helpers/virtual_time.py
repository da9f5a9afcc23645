"""An event loop with a time of its own: it passes where all wait for it, and where it is spent.

What is run in an executor is done at once. So what a test finds does not depend on the machine.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Skipping(self.spend))

    def time(self) -> float:
        return self._now

    def spend(self, seconds: float) -> None:
        self._now += seconds

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        result = func(*args)

        async def done() -> Any:
            return result

        return self.create_task(done())


class _Skipping(selectors.SelectSelector):
    """Spends the time that it would wait."""

    def __init__(self, spend: Callable[[float], None]) -> None:
        super().__init__()
        self._spend = spend

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen"
        self._spend(timeout)
        return super().select(0)


def run_virtually(main: Callable[[Callable[[float], None]], Coroutine[Any, Any, T]]) -> T:
    """Run what is given a way to spend time (s); return what it comes to."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(loop.spend))
