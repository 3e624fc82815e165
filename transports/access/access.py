"""Authentication and authorisation: the one object that every endpoint asks."""

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, TypeVar

from flow.clock import SYSTEM_CLOCK, Clock
from publishers.errors import InvalidOption, LogReadOnly
from transports.access.grant import Grant, LogAction
from transports.access.principal import ANONYMOUS, Credentials, Principal
from transports.errors import Forbidden, LogNotFound, NotAuthenticated, Unauthenticated
from transports.limits import Limits
from transports.quotas.pool import Pools

__all__ = ["EVERYBODY", "SERVER", "Access", "Authenticator", "Authoriser"]

_LOG: Final = logging.getLogger("penstock.transports")
_L = TypeVar("_L")
_SWITCHES: Final = {
    LogAction.WRITE: "; penstock serve DIR --own --writable lets everybody write who is let in",
    LogAction.CONSUME: "; penstock serve DIR --own --slots PATTERN or --groups PATTERN names the slots and groups for everybody",
}
_NAME_MAX: Final = 255  # of a log; a longer name cannot exist
_TIMEOUT: Final = 5.0

Authenticator = Callable[[Credentials], Principal | Awaitable[Principal | None] | None]
"""Maps the credentials of a client to a principal; returns None, or raises ``Forbidden``, to refuse the client.

A coroutine function runs on the event loop. Any other callable runs on a thread, because it may query a database or a file,
unless its attribute ``quick`` is true. Each has ``Limits.authenticate_timeout`` seconds.
"""

Authoriser = Callable[[Principal, str, LogAction], Grant]
"""Returns the grant of a principal on the log of a name, for an action; may raise ``Forbidden``.

It is called for each subscription and request, on the event loop and on threads, so it must not block. Data that has to be
fetched belongs in the ``claims`` of the principal, because an authenticator may block. The name need not belong to an
existing log.
"""

EVERYBODY: Final = Grant(frozenset({LogAction.READ, LogAction.OPERATE}))
"""The default grant: read everything and see the state of the server, but never write."""

SERVER: Final = "$system"
"""The name under which the figures of the whole server, and the system log of a store, are authorised."""

_Run = Callable[[Hashable, Callable[[], Any]], Awaitable[Any]]


