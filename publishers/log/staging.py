"""Staged transactions: other processes seal the changes on storage shared with the log, and the owner commits them."""

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
    """Everything that other processes need in order to seal parts of a transaction; it can be pickled.

    Attributes:
        directory: Directory of the log, which must have this name in those processes too.
        transaction: Unique name of the transaction among the staged ones.
        annotations: JSON of the transaction.
        options: Options of the log.
        abandoned: Number of files of earlier, ended transactions that were found and removed.
    """

    directory: Path
    transaction: str
    annotations: bytes
    options: LogOptions
    abandoned: int

    def seal(self, batches: Iterable[Columns], part: str, versions: Mapping[str, int]) -> StagedPart:
        """Seals a part into a file of its own.

        Args:
            batches: The changes of the part.
            part: Name of this attempt at the part, unique in the transaction.
            versions: Schema version by entity type, with which the changes are stamped.

        Raises:
            TransactionTooLarge: If a change, or the part, exceeds a bound of the log.
            OSError: If the file cannot be written.
        """
        stamped: Iterable[Columns] = (with_versions(columns, versions) for columns in batches)
        if self.options.origin is not None:
            stamped = map(Origin(self.options.origin).columns, stamped)
        return stage_part(
            stamped,
            self.annotations,
            options=self.options,
            filesystem=RealFileSystem(self.options.readers),  # the owner has to read it
            directory=self.directory,
            transaction=self.transaction,
            part=part,
        )


class Staged(NamedTuple):
    """The staged parts of a transaction.

    Attributes:
        parts: The parts, in order.
        versions: Schema version by entity type of the stamped changes; these schemas must already be committed.
    """

    parts: Sequence[StagedPart]
    versions: Mapping[str, int]


Stage = Callable[[Staging], Staged]
"""Makes other processes seal the parts of a transaction, each once or more, and returns the attempts to commit."""
