"""A node of OpenSearch, unmodified, from Maven, embedded in a program of 30 lines."""

import os
import urllib.request
from pathlib import Path

from tests.harness.ports import free_port
from tests.servers.program import HERE, Program, jars, java


class SearchNode(Program):
    """A node without security.

    Args:
        folder: For its data.
    """

    name = "OpenSearch"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._classes = os.pathsep.join(map(str, jars("search")))
        self._java = java()
        self._transport = free_port()
        (folder / "config").mkdir(exist_ok=True)

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """See `Program.environment`."""
        return {**os.environ, "CLASSPATH": self._classes}

    def command(self) -> list[str]:
        """See `Program.command`."""
        quick = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        told = [
            str(HERE / "search" / "SearchNode.java"),
            str(self.folder),
            str(self.port),
            str(self._transport),
        ]
        return [self._java, *quick, *told]

    def answers(self) -> bool:
        """See `Program.answers`."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(
            f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=1s", timeout=3
        ) as answer:
            return bool(answer.status == 200)
