"""Answers the questions of one connection about schemas and executes its orders on groups, and on slots that it has not opened."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transports.access.access import Access
from transports.access.grant import LogAction, schema_for
from transports.access.principal import Principal
from transports.codec.group_orders import GroupOrder
from transports.codec.schemas import SchemaAnswer, SchemaQuestion, schema_json
from transports.codec.slot_orders import SlotInfo, SlotOrder
from transports.problems import describe
from transports.protocol.connection import Effect
from transports.protocol.server import ServerSession
from transports.protocol.subscriptions import SchemaEntry
from transports.quotas.pool import Pools
from transports.server.disk_jobs import DiskJobs
from transports.server.group_orders import carry_out_group
from transports.server.slot_orders import carry_out

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog

__all__ = ["ConnectionSchemas"]


class ConnectionSchemas:
    """The schema questions, slot orders and group orders of one connection, on its event loop.

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

    def look_up(
        self, entry: SchemaEntry, asked: SchemaQuestion | SlotOrder | GroupOrder, principal: Principal
    ) -> None:
        """Looks a schema up, or executes an order on a slot or a group, on a thread, and answers."""
        action = LogAction.READ if isinstance(asked, SchemaQuestion) else LogAction.CONSUME
        try:
            stored = isinstance(asked, SlotOrder) and asked.reads
            name, log, grant = self._access.find(self._logs, asked.log, principal, action, stored=stored)
        except Exception as error:  # noqa: BLE001 - any error concerns only this question
            self._perform(self._session.failed(entry, describe(error)))
            return

        def find() -> SchemaAnswer | list[SlotInfo] | dict[str, Any] | None:
            if isinstance(asked, SlotOrder):
                return carry_out(name, log, grant, asked)
            if isinstance(asked, GroupOrder):
                return carry_out_group(name, log, grant, asked)
            return schema_json(name, schema_for(grant, log, asked.entity_type, asked.version), log.token)

        def answered(result: Callable[[], SchemaAnswer | list[SlotInfo] | dict[str, Any] | None]) -> None:
            try:
                answer = self._session.answered(entry, result())
            except Exception as error:  # noqa: BLE001 - any error concerns only this question
                answer = self._session.failed(entry, describe(error))
            self._perform(answer)

        self._jobs.send(self._pools.scanning, entry, find, answered)
