"""A Kafka broker of one node (KRaft), unmodified, from Maven."""

import os
import subprocess
from pathlib import Path

from tests.harness.ports import free_port
from tests.servers.program import Program, jars, java

_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{advertised},INTERNAL://127.0.0.1:{internal}
inter.broker.listener.name=INTERNAL
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT
log.dirs={folder}/data
num.partitions=3
auto.create.topics.enable={create}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.flush.interval.messages=1
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=200
"""


class KafkaBroker(Program):
    """A broker; a topic that is not there is made with three partitions.

    Args:
        folder: For its data.
        advertised: The port that clients are told to connect to, such as that of a proxy; None for its own.
        create: Whether topics are made when somebody asks for them.
    """

    name = "the Kafka broker"

    def __init__(self, folder: Path, *, advertised: int | None = None, create: bool = True) -> None:
        super().__init__(folder)
        self._classes = os.pathsep.join(map(str, jars("kafka")))
        self._java = java()
        told = _SETTINGS.format(
            controller=free_port(),
            internal=free_port(),
            port=self.port,
            advertised=advertised or self.port,
            folder=folder,
            create=str(create).lower(),
        )
        (folder / "server.properties").write_text(told)
        (folder / "data").mkdir(exist_ok=True)
        self._tool(
            "kafka.tools.StorageTool", "format", "-t", "cGVuc3RvY2stdGVzdHMtMQ", "-c", "server.properties"
        )

    @property
    def servers(self) -> str:
        """What clients take for ``bootstrap.servers``."""
        return f"127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """See `Program.environment`."""
        return {**os.environ, "CLASSPATH": self._classes}

    def command(self) -> list[str]:
        """See `Program.command`."""
        quick = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [self._java, *quick, "kafka.Kafka", "server.properties"]

    def answers(self) -> bool:
        """See `Program.answers`."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return bool(admin.list_topics(timeout=2).brokers)

    def _tool(self, *arguments: str) -> None:
        subprocess.run(
            [self._java, "-XX:TieredStopAtLevel=1", *arguments],
            cwd=self.folder,
            env=self.environment(),
            check=True,
            capture_output=True,
            timeout=120,
        )
