"""Receivers of webhooks on loopback that fail on purpose."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading

OK = (200, {}, b"")


class Received:
    def __init__(self, target, headers, body):
        self.target, self.headers, self.body = target, headers, body


class Receiver:
    """A real HTTP server that answers as its plan says: a triple of status, headers and body, or the name of a way to fail.

    ``reset``, ``die`` (after the request, before the answer), ``half`` (of an answer), ``garbage``, ``silent`` (until it is closed),
    ``drip`` (a byte now and then).
    """

    def __init__(self, tls=None):
        self.plan = []
        self.otherwise = lambda _request: OK
        self.received = []
        self.connections = 0
        self.released = threading.Event()
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://localhost:{self.port}/hook"
        self._threads = []
        self._open = []
        self._serve = threading.Thread(target=self._accept)
        self._serve.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.released.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._serve.join()
        for thread in self._threads:
            thread.join()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._talk, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _talk(self, connection):
        with connection, contextlib.suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            with connection, connection.makefile("rb") as stream:
                while (request := self._read(stream)) is not None:
                    self.received.append(request)
                    told = self.plan.pop(0) if self.plan else self.otherwise(request)
                    if isinstance(told, str):
                        getattr(self, f"_{told}")(connection)
                        return
                    status, headers, body = told
                    told_headers = {"content-length": str(len(body)), **headers}
                    lines = "".join(f"{name}: {value}\r\n" for name, value in told_headers.items())
                    connection.sendall(f"HTTP/1.1 {status} Told\r\n{lines}\r\n".encode() + body)

    @staticmethod
    def _read(stream):
        first = stream.readline()
        if not first:
            return None
        headers = {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return Received(first.split()[1].decode(), headers, stream.read(int(headers["content-length"])))

    def _reset(self, connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _die(self, connection):
        pass

    def _half(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")

    def _garbage(self, connection):
        connection.sendall(b"not http at all\r\n\r\n")

    def _silent(self, connection):
        self.released.wait(60)

    def _drip(self, connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not self.released.wait(0.02):
            connection.sendall(b".")


def server_context(cert, key, client_ca=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def asgi(app):
    """Answers as an ASGI application does."""

    def answer(request):
        headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": request.target,
            "raw_path": request.target.encode(),
            "query_string": b"",
            "headers": headers,
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }
        sent = []

        async def receive():
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message):
            sent.append(message)

        asyncio.run(app(scope, receive, send))
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], {}, body

    return answer


def closed_port():
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
