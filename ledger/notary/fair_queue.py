"""Shares one worker among many users fairly.

A user whose request took t seconds rests t seconds while others are about. So a user who floods
the lane gets no more than half of its time, and one with small requests finds it free most of
the time; somebody who is alone never rests.

I/O: none of its own.  Units: seconds.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")
_ABOUT = 1.0  # seconds: who asked within them is about


class FairQueue(Generic[T]):
    """Runs requests one at a time, in one thread; users take turns, each in their own order."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: dict[int, deque[tuple[Callable[[], T], asyncio.Future[T]]]] = {}
        self._seen: dict[int, float] = {}
        self._rests_until: dict[int, float] = {}
        self._wake = asyncio.Event()

    async def do(self, uid: int, work: Callable[[], T]) -> T:
        """Return what the work returns or raises, once it is this user's turn."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.setdefault(uid, deque()).append((work, future))
        self._seen[uid] = loop.time()
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Work until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            uid, pause = self._next(loop.time())
            if uid is None:
                self._wake.clear()
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                continue
            work, future = self._take(uid)
            started = loop.time()
            try:
                result = await loop.run_in_executor(self._thread, work)
            except Exception as e:
                if not future.done():
                    future.set_exception(e)
            else:
                if not future.done():
                    future.set_result(result)
            now = loop.time()
            self._seen[uid], self._rests_until[uid] = now, now + (now - started)

    def close(self) -> None:
        """Wait for the work under way."""
        self._thread.shutdown()

    def _next(self, now: float) -> tuple[int | None, float | None]:
        """Return whose turn it is, or for how long to pause."""
        pauses = []
        for uid in self._waiting:  # in the order in which their turns come
            rest = self._rests_until.get(uid, 0.0) - now
            if rest <= 0 or not any(
                other != uid and now - at < _ABOUT for other, at in self._seen.items()
            ):
                return uid, None
            pauses.append(rest)
        return None, min(pauses, default=None)

    def _take(self, uid: int) -> tuple[Callable[[], T], "asyncio.Future[T]"]:
        queue = self._waiting.pop(uid)
        job = queue.popleft()
        if queue:
            self._waiting[uid] = queue  # behind everybody else
        return job
