"""What became of the rows of a page while it was read."""

from publishers.blocks.block import Block
from publishers.snapshots.pages import SnapshotPage
from publishers.state.row_actions import RowActions
from publishers.state.rows import RowPlace, StoredRow

__all__ = ["PageChanges"]


class PageChanges:
    """The rows of a page, without what changes since then have made of them.

    A page that is read "now" has of some changes the effect and of others not. A key that was changed meanwhile is not given
    as a row, as the subscriber has got the change, which is as new; or as the change has left it, if changes are not wanted
    for what they are (by their operation, say).

    Args:
        plain: Whether of each row that is wanted every change is given.
    """

    def __init__(self, plain: bool) -> None:
        self._plain = plain
        self._low = 0
        self._kept: dict[RowPlace, StoredRow] | None = None
        self._page: list[StoredRow] = []

    @property
    def rows(self) -> list[StoredRow]:
        """The rows, as of the newest version that was added."""
        return self._page if self._kept is None else list(self._kept.values())

    def begin(self, page: SnapshotPage) -> None:
        """The page that was read."""
        self._low, self._page = page.low, page.rows
        self._kept = None if page.low == page.version else {row.place: row for row in page.rows}

    def add(self, block: Block) -> None:
        """Changes, in their order; again is harmless."""
        kept = self._kept
        if kept is None or block.version <= self._low:
            return
        actions = RowActions()
        actions.add(block.columns, block.version, block.first_index, block.committed_at)
        known = {row.place for row in self._page}
        if actions.cleared:
            for place in [place for place in kept if place.entity_type in actions.cleared]:
                del kept[place]
        for changed, row in actions.rows.items():
            place = RowPlace(*changed)
            if row is None or self._plain:
                kept.pop(place, None)
            elif place in known:
                kept[place] = row
