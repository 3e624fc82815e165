"""Our server of the Redis protocol as a program of its own, which writes to its log as long as it runs."""

import json
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from publishers import ChangeLog, upsert
from tests.servers.program import Program
from transports import Grant, LogAction, ServerCertificate, TokenFile, serve_resp

ROOT = Path(__file__).parents[2]
PACE = 0.003  # seconds from one commit to the next


class RespProgram(Program):
    """A server that commits a change a few hundred times a second, until its log has as many as it should.

    Args:
        folder: For its log.
        total: The last version.
        tokens: The file of tokens of which clients have to show one; None if they need none.
        certificate: The paths of its certificate and key; None for plain text.
    """

    name = "penstock"

    def __init__(
        self, folder: Path, total: int, tokens: str | None = None, certificate: tuple[str, str] | None = None
    ) -> None:
        super().__init__(folder)
        self._told = {"folder": str(folder), "port": self.port, "total": total}
        self._told |= {"tokens": tokens, "certificate": certificate}

    def command(self) -> list[str]:
        """See `Program.command`."""
        return [sys.executable, "-m", "tests.servers.resp_server", json.dumps(self._told)]

    def environment(self) -> dict[str, str]:
        """See `Program.environment`."""
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def answers(self) -> bool:
        """See `Program.answers`."""
        socket.create_connection(("127.0.0.1", self.port), 2).close()
        return True


def main(folder: str, port: int, total: int, tokens: str | None, certificate: Any) -> None:
    """Serves until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    served: dict[str, Any] = {"authorise": Grant({LogAction.READ, LogAction.CONSUME}, groups={"*"})}
    if tokens is not None:
        served["authenticate"] = TokenFile(tokens)
    if certificate is not None:
        served["tls"] = ServerCertificate(*certificate)
    with ChangeLog.open(Path(folder, "shop")) as log, serve_resp(log, port=port, **served):
        while not ended.wait(PACE):
            version = log.head.version
            if version <= total:
                log.commit([upsert("order", str(version), {"n": version})])


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
