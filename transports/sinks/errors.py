"""The errors of sinks and their targets, and how the runner reacts.

::

    PenstockError
    `-- SinkError
        |-- TargetUnavailable  transient: the same batch is sent again              (why, retry_after, overloaded)
        |-- TargetRefused      permanent: a retry does not help                     (why)
        |   |-- TargetOfOtherHistory  the target has changes that the log lacks     (where)
        |   `-- TargetTakenOver       the target knows a later opening of the slot  (generation)
        |-- SinkPlaceLost      the log was restored, and the target knows no history (name, place)
        |-- TooLargeForTarget  the same changes are sent in smaller batches         (why)
        |-- NoSuchSink         there is no sink of that name; a KeyError too        (name, known)
        |-- SinkStandsBy       another runner holds the lease, and takes orders     (name)
        `-- SinkStopped        the runner has stopped                               (name)
"""

from typing import ClassVar, Final

from publishers.errors import NotThere, PenstockError

__all__ = [
    "NoSuchSink",
    "SinkError",
    "SinkPlaceLost",
    "SinkStandsBy",
    "SinkStopped",
    "TargetOfOtherHistory",
    "TargetRefused",
    "TargetTakenOver",
    "TargetUnavailable",
    "TooLargeForTarget",
    "plain_error",
    "shown_error",
]

_SHOWN: Final = 600  # characters


class SinkError(PenstockError):
    """An error of a sink or its target. Its text contains no secret."""


class TargetUnavailable(SinkError):
    """Transient: the target may accept the same batch later.

    Attributes:
        why: What happened.
        retry_after: Seconds that the target asks to wait, or None.
        overloaded: Whether the target is overloaded: the next batches are smaller.
    """

    retryable = True
    why: str
    retry_after: float | None = None
    overloaded: bool = False
    says = "{why}"


class TargetRefused(SinkError):
    """Permanent: the target or the batch is wrong, and an operator has to correct it."""

    why: str
    says = "{why}"


class TargetOfOtherHistory(TargetRefused):
    """The target has changes of a history that the log does not have, or not in full: the log or the target was restored or copied."""

    sink: str
    where: str
    content: str
    says = (
        "{where} is of another history than this log ({why}), so the target may have changes that the log lacks: "
        "empty {content}, then seek sink {sink!r} to the place to continue at, resume it, and send rows again if history is missing"
    )


class TargetTakenOver(TargetRefused):
    """The target knows a later opening of the slot: of another runner, or from before the slot was restored or created anew."""

    generation: int


class TooLargeForTarget(SinkError):
    """The target may accept the same changes in smaller batches; a single change that is too large is refused."""

    why: str
    says = "{why}"


class SinkPlaceLost(SinkError):
    """The log was restored from a backup, and the target cannot tell which changes it has got since."""

    name: str
    place: str
    says = (
        "the log was restored from a backup, at which sink {name!r} stood at {place}: its target may have changes behind that which "
        "this log lacks; undo these there, and seek the sink to that place, which sends what follows again, or to another one"
    )


class NoSuchSink(SinkError, NotThere):
    """No sink of that name runs in this process."""

    what: ClassVar[str] = "sink"
    where: ClassVar[str] = "process"


class SinkStandsBy(SinkError):
    """The runner does not hold the lease; orders go to the runner that does."""

    name: str
    says = "sink {name!r} stands by in this process; give orders to the process that holds the lease"


class SinkStopped(SinkError):
    """The runner of the sink has stopped and takes no more orders."""

    name: str
    says = "sink {name!r} has stopped; start it again"


def plain_error(error: BaseException) -> Exception:
    """Returns an error that a runner can judge: an exit or a cancellation in a sink ends neither the sink nor its thread in silence."""
    return error if isinstance(error, Exception) else TargetRefused(shown_error(error))


def shown_error(error: BaseException) -> str:
    """Formats an error as one text of bounded length, for a status and a log file; escapes lone surrogates."""
    text = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
