"""The dead letters of a group: deliveries that failed ``max_deliver`` times or were terminated, in a change log of their own."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from publishers.errors import LogClosed, TransactionTooLarge
from publishers.groups.delivery import DeadLetter
from publishers.groups.ports import DeadLog
from publishers.model.change import Change, time_of
from publishers.model.position import Position

__all__ = ["DeadLetters", "letter_of", "read_letter"]


class DeadLetters:
    """The dead letters of one group: ``group.dead``.

    Args:
        open_log: Opens their log; called on first use.
    """

    def __init__(self, open_log: Callable[[], DeadLog]) -> None:
        self._open = open_log
        self._log: DeadLog | None = None
        self._opening = threading.Lock()
        self._closed = False

    def inspect(self) -> list[DeadLetter]:
        """All letters, by position."""
        return sorted(map(read_letter, self._opened().letters().values()), key=lambda one: one.position)

    def discard(self, positions: Iterable[Position] | None = None) -> int:
        """Removes letters.

        Args:
            positions: The positions of the letters; None for all letters.

        Returns:
            The number of letters removed.
        """
        chosen = self._chosen(positions)
        self._opened().remove([str(one.position) for one in chosen])
        return len(chosen)

    def replay(
        self, apply: Callable[[DeadLetter], object], positions: Iterable[Position] | None = None
    ) -> int:
        """Calls a function with each letter, by position, and removes the letter when the function returns.

        Args:
            apply: Handles a letter. An exception ends the replay, and that letter and the later ones stay.
            positions: The positions of the letters; None for all letters.

        Returns:
            The number of letters handled.
        """
        chosen = self._chosen(positions)
        for one in chosen:
            apply(one)
            self._opened().remove([str(one.position)])
        return len(chosen)

    def put(self, position: Position, letter: dict[str, Any]) -> None:
        """Adds a letter durably; called by the group.

        A letter that is too large is stored without bodies, or without its changes if it is still too large.
        """
        changes = letter["changes"]
        bare = [{**one, "body": None, "before": None} for one in changes]
        for kept in (changes, bare):
            with contextlib.suppress(TransactionTooLarge):
                self._opened().put(str(position), {**letter, "changes": kept})
                return
        self._opened().put(str(position), {**letter, "changes": []})

    def close(self) -> None:
        """Closes their log; for the group."""
        with self._opening:
            log, self._log, self._closed = self._log, None, True
        if log is not None:
            log.close()

    def _chosen(self, positions: Iterable[Position] | None) -> list[DeadLetter]:
        wanted = None if positions is None else set(positions)
        return [one for one in self.inspect() if wanted is None or one.position in wanted]

    def _opened(self) -> DeadLog:
        with self._opening:
            if self._closed:
                raise LogClosed
            if self._log is None:
                self._log = self._open()
            return self._log


def letter_of(
    cursor: str,
    consumer: str | None,
    count: int,
    errors: tuple[str, str],
    died_us: int,
    changes: Iterable[Change],
) -> dict[str, Any]:
    """Builds the stored form of a letter."""
    return {
        "cursor": cursor,
        "consumer": consumer,
        "count": count,
        "first_error": errors[0],
        "last_error": errors[1],
        "died_us": died_us,
        "changes": [
            {
                "position": str(one.position),
                "operation": one.operation.name,
                "entity_type": one.entity_type,
                "key": _text(one.key),
                "body": _text(one.body_bytes),
                "before": _text(one.before_bytes),
            }
            for one in changes
        ],
    }


def read_letter(letter: dict[str, Any]) -> DeadLetter:
    """Builds a letter from its stored form."""
    version, index = letter["cursor"].split(":")[-2:]
    died: datetime = time_of(letter["died_us"])
    return DeadLetter(
        Position(int(version), int(index)),
        letter["cursor"],
        letter["consumer"],
        letter["count"],
        letter["first_error"],
        letter["last_error"],
        died,
        tuple(letter["changes"]),
    )


def _text(value: bytes | str | None) -> str | None:
    """A text for JSON; bytes that are not UTF-8 become escapes by their hexadecimal numbers."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return None if value is None else value.decode("utf-8", "backslashreplace")
