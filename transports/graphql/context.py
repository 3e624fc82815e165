"""The context of the resolvers of one operation."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from publishers.criteria.cost import weigh
from publishers.criteria.criteria import Criteria
from publishers.errors import TooCostly
from publishers.options import MIB
from publishers.views.view import Content, Images, Integers, View
from transports.access.access import Access
from transports.access.grant import Grant, LogAction, narrow
from transports.access.principal import ANONYMOUS, Principal
from transports.appends import Appending
from transports.codec.messages import check_weight
from transports.graphql.inputs import MaskRuleInput
from transports.graphql.openings import NOTHING_OPEN, Openings

if TYPE_CHECKING:
    from publishers.log.changelog import ChangeLog
    from transports.limits import Limits

__all__ = ["HISTORY_BYTES", "Context"]

HISTORY_BYTES: Final = 8 * MIB
"""Bytes after which a page of history ends; a single larger record is sent alone. The next page continues, and `Limits.answer_bytes` bounds all
pages of an answer."""


@dataclass(slots=True)
class Context:
    """The context of the resolvers of one operation.

    Attributes:
        logs: The logs of the server, by name.
        limits: The bounds of pages, of the answer, and of the weight of criteria.
        left: The bytes that the pages of the operation may still have.
        access: What each principal may do.
        principal: The principal of the client.
        appending: The server's shared state for appends; None for a state of the operation's own.
        openings: Finds the slots and consumers that a client has open.
        check: Called between records that are read; an exception ends the reading.
    """

    logs: "Mapping[str, ChangeLog]"
    limits: "Limits"
    access: Access = field(default_factory=Access)
    principal: Principal = ANONYMOUS
    appending: Appending | None = None
    openings: Openings = NOTHING_OPEN
    check: Callable[[], None] | None = None
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.limits.answer_bytes

    def find(self, name: str | None) -> "tuple[str, ChangeLog, Grant]":
        """Finds a log; returns its name, the log and the grant.

        Raises:
            Forbidden: If the principal may not read it.
            LogNotFound: If no log has the name, or if there are several and no name was given.
        """
        return self.access.find(self.logs, name, self.principal)

    def find_slot(self, name: str, log: str | None) -> "tuple[str, ChangeLog, Grant]":
        """Finds the log of a slot that the principal may open, as `find`.

        Raises:
            Forbidden, LogNotFound: As `find`.
        """
        known, found, grant = self.access.find(self.logs, log, self.principal, LogAction.CONSUME)
        grant.check_slot(name)
        return known, found, grant

    def find_group(self, name: str, log: str | None) -> "tuple[str, ChangeLog, Grant]":
        """Finds the log of a group that the principal may use, as `find`.

        Raises:
            Forbidden, LogNotFound: As `find`.
        """
        known, found, grant = self.access.find(self.logs, log, self.principal, LogAction.CONSUME)
        grant.check_group(name)
        return known, found, grant

    def known(self) -> "Iterator[tuple[str, ChangeLog]]":
        """Yields the logs that the principal may read."""
        for name, log in self.logs.items():
            if self.access.allows(self.principal, name, LogAction.READ) is not None:
                yield name, log

    def view(
        self,
        grant: Grant,
        criteria: Criteria,
        images: Images,
        fields: list[str] | None,
        mask: list[MaskRuleInput] | None,
        integers: Integers,
    ) -> tuple[View, Criteria]:
        """Returns the widest view of an operation, which applies if its selection includes bodies, and the granted criteria.

        Raises:
            Forbidden: If the criteria ask about what the grant hides.
            InvalidOption: If a path or a rule is invalid.
        """
        rules = None if mask is None else {each.path: each.plain() for each in mask}
        wanted = View.of(Content.BODY, images, fields=fields, mask=rules, integers=integers)
        view, narrowed = narrow(grant, wanted, criteria)
        if narrowed is not criteria:
            check_weight(weigh(narrowed), self.limits)
        return view, narrowed

    def page_bytes(self) -> int:
        """Returns the most bytes of the next page.

        Raises:
            TooCostly: If earlier pages have used up the size of the answer.
        """
        if self.left <= 0:
            most = self.limits.answer_bytes
            cheaper = "to ask for fewer pages at once"
            raise TooCostly("answer_bytes", most - self.left, most, cheaper, what="bytes of the pages")
        return min(HISTORY_BYTES, self.left)
