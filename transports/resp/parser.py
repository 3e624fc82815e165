r"""Parses commands from the bytes of a client, however they are fragmented.

A command is an array of bulk strings, ``*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n``, or a line of words, as people type them (Redis
protocol specification, "Sending commands to a Redis server" and "Inline commands"). Nested arrays are not commands, so there
is no recursion.
"""

import re
from typing import Final

__all__ = ["CommandParser", "RespViolation"]

_CRLF: Final = b"\r\n"
_LINE: Final = 64 * 1024  # bytes of an inline command, as in Redis
_HEAD: Final = 32  # bytes of a line with a length
_WHOLE: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_HTTP: Final = frozenset({b"POST", b"HOST:"})
_EMPTY: Final = re.compile(rb"(?:\*0\r\n|\r?\n){1,128}")  # so many cost one step
_EACH: Final = 16  # bytes that an argument costs beside its own


class RespViolation(Exception):
    """The bytes are not a command. The client gets an error and the connection closes, because nothing behind them can be parsed."""


class CommandParser:
    """Turns bytes into commands. Its memory is bounded by the largest command plus the bytes it is fed beyond that.

    Args:
        most: The most bytes of the arguments of one command, plus 16 for each.
        arguments: The most arguments of one command, including its name.

    Attributes:
        most: As the argument; a change applies from the next argument on.
        arguments: As the argument; a change applies from the next command on.
        taken: The number of commands returned.
        steps: The arguments, and dozens of empty commands, that are parsed before ``next`` pauses.
        paused: Whether ``next`` has returned None for want of steps, and not of bytes.
    """

    def __init__(self, most: int, arguments: int) -> None:
        self.most = most
        self.arguments = arguments
        self.taken: int = 0
        self.steps: int = 2**63
        self.paused: bool = False
        self._buffer = bytearray()
        self._seen = 0  # leading bytes of the buffer that contain no end of line
        self._left: int | None = None  # arguments still to come; None between commands
        self._length: int | None = None  # bytes of the argument that is arriving
        self._found: list[bytes] = []
        self._weight = 0
        self._broken: RespViolation | None = None

    @property
    def held(self) -> int:
        """Bytes that have arrived and are not returned yet."""
        return len(self._buffer) + self._weight

    @property
    def within(self) -> bool:
        """Whether a command has begun to arrive and is incomplete."""
        return self._broken is None and (self._left is not None or bool(self._buffer))

    def feed(self, data: bytes) -> None:
        """Appends bytes to the buffer."""
        if self._broken is None:
            self._buffer += data

    def next(self) -> list[bytes] | None:
        """Returns the next command, beginning with its name; None if it is incomplete, or the parser has paused.

        Raises:
            RespViolation: If the bytes are not a command; raised again by each further call.
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
        self.paused = False
        while True:
            if self._left is None:
                if not self._buffer or self._pauses():
                    return None
                if (empty := _EMPTY.match(self._buffer)) is not None:
                    del self._buffer[: empty.end()]
                    self._seen = 0
                    continue
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
                if count <= 0:  # Redis ignores these
                    continue
                self._left, self._found, self._weight = count, [], 0
            while self._left:
                if self._pauses() or (argument := self._bulk()) is None:
                    return None
                self._found.append(argument)
                self._left -= 1
            found, self._found, self._left, self._weight = self._found, [], None, 0
            return found

    def _pauses(self) -> bool:
        self.steps -= 1
        self.paused = self.steps < 0
        return self.paused

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
        """Returns a line without its first byte; None if it is incomplete."""
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
        """Returns the words of an inline command; None if it is incomplete."""
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
            # A web page in a browser on this machine can send such a request, with a body of its choice, to any port.
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
