"""A process that contends for a lease, and as long as it has it writes a log and carries it on: to lines of a file.

A line is one batch, written at once to the end of the file: epoch of the lease, generation of the slot, and positions.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[2]))

import sqlalchemy

from publishers import ChangeLog, Images, Position, upsert
from publishers.errors import LogBusy
from transports.sinks import FileLeases, Lease, SinkOptions, SinkRunner
from transports.sinks.sql_leases import SqlLeases


class Lines:
    """A sink: appends to the file."""

    stores_position: ClassVar[bool] = False
    idempotent: ClassVar[bool] = False
    partial: ClassVar[bool] = False
    ordered: ClassVar[bool] = True
    images: ClassVar[Images | None] = None

    def __init__(self, path: str, lease: Lease) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._lease = lease

    def open(self, context: Any) -> Position | None:
        self._generation = context.generation
        return None

    def write(self, batch: Any) -> None:
        places = " ".join(str(change.position) for change in batch.changes)
        os.write(self._file, f"{self._lease.epoch} {self._generation} {places}\n".encode())

    def flush(self) -> None: ...
    def move(self, position: Position) -> None: ...
    def close(self) -> None: ...
    def alive(self) -> bool:
        return True


def main(folder: str, kind: str) -> None:
    place = Path(folder)
    if kind == "sql":
        engine = sqlalchemy.create_engine(f"sqlite:///{place}/leases", connect_args={"timeout": 0.1})
        store: Any = SqlLeases(engine, "out", create=True)
        seconds = 4.0
    else:
        store, seconds = FileLeases(place / "lease"), 100.0
    pause = threading.Event()  # never set
    options = SinkOptions(since="earliest", linger=0.0, batch_changes=3, store_every=0)
    with Lease(store, seconds=seconds, every=0.1, margin=1.0) as lease:
        os.write(1, b"ready\n")
        while True:
            pause.wait(0.005)
            if not lease.held():
                continue
            try:
                log = ChangeLog.open(place / "log", sync="os", fill_step=0, segment_bytes=1 << 20)
            except LogBusy:
                continue
            with log, SinkRunner(log, "out", Lines(f"{place}/target", lease), options, lease=lease):
                os.write(1, b"leads\n")
                while lease.held():
                    log.commit([upsert("row", str(log.head.version), {}) for _ in range(2)])
                    pause.wait(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])
