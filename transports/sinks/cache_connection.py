"""Connections to a cache whose answers have a bound; what of redis-py has no public name is used here only."""

from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from transports.sinks.bounded import AnswerBound, BoundedSocket

__all__ = ["bounded_client"]


class _Bounded:
    """A connection of redis-py over a `BoundedSocket`."""

    def __init__(self, *, bound: AnswerBound, **options: Any) -> None:
        self._bound = bound
        super().__init__(**options)

    def _connect(self) -> BoundedSocket:
        self._bound.left()
        return BoundedSocket(super()._connect(), self._bound)  # type: ignore[misc]  # of the class beside it


class _Plain(_Bounded, redis.Connection):
    pass


class _Tls(_Bounded, redis.SSLConnection):
    pass


class _Unix(_Bounded, redis.UnixDomainSocketConnection):
    pass


_KINDS: Final = {"redis": _Plain, "rediss": _Tls, "unix": _Unix}


def bounded_client(url: str, bound: AnswerBound, timeout: float, **options: Any) -> Any:
    """Returns a client of redis-py that tries nothing twice, because the runner of its sink does.

    Args:
        url: The address.
        bound: The bound of its answers, which its user begins for each call.
        timeout: Seconds in which it connects to one address, and the most for one read.
        options: Further options of its connections.
    """
    return redis.Redis.from_url(
        url,
        connection_class=_KINDS[url.partition(":")[0]],
        bound=bound,
        protocol=2,  # which every server knows, and in which nothing comes that was not asked for
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        **options,
    )
