"""Carries out the operations of one connection that have one answer."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from transports.access.access import Access
from transports.access.principal import Principal
from transports.operations.operation import Target
from transports.problems import describe
from transports.protocol.connection import Effect
from transports.protocol.server import ServerSession
from transports.protocol.subscriptions import Operate
from transports.quotas.pool import Pools
from transports.server.disk_jobs import DiskJobs

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ConnectionOperations"]


class ConnectionOperations:
    """The operations of one connection, on its event loop.

    Args:
        session: The protocol machine of the connection.
        logs: The logs of the server, by name.
        access: What each principal may do.
        pools: The threads of the server.
        jobs: The jobs of the connection.
        perform: Performs the effects of the machine.
    """

    def __init__(
        self,
        session: ServerSession,
        logs: "Mapping[str, ChangeLog]",
        access: Access,
        *,
        pools: Pools,
        jobs: DiskJobs,
        perform: Callable[[Iterable[Effect]], object],
    ) -> None:
        self._session = session
        self._logs = logs
        self._access = access
        self._pools = pools
        self._jobs = jobs
        self._perform = perform

    def do(self, effect: Operate, principal: Principal) -> None:
        """Carries an operation out on a thread, and answers."""
        entry, operation = effect.entry, effect.operation
        try:
            target = Target(
                *self._access.find(
                    self._logs, operation.log, principal, operation.action, stored=operation.stored
                )
            )
        except Exception as error:  # noqa: BLE001 - any error concerns only this operation
            self._perform(self._session.failed(entry, describe(error)))
            return

        def answered(result: Callable[[], object]) -> None:
            try:
                answer = self._session.answered(entry, operation, result())
            except Exception as error:  # noqa: BLE001 - any error concerns only this operation
                answer = self._session.failed(entry, describe(error))
            self._perform(answer)

        self._jobs.send(self._pools.scanning, entry, partial(operation.run, target), answered)
