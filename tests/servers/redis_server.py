"""A Redis that syncs each command."""

import shutil
from pathlib import Path

from tests.harness.missing import skip_without
from tests.servers.program import Program


class RedisServer(Program):
    """A server without a password.

    Args:
        folder: For its data.
    """

    name = "Redis"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if shutil.which("redis-server") is None:
            skip_without("redis-server (make servers installs it)")

    def command(self) -> list[str]:
        """See `Program.command`."""
        told = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": "", "appendonly": "yes"}
        told["appendfsync"] = "always"
        told["databases"] = 32
        return ["redis-server", *(part for name, value in told.items() for part in (f"--{name}", str(value)))]

    def answers(self) -> bool:
        """See `Program.answers`."""
        import redis

        with redis.Redis(port=self.port, socket_timeout=2) as client:
            return bool(client.ping())
