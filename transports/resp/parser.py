r"""Commands, out of the bytes of a client as they come, however these are cut.

A command is an array of bulk strings, ``*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n``, or a line of words, as people type them (Redis protocol
specification, "Sending commands to a Redis server" and "Inline commands"). Arrays in arrays are no commands, so nothing nests.
"""

import re
from typing import Final

__all__ = ["CommandParser", "RespViolation"]

_CRLF: Final = b"\r\n"
_LINE: Final = 64 * 1024  # bytes of a command in one line, as Redis has it
_HEAD: Final = 32  # bytes of a line that tells a length
_WHOLE: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_HTTP: Final = frozenset({b"POST", b"HOST:"})
_EACH: Final = 16  # bytes that an argument costs beside its own


class RespViolation(Exception):
    """What came is no command: the client is told, and the connection closed, as nothing behind it can be understood."""


class CommandParser:
    """Takes bytes, and gives commands. What it holds is bounded: by the largest command, and by what it is fed beyond that.

    Args:
        most: Bytes of the arguments of one command, each counted with 16 more.
        arguments: Arguments of one command, its name counted.

    Attributes:
        most: Likewise; from the next argument on.
        arguments: Likewise; from the next command on.
        taken: How many commands were given.
    """

    def __init__(self, most: int, arguments: int) -> None:
        self.most = most
        self.arguments = arguments
        self.taken = 0
        self._buffer = bytearray()
        self._seen = 0  # bytes of the buffer in which no end of a line was found
        self._left: int | None = None  # arguments that are to come; None between commands
        self._length: int | None = None  # bytes of the one that is coming
        self._found: list[bytes] = []
        self._weight = 0
        self._broken: RespViolation | None = None

    @property
    def held(self) -> int:
        """Bytes that have come and were not given yet."""
        return len(self._buffer) + self._weight

    @property
    def within(self) -> bool:
        """Whether a part of a command has come, and the rest has not."""
        return self._broken is None and (self._left is not None or bool(self._buffer))

    def feed(self, data: bytes) -> None:
        """Takes what came."""
        if self._broken is None:
            self._buffer += data

    def next(self) -> list[bytes] | None:
        """The next command, its name first; None if the rest of it has not come.

        Raises:
            RespViolation: If what came is none; again each time.
        """
        if self._broken is not None:
            raise self._broken
        try:
            found = self._next()
        except RespViolation as error:
            self._broken = error
            self._buffer.clear()
            self._found, self._weight = [], 0
            raise
        self.taken += found is not None
        return found

    def _next(self) -> list[bytes] | None:
        while True:
            if self._left is None:
                if not self._buffer:
                    return None
                if self._buffer[:1] != b"*":
                    words = self._inline()
                    if words is None or words:
                        return words
                    continue
                line = self._line("mbulk count")
                if line is None:
                    return None
                count = _number(line, "multibulk length")
                if count > self.arguments:
                    raise RespViolation(f"invalid multibulk length: more than {self.arguments} arguments")
                if count <= 0:  # Redis passes these over
                    continue
                self._left, self._found, self._weight = count, [], 0
            while self._left:
                argument = self._bulk()
                if argument is None:
                    return None
                self._found.append(argument)
                self._left -= 1
            found, self._found, self._left, self._weight = self._found, [], None, 0
            return found

    def _bulk(self) -> bytes | None:
        if self._length is None:
            if self._buffer and self._buffer[:1] != b"$":
                raise RespViolation(f"expected '$', got {chr(self._buffer[0])!a}")
            line = self._line("bulk count")
            if line is None:
                return None
            length = _number(line, "bulk length")
            self._weight += length + _EACH
            if length < 0 or self._weight > self.most:
                raise RespViolation(f"invalid bulk length: a command holds up to {self.most} bytes")
            self._length = length
        end = self._length + len(_CRLF)
        if len(self._buffer) < end:
            return None
        if self._buffer[self._length : end] != _CRLF:
            raise RespViolation("invalid bulk length: no end of a line behind it")
        found = bytes(memoryview(self._buffer)[: self._length])
        del self._buffer[:end]
        self._length = None
        return found

    def _line(self, what: str) -> bytes | None:
        """What stands between the mark at the beginning and the end of the line; None if that has not come."""
        end = self._buffer.find(_CRLF, max(self._seen - 1, 0), _HEAD)
        if end < 0:
            self._seen = len(self._buffer)
            if self._seen >= _HEAD:
                raise RespViolation(f"too big {what} string")
            return None
        self._seen = 0
        found = bytes(self._buffer[1:end])
        del self._buffer[: end + len(_CRLF)]
        return found

    def _inline(self) -> list[bytes] | None:
        """The words of a line; None if its end has not come."""
        most = min(_LINE, self.most)
        end = self._buffer.find(b"\n", self._seen, most)
        if end < 0:
            self._seen = len(self._buffer)
            if self._seen >= most:
                raise RespViolation("too big inline request")
            return None
        self._seen = 0
        words = bytes(self._buffer[:end]).split()
        del self._buffer[: end + 1]
        if words and words[0].upper() in _HTTP:
            # A page in a browser of this machine can send such a request, and what stands in its body, to any port.
            raise RespViolation("this is the port of the Redis protocol, and not of HTTP")
        if len(words) > self.arguments or sum(map(len, words)) + _EACH * len(words) > self.most:
            raise RespViolation("too big inline request")
        if any(word[:1] in (b'"', b"'") for word in words):
            raise RespViolation("unbalanced quotes in request: quotes are not read in lines, send an array")
        return words


def _number(text: bytes, what: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise RespViolation(f"invalid {what}")
    return int(text)
