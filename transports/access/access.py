"""Who is let in, and what each may do: the one object that everything asks which serves clients."""

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import InvalidOption
from transports.access.grant import Grant, LogAction
from transports.access.principal import ANONYMOUS, Credentials, Principal
from transports.errors import Forbidden, LogNotFound, NotAuthenticated, Unauthenticated

__all__ = ["EVERYBODY", "SERVER", "Access", "Authenticator", "Authoriser"]

_LOG: Final = logging.getLogger("penstock.transports")
_L = TypeVar("_L")
_WRITABLE: Final = "; penstock serve DIR --own --writable lets everybody write who is let in"
_NAME_MAX: Final = 255  # of a log; a longer name is none
_TIMEOUT: Final = 5.0

Authenticator = Callable[[Credentials], Principal | Awaitable[Principal | None] | None]
"""Tells who a client is by its credentials; None, or ``Forbidden``, if it is not let in.

One that awaits runs on the event loop. One that does not runs on a thread, as it may ask a database or a file, unless it has
an attribute ``quick`` that is true. Each has ``Limits.authenticate_timeout`` seconds.
"""

Authoriser = Callable[[Principal, str, LogAction], Grant]
"""Tells what a principal may do with the log of a name; it may raise ``Forbidden``.

It is asked for each subscription and request, on the event loop and on threads, so it must not wait for anything: what has
to be fetched belongs into the ``claims`` of the principal, which an authenticator may take its time for. The name may be that
of no log.
"""

EVERYBODY: Final = Grant(frozenset({LogAction.READ, LogAction.OPERATE}))
"""What each client may do where nothing else is said: read everything, and be told how the server is; never write."""

SERVER: Final = "$system"
"""The name under which the figures of a server as a whole are authorised, and the log of what becomes of its logs."""

_Run = Callable[[Hashable, Callable[[], Any]], Awaitable[Any]]


