"""How the target of a sink fails, and what the runner makes of it.

::

    PenstockError
    `-- SinkError
        |-- TargetUnavailable  it may take the same batch later: tried again      (why, retry_after, overloaded)
        |-- TargetRefused      it will not take this, however often it is tried   (why)
        |-- TooLargeForTarget      it may take the same changes in smaller batches    (why)
        |-- NoSuchSink         there is no sink of that name; a KeyError too      (name, known)
        |-- SinkStandsBy       another one sends, and is to be asked              (name)
        `-- SinkStopped        the runner has stopped                             (name)
"""

from typing import Final

from publishers.errors import NotThere, PenstockError

__all__ = [
    "NoSuchSink",
    "SinkError",
    "SinkStandsBy",
    "SinkStopped",
    "TargetRefused",
    "TargetUnavailable",
    "TooLargeForTarget",
    "shown_error",
]

_SHOWN: Final = 600  # characters


class SinkError(PenstockError):
    """Something about a sink, or its target. Its text names no secret."""


class TargetUnavailable(SinkError):
    """Transient: the target may take the same batch later.

    Args:
        why: What happened.
        retry_after: Seconds that the target asks to be left alone, or None.
        overloaded: Whether the target has too much to do: the next batches are smaller.
    """

    retryable = True

    def __init__(self, why: str, *, retry_after: float | None = None, overloaded: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.retry_after = retry_after
        self.overloaded = overloaded


class TargetRefused(SinkError):
    """Permanent: the target, or this batch of it, is wrong, and somebody has to mend that."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class TooLargeForTarget(SinkError):
    """The target may take the same changes in smaller batches; a single change that is too large is refused."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class NoSuchSink(SinkError, NotThere):
    """No sink of that name runs here."""

    what, where = "sink", "process"


class SinkStandsBy(SinkError):
    """The runner does not hold the lease: orders are for the one that does."""

    def __init__(self, name: str) -> None:
        super().__init__(f"sink {name!r} stands by here; tell the one that holds the lease")
        self.name = name


class SinkStopped(SinkError):
    """The runner of the sink has stopped: nothing can be asked of it any more."""

    def __init__(self, name: str) -> None:
        super().__init__(f"sink {name!r} has stopped; start it again")
        self.name = name


def shown_error(error: BaseException) -> str:
    """An error in one text of bounded length, for a status and a log file: what is no character is escaped."""
    text = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
