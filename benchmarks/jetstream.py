"""NATS JetStream: a stream in files, shared by a pull consumer with explicit acknowledgements."""

import asyncio
import contextlib
import importlib
import shutil
import socket
import subprocess
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from publishers import Mutation

try:
    nats = importlib.import_module("nats")
except ImportError:
    nats = None

__all__ = ["JetStream", "jet_stream"]

_WAIT = 30.0


class JetStream:
    """A server of its own on a local socket. With ``synced`` it syncs each message, otherwise every two minutes."""

    def __init__(self, place: Path, *, synced: bool) -> None:
        self.name = f"NATS JetStream, sync_interval={'always' if synced else '2m'}"
        directory = place / "nats"
        directory.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        config = directory / "server.conf"
        interval = "always" if synced else '"2m"'
        config.write_text(
            f'host: "127.0.0.1"\nport: {port}\njetstream {{ store_dir: "{directory}", sync_interval: {interval} }}\n'
        )
        self._server = subprocess.Popen(
            [str(shutil.which("nats-server")), "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._runner = asyncio.Runner()
        self._client = self._run(self._connect(port))
        self._stream = self._client.jetstream()
        self._run(self._stream.add_stream(name="changes", subjects=["changes"], num_replicas=1))

    def write(self, rows: Sequence[Mutation]) -> None:
        """Publishes rows, and waits until the server has all of them."""

        async def publish() -> None:
            # Published concurrently: one by one, each would wait for an answer of the server.
            await asyncio.gather(*(self._stream.publish("changes", row.body or b"") for row in rows))

        self._run(publish())

    def share(self, group: str, most: int) -> int:
        """Reads and acknowledges all messages with a new consumer, ``most`` at a time; returns their number."""
        return int(self._run(self._share(group, most)))

    def close(self) -> None:
        """Ends the client and the server."""
        with contextlib.suppress(Exception):
            self._run(self._client.close())
        self._runner.close()
        self._server.terminate()
        self._server.wait(_WAIT)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    @staticmethod
    async def _connect(port: int) -> Any:
        end = time.monotonic() + _WAIT
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                return await nats.connect(f"nats://127.0.0.1:{port}", allow_reconnect=False)
            except OSError:  # the server has not started yet
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.05)

    async def _share(self, group: str, most: int) -> int:
        left = (await self._stream.stream_info("changes")).state.messages
        config = nats.js.api.ConsumerConfig(max_ack_pending=max(most, 1), deliver_policy="all")
        consumer = await self._stream.pull_subscribe("changes", durable=group, config=config)
        done = 0
        while done < left:
            found = await consumer.fetch(min(most, left - done), timeout=_WAIT)
            for one in found[:-1]:
                await one.ack()
            await found[-1].ack_sync()  # then the server has all earlier messages as well
            done += len(found)
        await consumer.unsubscribe()
        await self._stream.delete_consumer("changes", group)
        return done


def jet_stream(place: Path, *, synced: bool) -> JetStream | None:
    """The peer, if it is installed on this machine."""
    return JetStream(place, synced=synced) if nats is not None and shutil.which("nats-server") else None