async def _on_a_thread(_client: Hashable, work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


class Access:
    """Who is let in to a server, and what each may do.

    Args:
        authenticate: Tells who a client is; None lets everybody in as ``ANONYMOUS``, whatever it claims.
        authorise: What each principal may do, or a grant for all; None for ``EVERYBODY``.
        timeout: Seconds that authentication may take.
        fresh: Seconds after which it is looked again whether what authenticator and authoriser were read from has changed, before
            the next client is judged.
        run: Runs what may block for a client, on a thread.
        clock: Tells the time.

    Raises:
        InvalidOption: If one of them is something else.
    """

    def __init__(
        self,
        authenticate: Authenticator | None = None,
        authorise: Authoriser | Grant | None = None,
        *,
        timeout: float = _TIMEOUT,
        fresh: float = _TIMEOUT,
        run: _Run = _on_a_thread,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if authenticate is not None and not callable(authenticate):
            raise InvalidOption(
                "authenticate", authenticate, "a callable that makes a Principal of Credentials"
            )
        given: object = authorise
        if not (given is None or isinstance(given, Grant) or callable(given)):
            right = "a Grant, or a callable that makes one of a principal, a log's name and an action"
            raise InvalidOption("authorise", authorise, right)
        self._authenticate = authenticate
        self._authorise = EVERYBODY if authorise is None else authorise
        self._timeout = timeout
        self._fresh = fresh
        self._looked = -math.inf
        self._looking: asyncio.Task[None] | None = None
        self._said = ""
        self._run = run
        self._clock = clock
        self._awaits = inspect.iscoroutinefunction(authenticate) or inspect.iscoroutinefunction(
            getattr(authenticate, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function
        )

    def _now(self) -> float:
        return self._clock.now_us() / 1e6

    @property
    def open(self) -> bool:
        """Whether everybody is let in."""
        return self._authenticate is None

    @property
    def lasting(self) -> bool:
        """Whether what was found of a client once is so for ever."""
        return self.open and isinstance(self._authorise, Grant)

    @property
    def revision(self) -> int:
        """Rises when authenticator or authoriser have read something else than before (their attribute ``revision``)."""
        return sum(getattr(one, "revision", 0) for one in (self._authenticate, self._authorise))

    async def refresh(self) -> None:
        """Has authenticator and authoriser look, on a thread, whether what they were read from has changed (``refresh``).

        What cannot be read changes nothing, and is said in the log.
        """
        self._looked = self._clock.monotonic()
        for one in {id(one): one for one in (self._authenticate, self._authorise)}.values():
            look = getattr(one, "refresh", None)
            if look is None:
                continue
            try:
                await self._run(None, look)
            except Exception as error:  # noqa: BLE001 - whatever it was, what was read before counts on
                if str(error) != self._said:
                    _LOG.warning("who is let in could not be read again: %s", error)
                self._said = str(error)

    async def _be_fresh(self) -> None:
        """Looks again if the last look is too long ago; all who come meanwhile wait for the same look."""
        if self._looking is not None and self._looking.done():  # all who waited for it have left
            self._looking = None
        if self._looking is None and self._clock.monotonic() - self._looked >= self._fresh:
            self._looking = asyncio.get_running_loop().create_task(self.refresh())
        if self._looking is not None:
            looking = self._looking
            try:
                await asyncio.shield(looking)
            finally:
                if looking.done():
                    self._looking = None

    def expired(self, principal: Principal) -> bool:
        """Whether the time of a principal is over."""
        return principal.expired(self._now())

    @property
    def uniform(self) -> bool:
        """Whether all may do and see the same, and see everything."""
        return isinstance(self._authorise, Grant) and not self._authorise.narrow

    async def principal(self, credentials: Credentials) -> Principal:
        """Who a client is.

        Raises:
            Unauthenticated: If it is not let in, or its time is over.
            NotAuthenticated: If that was not found out in time.
        """
        if self._authenticate is None:
            return ANONYMOUS
        try:
            async with asyncio.timeout(self._timeout):
                await self._be_fresh()
                found = await self._ask(self._authenticate, credentials)
        except Forbidden:
            found = None
        except TimeoutError:
            raise NotAuthenticated(self._timeout) from None
        if found is not None and not isinstance(found, Principal):
            raise TypeError(
                f"an authenticator answers with a Principal or None, not with {type(found).__name__}"
            )
        if found is None or found.expired(self._now()):
            raise Unauthenticated
        return found

    async def _ask(self, authenticate: Authenticator, credentials: Credentials) -> object:
        if self._awaits or getattr(authenticate, "quick", False):
            found = authenticate(credentials)
        else:
            found = await self._run(credentials.client, lambda: authenticate(credentials))
        return await found if inspect.isawaitable(found) else found

    def grant(self, principal: Principal, log: str, action: LogAction) -> Grant:
        """What a principal may do with a log, if it may do this.

        Args:
            principal: Who it is.
            log: The name of the log; ``SERVER`` for the server as a whole.
            action: What it wants to do.

        Raises:
            Forbidden: If it may not.
            Unauthenticated: If its time is over.
        """
        if principal.expired(self._now()):
            raise Unauthenticated
        found = self._authorise
        if not isinstance(found, Grant):
            found = found(principal, log, action)
            if not isinstance(found, Grant):
                raise TypeError(f"an authoriser answers with a Grant, not with {type(found).__name__}")
        if action not in found.actions:
            allowed = ", ".join(sorted(one.name for one in found.actions)) or "nothing"
            right = (
                f"one that is allowed here, which is {allowed}; for {action.name} the authoriser of the server "
                f"has to answer with a Grant whose actions hold it{_WRITABLE if action is LogAction.WRITE else ''}"
            )
            raise Forbidden("action", right)
        return found

    def allows(self, principal: Principal, log: str, action: LogAction) -> Grant | None:
        """As ``grant``; None if it may not."""
        try:
            return self.grant(principal, log, action)
        except (Forbidden, Unauthenticated):
            return None

    def find(
        self,
        logs: Mapping[str, _L],
        name: str | None,
        principal: Principal,
        action: LogAction = LogAction.READ,
    ) -> tuple[str, _L, Grant]:
        """The log that a principal means, with its name and what it may do: without a name it means the only one.

        It is asked whether the principal may before it is looked whether there is such a log, so that nobody learns the
        names of logs that are not for him.

        Raises:
            Forbidden: If it may not do that with a log of this name.
            LogNotFound: If there is none of that name, or several and no name; with the names of those that it may know.
        """
        if name is None and len(logs) == 1:
            name = next(iter(logs))
        if name is None or len(name) > _NAME_MAX:
            raise LogNotFound(name, self._known(logs, principal, action))
        grant = self.grant(principal, name, action)
        log = logs.get(name)
        if log is None:
            raise LogNotFound(name, self._known(logs, principal, action))
        return name, log, grant

    def _known(self, logs: Mapping[str, object], principal: Principal, action: LogAction) -> list[str]:
        return [name for name in logs if self.allows(principal, name, action) is not None]
