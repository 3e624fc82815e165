"""Requests written as bytes, for attacks that no library would send."""

import asyncio

__all__ = ["CHUNKED", "JSON", "Client", "head"]


def head(path, *lines, method="POST"):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *lines, "", ""]).encode()


CHUNKED = "transfer-encoding: chunked"
JSON = "content-type: application/json"


class Client:
    """A connection on which bytes are written as they are."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer

    @property
    def answered(self):
        """Whether something of a response has come, or the end."""
        return bool(self._reader._buffer) or self._reader.at_eof()

    async def send(self, data):
        """Writes until everything is sent, or the connection is reset; returns whether it is not."""
        try:
            for at in range(0, len(data), 1 << 16):
                self._writer.write(data[at : at + (1 << 16)])
                await self._writer.drain()
        except ConnectionError:
            return False
        return True

    async def answer(self):
        """The status, the head and the body of the next response; None if the connection was aborted."""
        try:
            async with asyncio.timeout(60):
                top = (await self._reader.readuntil(b"\r\n\r\n")).decode()
                length = int(top.lower().partition("content-length: ")[2].partition("\r")[0] or 0)
                return int(top.split()[1]), top, await self._reader.readexactly(length)
        except (ConnectionError, asyncio.IncompleteReadError):
            return None

    async def rest(self):
        """What comes until the end."""
        async with asyncio.timeout(60):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    def close(self):
        self._writer.close()
