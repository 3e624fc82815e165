"""Requests to a server that have one answer."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from transports.protocol.client import ClientQuestion, ClientSession
from transports.protocol.connection import Effect

__all__ = ["RemoteQuestions"]


class RemoteQuestions:
    """The unanswered questions of one connection, on its event loop.

    Args:
        session: The machine of the connection.
        perform: Performs the effects of the machine.
    """

    def __init__(self, session: ClientSession, perform: Callable[[Iterable[Effect]], object]) -> None:
        self._session = session
        self._perform = perform
        self._waiting: dict[ClientQuestion, asyncio.Future[Any]] = {}

    async def ask(self, kind: str, payload: dict[str, Any]) -> Any:
        """Sends the message of an operation and returns the answer; raises the server's error, or the reason why no answer will come."""
        question = ClientQuestion(self._session.name(), payload, kind)
        answer = self._waiting[question] = asyncio.get_running_loop().create_future()
        self._perform(self._session.ask(question))
        try:
            return await answer
        finally:
            if self._waiting.pop(question, None) is not None:
                self._perform(self._session.cancel(question))  # the caller was cancelled

    def answer(self, question: ClientQuestion, answer: object) -> None:
        """Wakes the caller with the answer."""
        waiting = self._waiting.pop(question)
        if waiting.done():
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)
