"""Work that the page's server hands to the executor's thread, and service calls that are given up in time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from rclpy.node import Node

from efftam_operator.feed import CommandAnswer, Reply


class _Forwarded:
    def __init__(self, target: Any, calls: Calls) -> None:
        self._target, self._calls = target, calls

    def __getattr__(self, name: str) -> Callable[..., None]:
        method = getattr(self._target, name)
        return lambda *given: self._calls.do(partial(method, *given))


class Calls:
    """`do` may be called from any thread, all else in the executor's. ``patience_s``: how long a service call
    may wait for its answer."""

    def __init__(self, node: Node, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._guard = node.create_guard_condition(self._run)
        # Calls that have not been answered: client, future, since when.
        self._questions: list[tuple[Any, Any, float]] = []

    def do(self, what: Callable[[], None]) -> None:
        """Do ``what`` in the executor's thread."""
        self._waiting.append(what)
        self._guard.trigger()

    def forwarded(self, target: Any) -> Any:
        """Has the methods of ``target``; each is done in the executor's thread."""
        return _Forwarded(target, self)

    def ask(self, client: Any, request: Any, use: Callable[[Any], None]) -> None:
        """Call a service; ``use`` gets the answer, unless it takes too long."""
        future = client.call_async(request)
        self._questions.append((client, future, time.monotonic()))

        def done(finished: Any) -> None:
            if not finished.cancelled():
                use(finished.result())

        future.add_done_callback(done)

    def command(self, client: Any, request: Any, reply: Reply, whose: str) -> None:
        """Call a service of ``whose``; ``reply`` gets its answer, or an error if it is not offered."""

        def answered(response: Any) -> None:
            reply(CommandAnswer(response.success, response.message, getattr(response, "selection", 0)))

        if client.service_is_ready():
            self.ask(client, request, answered)
        else:
            reply(CommandAnswer(False, f"{client.srv_name} is not offered; see whether {whose} runs"))

    def waits_for(self, client: Any) -> bool:
        """Return whether a call of this client has not been answered yet."""
        return any(asked is client for asked, _, _ in self._questions)

    def give_up(self) -> list[Any]:
        """Forget the calls that have waited too long; returns their clients."""
        now_s = time.monotonic()
        waiting = [question for question in self._questions if not question[1].done()]
        late = [question for question in waiting if now_s - question[2] >= self._patience_s]
        self._questions = [question for question in waiting if question not in late]
        for client, future, _ in late:
            client.remove_pending_request(future)
            future.cancel()
        return [client for client, _, _ in late]

    def _run(self) -> None:
        if not self._waiting:
            return
        what = self._waiting.popleft()
        # One at a time: the others have their turn also where this one raises.
        if self._waiting:
            self._guard.trigger()
        what()
