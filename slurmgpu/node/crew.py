"""Calls into the driver, off the main loop: a call that does not return costs a thread, not the loop.

One worker does all the work. When it is stuck in a call, it is left there with the GPU that it was at, and another one
goes on with the rest; it ends when the call returns after all. So there are never more threads than GPUs, and one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Batch(Generic[Item, Result]):
    """Items that a worker goes through. The worker alone writes ``results`` and ``at``."""

    def __init__(self, items: list[Item], work: Callable[[Item], Result]) -> None:
        self.items = items
        self.work = work
        self.at = 0
        self.results: list[tuple[Item, Result | Exception]] = []
        self.taken = 0
        self.abandoned = False


class Crew(Generic[Item, Result]):
    """Goes through items in a thread, and past those at which it gets stuck. Called from one thread only."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._inbox: SimpleQueue[_Batch[Item, Result]] = SimpleQueue()
        self._outbox: SimpleQueue[_Batch[Item, Result]] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._stuck: list[_Batch[Item, Result]] = []

    @property
    def stuck(self) -> list[Item]:
        """The items whose work has not returned."""
        return [batch.items[batch.at] for batch in self._stuck]

    def run(self, items: list[Item], work: Callable[[Item], Result]) -> list[tuple[Item, Result | Exception]]:
        """Work through the items; the results of those that were done, and of earlier ones that came late.

        An exception of the work is its result. Items that are stuck are neither waited for nor given again.
        """
        results = self.late()
        stuck = self.stuck
        items = [item for item in items if item not in stuck]
        while items:
            batch = _Batch(items, work)
            if self._worker is None:
                self._worker = self._hire()
            self._inbox.put(batch)
            finished = self._wait(batch)
            results += batch.results[batch.taken :]
            batch.taken = len(batch.results)
            if finished:
                break
            items = items[batch.at + 1 :]
        return results

    def late(self) -> list[tuple[Item, Result | Exception]]:
        """Results that came after their time."""
        results: list[tuple[Item, Result | Exception]] = []
        while True:
            try:
                batch = self._outbox.get_nowait()
            except Empty:
                return results
            results += self._came_back(batch)

    def _came_back(self, batch: _Batch[Item, Result]) -> list[tuple[Item, Result | Exception]]:
        if batch in self._stuck:
            self._stuck.remove(batch)
        fresh = batch.results[batch.taken :]
        batch.taken = len(batch.results)
        return fresh

    def _wait(self, batch: _Batch[Item, Result]) -> bool:
        """Until the batch is done; False when the worker is stuck in it and was left there."""
        before = -1
        late: list[_Batch[Item, Result]] = []
        try:
            while True:
                try:
                    done = self._outbox.get(timeout=self._patience_s)
                except Empty:
                    if batch.at != before:  # slow, not stuck
                        before = batch.at
                        continue
                    batch.abandoned = True
                    self._stuck.append(batch)
                    self._worker = None
                    return False
                if done is batch:
                    return True
                late.append(done)
        finally:
            for item in late:
                self._outbox.put(item)

    def _hire(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="driver", daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        while True:
            batch = self._inbox.get()
            for at, item in enumerate(batch.items):
                batch.at = at
                try:
                    result: Result | Exception = batch.work(item)
                except Exception as error:
                    result = error
                batch.results.append((item, result))
                if batch.abandoned:
                    break
            self._outbox.put(batch)
            if batch.abandoned:
                return