class Access:
    """Authenticates the clients of a server and authorises their actions.

    Args:
        authenticate: Maps credentials to a principal; None admits every client as ``ANONYMOUS``, whatever it presents.
        authorise: What each principal may do, or one grant for all; None for ``EVERYBODY``.
        timeout: Seconds that authentication may take.
        fresh: Seconds after which the sources of authenticator and authoriser are checked for changes before the next client
            is authenticated.
        run: Runs blocking work for a client on a thread; None for threads of its own.
        clock: The clock.

    Raises:
        InvalidOption: If an argument has the wrong type.
    """

    def __init__(
        self,
        authenticate: Authenticator | None = None,
        authorise: Authoriser | Grant | None = None,
        *,
        timeout: float = _TIMEOUT,
        fresh: float = _TIMEOUT,
        run: _Run | None = None,
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
        self._run = Pools(Limits()).judging.run if run is None else run
        self._clock = clock
        self._awaits = inspect.iscoroutinefunction(authenticate) or inspect.iscoroutinefunction(
            getattr(authenticate, "__call__", None)  # noqa: B004 - an object whose call is a coroutine function
        )

    def _now(self) -> float:
        return self._clock.now_us() / 1e6

    @property
    def open(self) -> bool:
        """Whether every client is admitted."""
        return self._authenticate is None

    @property
    def lasting(self) -> bool:
        """Whether a decision about a client never changes."""
        return self.open and isinstance(self._authorise, Grant)

    @property
    def revision(self) -> int:
        """Increases when authenticator or authoriser have read new data (the sum of their attributes ``revision``)."""
        return sum(getattr(one, "revision", 0) for one in (self._authenticate, self._authorise))

    async def refresh(self) -> None:
        """Lets authenticator and authoriser check on a thread whether their sources have changed (their method ``refresh``).

        If a source cannot be read, nothing changes and the log has a warning.
        """
        self._looked = self._clock.monotonic()
        for one in {id(one): one for one in (self._authenticate, self._authorise)}.values():
            look = getattr(one, "refresh", None)
            if look is None:
                continue
            try:
                await self._run(None, look)
            except Exception as error:  # noqa: BLE001 - whatever it was, the previous data stays in use
                if str(error) != self._said:
                    _LOG.warning("the credentials of clients could not be reloaded: %s", error)
                self._said = str(error)

    async def _be_fresh(self) -> None:
        """Refreshes if the last refresh is too long ago; clients that arrive meanwhile wait for the same refresh."""
        if self._looking is not None and self._looking.done():  # all waiters were cancelled
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
        """Whether a principal has expired: by the monotonic clock if it was authenticated here, whatever the wall clock does since."""
        until = principal.until
        if until is None and principal.expires is None:
            return False
        return principal.expired(self._now()) if until is None else self._clock.monotonic() >= until

    @property
    def uniform(self) -> bool:
        """Whether every principal has the same grant, and it hides nothing."""
        return isinstance(self._authorise, Grant) and not self._authorise.narrow

    async def principal(self, credentials: Credentials) -> Principal:
        """Authenticates a client.

        Raises:
            Unauthenticated: If the client is refused, or its principal has expired.
            NotAuthenticated: If authentication takes longer than the timeout.
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
        now = self._now()
        if found is None or found.expired(now):
            raise Unauthenticated
        if found.expires is None:
            return found
        return found.authenticated(self._clock.monotonic() + found.expires - now)

    async def again(
        self, principal: Principal, credentials: Credentials, *, since: float, revision: int
    ) -> Principal:
        """Authenticates a client again, if its credentials may have changed since it was authenticated.

        Args:
            principal: The principal.
            credentials: Its credentials.
            since: The monotonic time at which it was authenticated, in seconds.
            revision: The revision then.

        Raises:
            Unauthenticated: If the client is refused now, or is another principal.
            NotAuthenticated: As `principal`.
        """
        if self.open or (self.revision == revision and self._clock.monotonic() - since < self._fresh):
            return principal
        found = await self.principal(credentials)
        if found.name != principal.name:
            raise Unauthenticated
        return found

    async def _ask(self, authenticate: Authenticator, credentials: Credentials) -> object:
        if self._awaits or getattr(authenticate, "quick", False):
            found = authenticate(credentials)
        else:
            found = await self._run(credentials.client, lambda: authenticate(credentials))
        return await found if inspect.isawaitable(found) else found

    def grant(self, principal: Principal, log: str, action: LogAction) -> Grant:
        """Returns the grant of a principal on a log, if it allows the action.

        Args:
            principal: The principal.
            log: The name of the log; ``SERVER`` for the server as a whole.
            action: The requested action.

        Raises:
            Forbidden: If the action is not allowed.
            Unauthenticated: If the principal has expired.
        """
        if self.expired(principal):
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
                f"has to answer with a Grant whose actions hold it{_SWITCHES.get(action, '')}"
            )
            raise Forbidden("action", right)
        return found

    def allows(self, principal: Principal, log: str, action: LogAction) -> Grant | None:
        """As ``grant``, but returns None if the action is not allowed or the principal has expired."""
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
        *,
        stored: bool = False,
    ) -> tuple[str, _L, Grant]:
        """Finds the log of a request; returns its name, the log and the grant. Without a name, the only log is meant.

        Authorisation comes before the look-up, so that no principal learns the names of logs that it may not use.

        Args:
            logs: The logs of the server, by name.
            name: The name in the request.
            principal: The principal.
            action: The requested action.
            stored: Whether the request only reads slots. A log that is followed here shows them, as stored by its owner, with
                OPERATE too, as its statistics show groups.

        Raises:
            Forbidden: If the action is not allowed on a log of this name.
            LogReadOnly: If slots or groups are to be used, the log belongs to another process, and the principal may read it.
            LogNotFound: If no log has this name, or if there are several and no name was given; lists the names that the
                principal may know.
        """
        enough = (action, LogAction.OPERATE) if stored else (action,)
        if name is None and len(logs) == 1:
            name = next(iter(logs))
        if name is None or len(name) > _NAME_MAX:
            raise LogNotFound(name, self._known(logs, principal, enough))
        log = logs.get(name)
        if action is LogAction.CONSUME and getattr(log, "read_only", False):
            if stored:
                action = next((one for one in enough if self.allows(principal, name, one)), action)
            elif self.allows(principal, name, LogAction.READ):
                raise LogReadOnly(name, "is followed here: its slots and groups belong to its owner,")
        grant = self.grant(principal, name, action)
        if log is None:
            raise LogNotFound(name, self._known(logs, principal, enough))
        return name, log, grant

    def _known(
        self, logs: Mapping[str, object], principal: Principal, enough: tuple[LogAction, ...]
    ) -> list[str]:
        return [name for name in logs if any(self.allows(principal, name, one) for one in enough)]
