"""The hook for errors that cannot be delivered to any subscriber or caller.

Assign another callable to `on_dropped_error` to handle them, for example to count them::

    flow.hooks.on_dropped_error = lambda error, subscriber: metrics.increment("dropped")
"""

import asyncio
import logging
import traceback
from collections.abc import Callable

__all__ = ["DroppedErrorHook", "log_dropped_error", "on_dropped_error", "report"]

_log = logging.getLogger("flow")

DroppedErrorHook = Callable[[Exception, object], None]
"""Called with the error, and with the subscriber that raised it or could not receive it."""


def log_dropped_error(error: Exception, subscriber: object, /) -> None:
    """Log the error with its traceback; the default hook.

    Only the type of the subscriber is logged: a record that outlives the subscription must not reference it (rule 3.13).
    """
    kind = type(subscriber)
    _log.error("error dropped by %s.%s", kind.__module__, kind.__qualname__, exc_info=error)


on_dropped_error: DroppedErrorHook = log_dropped_error
"""Called once for each dropped error, on the thread where it appeared; may be replaced at any time."""


def report(error: Exception, subscriber: object, /) -> None:
    """Pass a dropped error to `on_dropped_error`; an error of the hook itself is logged and not raised.

    Afterwards the frames of the tracebacks are cleared of their locals, so that a kept error does not reference the
    subscriber (rule 3.13).
    """
    try:
        on_dropped_error(error, subscriber)
    except (Exception, asyncio.CancelledError) as failure:  # noqa: BLE001 - a hook must not harm the caller
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
