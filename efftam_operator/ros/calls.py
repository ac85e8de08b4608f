"""Runs functions in the executor's thread, and makes service calls that end after a time limit."""

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
    """Runs functions in the executor's thread, and makes service calls with a time limit.

    `do` and the methods of a `forwarded` object may be called from any thread, all other methods only in the
    executor's thread. ``patience_s``: longest wait for the answer of a service, s.
    """

    def __init__(self, node: Node, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._guard = node.create_guard_condition(self._run)
        # Service calls without an answer: client, future, monotonic time of the call.
        self._questions: list[tuple[Any, Any, float]] = []

    def do(self, what: Callable[[], None]) -> None:
        """Call ``what`` in the executor's thread, without waiting for it."""
        self._waiting.append(what)
        self._guard.trigger()

    def forwarded(self, target: Any) -> Any:
        """Return an object with the methods of ``target``, each of which runs in the executor's thread.

        A call returns None at once.
        """
        return _Forwarded(target, self)

    def ask(self, client: Any, request: Any, use: Callable[[Any], None]) -> None:
        """Call a service; ``use`` receives the response, unless `give_up` has ended the call."""
        future = client.call_async(request)
        self._questions.append((client, future, time.monotonic()))

        def done(finished: Any) -> None:
            if not finished.cancelled():
                use(finished.result())

        future.add_done_callback(done)

    def command(self, client: Any, request: Any, reply: Reply, whose: str) -> None:
        """Call a service; ``reply`` receives its answer, or a refusal if the service is not offered.

        ``whose``: name of the program with that service, for the refusal.
        """

        def answered(response: Any) -> None:
            reply(CommandAnswer(response.success, response.message, getattr(response, "selection", 0)))

        if client.service_is_ready():
            self.ask(client, request, answered)
        else:
            reply(
                CommandAnswer(
                    False, f"the service {client.srv_name} is not offered; check whether {whose} runs"
                )
            )

    def waits_for(self, client: Any) -> bool:
        """Return whether a call of this client has not been answered yet."""
        return any(asked is client for asked, _, _ in self._questions)

    def give_up(self) -> list[Any]:
        """End the calls that have waited longer than ``patience_s``. Returns their clients."""
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
        # Each call of `_run` runs one function, so that the others run even if this one raises an exception.
        if self._waiting:
            self._guard.trigger()
        what()
