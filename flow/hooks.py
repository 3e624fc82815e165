"""What happens to errors that nobody can be told of.

Assign another callable to `on_dropped_error` to take them elsewhere, for example to count them::

    flow.hooks.on_dropped_error = lambda error, subscriber: metrics.increment("dropped")
"""

import asyncio
import logging
import traceback
from collections.abc import Callable

__all__ = ["DroppedErrorHook", "log_dropped_error", "on_dropped_error", "report"]

_log = logging.getLogger("flow")

DroppedErrorHook = Callable[[Exception, object], None]
"""Takes the error and the subscriber that raised it, or that could not be told."""


def log_dropped_error(error: Exception, subscriber: object, /) -> None:
    """Log the error with its traceback; the default hook.

    Only the type of the subscriber is logged: a record that outlives the subscription must not keep it (rule 3.13).
    """
    kind = type(subscriber)
    _log.error("error dropped by %s.%s", kind.__module__, kind.__qualname__, exc_info=error)


on_dropped_error: DroppedErrorHook = log_dropped_error
"""Called once for each dropped error, on the thread where it appeared; may be replaced at any time."""


def report(error: Exception, subscriber: object, /) -> None:
    """Hand a dropped error to `on_dropped_error`; what the hook itself raises is logged and goes no further.

    Afterwards the frames of its tracebacks forget their locals, so that whoever keeps the error does not keep the
    subscriber (rule 3.13).
    """
    try:
        on_dropped_error(error, subscriber)
    except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 - a hook must not harm who reports
        _log.error("on_dropped_error itself raised", exc_info=failure)
        _forget_frames(failure)
    _forget_frames(error)


def _forget_frames(error: BaseException) -> None:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        traceback.clear_frames(link.__traceback__)
        waiting += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions
