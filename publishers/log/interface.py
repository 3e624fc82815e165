"""What a log in this process and a log of a server have in common."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol

from flow.bridges.iterators import IterablePublisher
from publishers.commits import Commit, TransactionBuilder
from publishers.commits.expectation import Expect
from publishers.criteria.criteria import Criteria, Criterion
from publishers.fanout.gap import OnGap
from publishers.log.start import Since
from publishers.model.change import Change
from publishers.mutations.mutation import Mutation
from publishers.snapshots import SnapshotMode
from publishers.views.masking import Rule
from publishers.views.view import Content, Images, Integers

__all__ = ["Log"]


class Log(Protocol):
    """A ``ChangeLog``, or a ``RemoteLog``: what is written for one runs with the other.

    What one of them has besides is in its class. Slots and groups have the same names in both; those of a server are awaited.
    """

    def changes(
        self,
        *criteria: Criterion | Criteria | None,
        since: Since = None,
        until: int | None = None,
        content: Content = Content.HEADER,
        images: Images = Images.WRITTEN,
        fields: Collection[str] | None = None,
        mask: Mapping[str, Rule | str] | None = None,
        integers: Integers = Integers.NUMBER,
        whole: bool = False,
        on_gap: OnGap = "fail",
        snapshot: SnapshotMode | None = None,
    ) -> IterablePublisher[Change]:
        """A publisher of changes; see ``ChangeLog.changes``."""
        ...

    def transaction(
        self,
        *,
        meta: Mapping[str, Any] | None = None,
        producer: tuple[str, int] | None = None,
        expect: Expect | None = None,
    ) -> TransactionBuilder:
        """A block that collects changes and commits them at its end; see ``ChangeLog.transaction``."""
        ...

    def commit(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: tuple[str, int] | None = None,
        expect: Expect | None = None,
    ) -> Commit:
        """Commits a transaction, off the event loop; see ``ChangeLog.commit``."""
        ...

    async def commit_async(
        self,
        mutations: Iterable[Mutation],
        *,
        meta: Mapping[str, Any] | None = None,
        producer: tuple[str, int] | None = None,
        expect: Expect | None = None,
    ) -> Commit:
        """Commits a transaction, on an event loop; see ``ChangeLog.commit_async``."""
        ...
