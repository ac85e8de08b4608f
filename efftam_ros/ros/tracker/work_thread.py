"""The one thread that opens, uses and closes the pipeline, from configure to cleanup."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class WorkThread:
    """Runs what it is given, one after the other.

    GPU libraries keep state per thread: the current device, captured graphs, library handles. A thread of its
    own for every activation would make them anew, in the middle of the first frame.
    """

    def __init__(self, name: str = "efftam_worker") -> None:
        self._work: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Result]) -> Future[Result]:
        """Have ``function`` run after all that was given before. Raises RuntimeError after `end`."""
        if not self._thread.is_alive():
            raise RuntimeError(f"thread {self._thread.name} has ended; start another one")
        done: Future[Result] = Future()
        self._work.put((function, done))
        return done

    def call(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` there and wait; returns what it returns and raises what it raises."""
        return self.submit(function).result()

    def end(self) -> None:
        """Finish what was given and end the thread. Can be called twice."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            function, done = work
            try:
                result = function()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)
