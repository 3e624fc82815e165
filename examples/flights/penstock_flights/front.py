"""The parts of the demo that run before the first flight: the server with the board, and a log of the demo's own steps."""

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock_cdc import ChangeLog, Server, serve, upsert
from penstock_cdc.errors import ServerFailed
from penstock_flights.pages import board_pages

__all__ = ["STAGE", "Front"]

STAGE: Final = "$demo"
"""The name of the log of the demo's steps; the board shows its newest entry until flights come."""

_ENTITY: Final = "stage"

_PORT: Final = 8090


class Front:
    """Serves the board while Spark starts; the logs with flights join as they are opened.

    Attributes:
        logs: The served logs by name.
        queries: Publishes the events of Spark's queries.
        server: The server. Stop it before closing a log that was added to ``logs``.

    Args:
        directory: The directory of the log of steps; a log of an earlier run is deleted.
        port: The port of the server; None for the default port, or any free port if that is in use.

    Raises:
        OSError: If the port cannot be used.
        PenstockError: If the log cannot be opened.
    """

    def __init__(self, directory: Path, port: int | None) -> None:
        if directory.exists():
            shutil.rmtree(directory)
        self._log = ChangeLog.open(directory, sync="os")
        self._said: str | None = None
        self.logs = {STAGE: self._log}
        self.queries: Callable[[], Mapping[str, Any]] = dict
        try:
            self.server = self._listen(port)
        except BaseException:
            self._log.close()
            raise

    def say(self, text: str) -> None:
        """Commits a step to the demo's own log, unless it repeats the previous step."""
        if text != self._said:
            self._said = text
            self._log.commit([upsert(_ENTITY, "now", json.dumps({"text": text}).encode())])

    def close(self) -> None:
        """Stops the server, and closes the demo's own log. Idempotent."""
        self.server.stop()
        self._log.close()

    def _read_queries(self) -> Mapping[str, Any]:
        return self.queries()

    def _listen(self, port: int | None) -> Server:
        serving = partial(serve, self.logs, pages=board_pages(), spark_queries=self._read_queries)
        try:
            return serving(port=_PORT if port is None else port)
        except ServerFailed as error:
            if port is not None:
                raise OSError(f"{error}; choose another --port") from None
            return serving()
