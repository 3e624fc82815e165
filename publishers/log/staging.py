"""Transactions whose changes other processes seal, on storage that they share with the log, and that the owner commits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from publishers.log.origin import Origin
from publishers.options import LogOptions
from publishers.schemas.stamping import with_versions
from publishers.wal import Columns, RealFileSystem
from publishers.wal.append.staged import StagedPart, stage_part

__all__ = ["Stage", "Staged", "Staging"]


@dataclass(frozen=True, slots=True)
class Staging:
    """What other processes need to know of a transaction to seal parts of it; it can be pickled.

    Attributes:
        directory: That of the log, which they have to see under this name.
        transaction: Its name among those that are staged.
        annotations: JSON of the transaction.
        options: Of the log.
        abandoned: Files of transactions before it, which were over, that were found and removed.
    """

    directory: Path
    transaction: str
    annotations: bytes
    options: LogOptions
    abandoned: int

    def seal(self, batches: Iterable[Columns], part: str, versions: Mapping[str, int]) -> StagedPart:
        """Seals a part into a file of its own.

        Args:
            batches: Its changes.
            part: Names this attempt at it, as no other one of the transaction is named.
            versions: Of entity types the version of the schema that their changes are stamped with.

        Raises:
            TransactionTooLarge: If a change, or the part, is above a bound of the log.
            OSError: If the file cannot be written.
        """
        stamped: Iterable[Columns] = (with_versions(columns, versions) for columns in batches)
        if self.options.origin is not None:
            stamped = map(Origin(self.options.origin).columns, stamped)
        return stage_part(
            stamped,
            self.annotations,
            options=self.options,
            filesystem=RealFileSystem(),
            directory=self.directory,
            transaction=self.transaction,
            part=part,
        )


class Staged(NamedTuple):
    """What was staged of a transaction.

    Attributes:
        parts: In their order.
        versions: Those that changes were stamped with; they have to be told by now.
    """

    parts: Sequence[StagedPart]
    versions: Mapping[str, int]


Stage = Callable[[Staging], Staged]
"""Has the parts of a transaction sealed, each of them once or more, and returns those that count."""
