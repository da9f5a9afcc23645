"""Shares one worker among many users fairly.

Jobs that may go together are carried out together: those that wait when the worker becomes free, in
turns of their users. Where some wait by then, those who have just been answered may ask once more
first: for a quarter of the time that their group took. Who is alone waits for nobody.

A user on whose jobs t seconds were spent, and on others' in the same group o seconds, rests t - o
seconds while others are about. So a user who floods the lane gets no more than half of its time,
and one with small requests finds it free most of the time; somebody who is alone never rests. Who
rests may come along in a group that somebody else begins, with as much as the others bring.

I/O: none of its own.  Units: seconds, bytes.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

J = TypeVar("J")
T = TypeVar("T")
_ABOUT = 1.0  # seconds: who asked within them is about
_GROUP = 256 << 10  # bytes of the jobs that are carried out together: 64 small ones
_COMPANY = 0.25  # of a group's time: for those who were in it to ask again
_LEAST = 4 << 10  # bytes that a job counts for at least: beginning one takes time as well


@dataclass(frozen=True)
class _Waiting(Generic[J, T]):
    uid: int
    job: J
    size: int | None  # bytes; None: nothing may go with it
    future: "asyncio.Future[T]"


class FairQueue(Generic[J, T]):
    """Has jobs carried out in one thread, in groups; users take turns, each in their own order."""

    def __init__(self, name: str, work: Callable[[Sequence[J]], Sequence[T]]) -> None:
        """`work` returns what each of some jobs comes to; what it raises is raised for each."""
        self._work = work
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: dict[int, deque[_Waiting[J, T]]] = {}
        self._seen: dict[int, float] = {}
        self._rests_until: dict[int, float] = {}
        self._arrived = 0
        self._wake = asyncio.Event()

    async def do(self, uid: int, job: J, *, size: int | None = None) -> T:
        """Return what the job comes to; one with a size (bytes) may go together with others."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if size is not None:
            size = max(size, _LEAST)
        self._waiting.setdefault(uid, deque()).append(_Waiting(uid, job, size, future))
        self._seen[uid] = loop.time()
        self._arrived += 1
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Work until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            uid, pause = self._next(loop.time())
            if uid is None:
                await self._wait(self._arrived + 1, pause)
                continue
            started = loop.time()
            group = self._group(uid, started)
            jobs = [each.job for each in group]
            results: Sequence[T] | Exception
            try:
                results = await loop.run_in_executor(self._thread, self._work, jobs)
            except Exception as e:
                results = e
            for number, each in enumerate(group):
                if each.future.done():  # who asked is gone
                    continue
                if isinstance(results, Exception):
                    each.future.set_exception(results)
                else:
                    each.future.set_result(results[number])
            now = loop.time()
            self._rest(group, started, now)
            if self._waiting and group[0].size is not None:
                await self._wait(self._arrived + len(group), _COMPANY * (now - started))

    async def _wait(self, arrived: int, seconds: float | None) -> None:
        """Wait for some time, at most until so many jobs have arrived."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._arrived < arrived:
                    self._wake.clear()
                    await self._wake.wait()

    def close(self) -> None:
        """Wait for the work under way."""
        self._thread.shutdown()

    def _next(self, now: float) -> tuple[int | None, float | None]:
        """Return whose turn it is, or for how long to pause."""
        pauses = []
        for uid in self._waiting:  # in the order in which their turns come
            rest = self._rests(uid, now)
            if rest <= 0:
                return uid, None
            pauses.append(rest)
        return None, min(pauses, default=None)

    def _rests(self, uid: int, now: float) -> float:
        """Return for how long a user has to rest."""
        rest = self._rests_until.get(uid, 0.0) - now
        if rest > 0 and any(other != uid and now - at < _ABOUT for other, at in self._seen.items()):
            return rest
        return 0.0

    def _group(self, first: int, now: float) -> list[_Waiting[J, T]]:
        """Take a user's next job and, in turns, those that may go with it."""
        group = [self._take(first)]
        if group[0].size is None:
            return group
        sizes = _sizes(group)
        who_rest = {uid for uid in self._waiting if self._rests(uid, now)}
        before = 0
        while before < len(group):
            before = len(group)
            for uid in tuple(self._waiting):
                size = self._waiting[uid][0].size
                if size is None or sizes.total() + size > _GROUP:
                    continue
                rest = sum(sizes[each] for each in who_rest) + size
                if uid not in who_rest or 2 * rest <= sizes.total() + size:
                    group.append(self._take(uid))
                    sizes[uid] += size
        return group

    def _take(self, uid: int) -> _Waiting[J, T]:
        queue = self._waiting.pop(uid)
        job = queue.popleft()
        if queue:
            self._waiting[uid] = queue  # behind everybody else
        return job

    def _rest(self, group: list[_Waiting[J, T]], started: float, now: float) -> None:
        sizes = _sizes(group)
        for uid, size in sizes.items():
            share = size / sizes.total()
            self._seen[uid] = now
            self._rests_until[uid] = now + (now - started) * max(2 * share - 1, 0)


def _sizes(group: list[_Waiting[J, T]]) -> Counter[int]:
    """Return how many bytes of a group are whose."""
    sizes = Counter[int]()
    for each in group:
        sizes[each.uid] += each.size or _LEAST
    return sizes
