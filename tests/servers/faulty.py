"""A proxy that does to the bytes between a client and a server what networks and dying servers do."""

import contextlib
import enum
import select
import socket
import struct
import threading
from typing import Self

from tests.harness.ports import free_port


class Fault(enum.Enum):
    """What becomes of connections."""

    NONE = "passes everything on"
    REFUSE = "takes no connections, and ends those that there are"
    RESET = "resets a connection when the client sends something"
    HALF = "passes half of an answer on, and ends the connection"
    MUTE = "passes requests on, and ends the connection before the answer"
    STALL = "takes requests, and answers nothing"
    SLOW = "passes answers on in pieces"
    HOLD = "passes nothing on, and ends nothing: it goes on when this is over"


class FaultyProxy:
    """Passes connections on to a port of 127.0.0.1.

    Args:
        target: That port.

    Attributes:
        port: Its own.
        hit: How often a fault was done.
        target: Where it leads to.
    """

    def __init__(self, target: int = 0) -> None:
        self.port = free_port()
        self.hit = 0
        self.target = target
        self._fault = Fault.NONE
        self._changed = threading.Condition()
        self._ended = False
        self._listens = False
        self._pairs: set[socket.socket] = set()
        self._forgotten: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    @property
    def fault(self) -> Fault:
        """What it does now."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        with self._changed:
            self._fault = fault
            self._changed.notify_all()
        if fault is Fault.REFUSE:
            self._unlisten()
            self.sever()
        elif not self._listens:
            self._listen()

    def sever(self) -> None:
        """Ends all connections."""
        for one in list(self._pairs):
            _reset(one)

    def forget(self) -> None:
        """Never again passes anything on for the connections that there are, and does not end them either."""
        self._forgotten |= self._pairs

    def __enter__(self) -> Self:
        self._socket = socket.socket()  # one for all its life, which a fixture of a module may have begun
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self.port))
        self._listen()
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._unlisten()
        self.sever()
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _listen(self) -> None:
        self._socket.listen(64)
        with self._changed:
            self._listens = True
            self._changed.notify_all()

    def _unlisten(self) -> None:
        with self._changed:
            listened, self._listens = self._listens, False
        if listened:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # it stays bound, and may listen again

    def _begin(self, work, *arguments) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        """For as long as the proxy lives, also while it listens to nobody."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._listens or self._ended)
            if self._ended:
                return
            try:
                client, _ = self._socket.accept()
            except OSError:
                continue  # it refuses from now on
            self._begin(self._pass_on, client)

    def _pass_on(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
        except OSError:
            _reset(client)
            client.close()
            return
        pair = {client, server}
        self._pairs |= pair
        try:
            while self._step(client, server):
                pass
        except OSError:
            pass
        finally:
            self._pairs -= pair
            for one in pair:
                _reset(one)
                one.close()

    def _step(self, client: socket.socket, server: socket.socket) -> bool:
        ready, _, _ = select.select([client, server], [], [], 1.0)
        if self._holds(client) or self._ended:
            return not self._ended
        if client in ready:
            data = client.recv(1 << 16)
            fault = self._fault
            if not data:
                return False
            if fault is Fault.RESET:
                self.hit += 1
                return False
            if fault is Fault.STALL:
                self.hit += 1
                with self._changed:
                    self._changed.wait_for(lambda: self._fault is not Fault.STALL or self._ended)
                return False
            server.sendall(data)
        if server in ready:
            data = server.recv(1 << 16)
            fault = self._fault
            if not data:
                return False
            if fault in (Fault.MUTE, Fault.HALF):
                self.hit += 1
                if fault is Fault.HALF:
                    client.sendall(data[: len(data) // 2])
                return False
            if fault is Fault.SLOW:
                self.hit += 1
                for at in range(0, len(data), 7):
                    client.sendall(data[at : at + 7])
                return True
            client.sendall(data)
        return True

    def _holds(self, client: socket.socket) -> bool:
        """Waits while nothing is passed on; returns whether that was so."""

        def held() -> bool:
            return (self._fault is Fault.HOLD or client in self._forgotten) and not self._ended

        if not held():
            return False
        self.hit += 1
        with self._changed:
            self._changed.wait_for(lambda: not held())
        return True


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)
