"""What the resolvers of one operation work with."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from publishers.criteria.cost import weigh
from publishers.criteria.criteria import Criteria
from publishers.errors import TooCostly
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

__all__ = ["Context"]


@dataclass(slots=True)
class Context:
    """What resolvers of one operation work with.

    Attributes:
        logs: The logs of the server, by name.
        limits: Bounds of pages and of the answer, and of what criteria may weigh.
        left: How many of the bytes that all pages of the operation may have there still are.
        access: What each principal may do.
        principal: Who asks.
        appending: What the server does for those who append; None for an operation of its own.
        openings: Finds what a client has open.
        check: Called between records that are read; what it raises ends the reading.
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
        """The log of a name, that name, and what the principal may do with it.

        Raises:
            Forbidden: If it may not read it.
            LogNotFound: If there is none, or there are several and no name.
        """
        return self.access.find(self.logs, name, self.principal)

    def find_slot(self, name: str, log: str | None) -> "tuple[str, ChangeLog, Grant]":
        """The log of a slot that the principal may open, as `find`.

        Raises:
            Forbidden, LogNotFound: As `find`.
        """
        known, found, grant = self.access.find(self.logs, log, self.principal, LogAction.CONSUME)
        grant.check_slot(name)
        return known, found, grant

    def find_group(self, name: str, log: str | None) -> "tuple[str, ChangeLog, Grant]":
        """The log of a group that the principal may use, as `find`.

        Raises:
            Forbidden, LogNotFound: As `find`.
        """
        known, found, grant = self.access.find(self.logs, log, self.principal, LogAction.CONSUME)
        grant.check_group(name)
        return known, found, grant

    def known(self) -> "Iterator[tuple[str, ChangeLog]]":
        """The logs that the principal may read."""
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
        """The widest view of an operation, if its selection takes bodies, and the criteria as they are granted.

        Raises:
            Forbidden: If the criteria ask about what the caller may not see.
            InvalidOption: If something is no path or no rule.
        """
        rules = None if mask is None else {each.path: each.plain() for each in mask}
        wanted = View.of(Content.BODY, images, fields=fields, mask=rules, integers=integers)
        view, narrowed = narrow(grant, wanted, criteria)
        if narrowed is not criteria:
            check_weight(weigh(narrowed), self.limits)
        return view, narrowed

    def page_bytes(self) -> int:
        """How many bytes the next page may have.

        Raises:
            TooCostly: If the pages before it have taken everything that the answer may hold.
        """
        if self.left <= 0:
            most = self.limits.answer_bytes
            cheaper = "to ask for fewer pages at once"
            raise TooCostly("answer_bytes", most - self.left, most, cheaper, what="bytes of the pages")
        return min(self.limits.history_bytes, self.left)
