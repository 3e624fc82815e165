"""Opening a log for writing: the lock, recovery, a new epoch; or nothing of it, with the reason."""

import contextlib
from pathlib import Path
from typing import NamedTuple

from flow.clock import Clock
from publishers.errors import LogFailed, LogFull, NotALog
from publishers.options import LogOptions
from publishers.wal.append.writer import Writer
from publishers.wal.disk.access import check_openable
from publishers.wal.disk.filesystem import FileSystem, means_full
from publishers.wal.disk.reserve import Reserve
from publishers.wal.files.directory import check_names
from publishers.wal.peers import Peers
from publishers.wal.recover.recovery import Recovered, recover

__all__ = ["Owned", "own"]


class Owned(NamedTuple):
    """What an owner has in hand once a log is open.

    Attributes:
        directory: Of the log.
        peers: Its lock, and its followers.
        reserve: Room for what must be written on a full disk.
        writer: Ready to append, in a new epoch.
        recovered: What was found.
    """

    directory: Path
    peers: Peers
    reserve: Reserve
    writer: Writer
    recovered: Recovered

    def close(self) -> None:
        """Closes every file, and lets others own the log; nothing is written."""
        self.writer.close()
        self.recovered.catalog.close()
        self.recovered.head.close()
        self.peers.close()


def own(path: Path, options: LogOptions, filesystem: FileSystem, clock: Clock) -> Owned:
    """Takes the lock, recovers what a crash may have left, or creates the log, and begins an epoch; see `Wal.open`."""
    with contextlib.ExitStack() as stack:
        try:
            try:
                filesystem.make_directory(path)
                check_names(path, filesystem.listing(path))
            except (FileExistsError, NotADirectoryError):
                raise NotALog(path, "it is not a directory") from None
            peers = Peers(filesystem, path)
            stack.callback(peers.close)
            reserve = Reserve(filesystem, path, options)
            recovered = recover(filesystem, path, options, clock.now_us(), reserve, peers.tail)
            stack.callback(recovered.head.close)
            stack.callback(recovered.active.close)
            stack.callback(recovered.catalog.close)
            catalog, head, epoch, active, chain, tables, _ = recovered
            writer = Writer(
                filesystem, path, options, clock, catalog, head, epoch, active, chain, tables, reserve
            )
            stack.callback(writer.close)
            # Before a new epoch, which may begin a segment: links are made in the order of the segments.
            peers.link(lambda: catalog.entries, options.held_max_bytes)
            writer.open_epoch()
            _fill(reserve)
            peers.sign(epoch)
        except OSError as error:
            if means_full(error):
                free = None
                with contextlib.suppress(OSError):
                    free = filesystem.free_bytes(path)
                raise LogFull(free, options.fill_step) from error
            check_openable(error, path)
            raise LogFailed("refused", str(error), opening=True) from error
        stack.pop_all()
        return Owned(path, peers, reserve, writer, recovered)


def _fill(reserve: Reserve) -> None:
    """Keeps room back; where there is none, the log is opened without, and takes no changes yet."""
    try:
        reserve.fill()
    except OSError as error:
        if not means_full(error):
            raise
