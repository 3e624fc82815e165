"""A minimal receiver of webhooks in a process of its own: ``python -m benchmarks.hook_process`` prints its port."""

import asyncio

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_LENGTH = b"content-length:"


class Hook(asyncio.Protocol):
    """Answers each request once its body has arrived."""

    def __init__(self) -> None:
        self._got = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        got = self._got
        got += data
        while (end := got.find(b"\r\n\r\n")) >= 0:
            head = bytes(got[:end]).lower()
            size = int(head[head.index(_LENGTH) + len(_LENGTH) :].split(b"\r\n", 1)[0])
            if len(got) < end + 4 + size:
                return
            del got[: end + 4 + size]
            assert self._transport is not None
            self._transport.write(_ANSWER)


async def main() -> None:
    """Serves until it is killed."""
    server = await asyncio.get_running_loop().create_server(Hook, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
