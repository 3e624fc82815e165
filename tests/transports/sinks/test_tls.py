"""TLS to Kafka, PostgreSQL and search engines: whom they know, who knows them, by which name, and when nothing is verified."""

import socket
import ssl
import struct
import threading

import pytest

from penstock_cdc.errors import InvalidOption
from tests.publishers.support import wait_until
from tests.transports.certificates import Authority
from tests.transports.sinks.receivers import server_context
from tests.transports.sinks.targets import rigged
from transports.sinks import SinkState
from transports.sinks.cache import CacheSink
from transports.sinks.config import read_sinks
from transports.sinks.kafka import KafkaSink
from transports.sinks.search import SearchSink
from transports.sinks.sql import SqlSink
from transports.sinks.tls import TargetTls

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)


class Handshakes:
    """Takes connections, does the handshake, notes who came or why it failed, and hangs up."""

    def __init__(self, context, *, postgresql=False):
        self.done, self.failed = [], []
        self._context, self._postgresql = context, postgresql
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(30)
            with connection:
                try:
                    if self._postgresql:
                        assert connection.recv(8) == _SSL_REQUEST
                        connection.sendall(b"S")
                    with self._context.wrap_socket(connection, server_side=True) as secure:
                        # TLS 1.3: a client that refuses says so behind its own end of the handshake.
                        secure.recv(1)
                        subject = dict(one[0] for one in (secure.getpeercert() or {}).get("subject", ()))
                        self.done.append(subject.get("commonName"))
                except (OSError, AssertionError, ValueError) as error:  # the last: it has left already
                    self.failed.append(error)


def kafka(port, tls):
    return KafkaSink(f"localhost:{port}", "orders", tls=tls, timeout=1.0)


def postgresql(port, tls):
    return SqlSink(f"postgresql://ann@localhost:{port}/shop", tls=tls, timeout=2.0)


def search(port, tls):
    return SearchSink(f"https://localhost:{port}", tls=tls, timeout=2.0)


def cache(port, tls):
    return CacheSink(f"rediss://localhost:{port}", tls=tls, timeout=2.0)


TARGETS = pytest.mark.parametrize("make", [kafka, postgresql, search, cache])


@pytest.fixture
def ours(tmp_path):
    return Authority(tmp_path)


def met(ours, make, tls, tmp_path, **server):
    """Who the server has met: names, or None for a client without a certificate; nothing if the handshake failed."""
    cert, key = ours.issue("server", file="server", **server)
    context = server_context(cert, key, ours.path)
    context.verify_mode = ssl.CERT_OPTIONAL
    with (
        Handshakes(context, postgresql=make is postgresql) as target,
        rigged(tmp_path / "log", make(target.port, tls)) as rig,
    ):
        rig.commit(1)

        def tried():
            rig.later(40.0)
            rig.runner.step()
            return target.done or target.failed

        wait_until(tried)
        assert rig.runner.counters.changes == 0
        if "does not match" in (rig.runner.statistics().last_error or ""):
            return []  # libpq compares names behind the handshake, and sends nothing then
        return target.done


@TARGETS
def test_a_target_is_known_by_its_certificate_and_knows_the_sink_by_its_own(ours, tmp_path, make):
    """F98: mutual TLS."""
    cert, key = ours.issue("sink", file="sink")
    (tmp_path / "sink.key").chmod(0o600)  # libpq takes no other
    found = met(ours, make, TargetTls(ca=ours.path, cert=cert, key=key), tmp_path)
    assert found[:1] == ["sink"]


@TARGETS
def test_one_of_another_authority_or_name_is_refused(ours, tmp_path, make):
    """F98."""
    other = Authority(tmp_path, "theirs")
    assert met(ours, make, TargetTls(ca=other.path), tmp_path) == []
    assert met(ours, make, TargetTls(ca=ours.path), tmp_path, names=("other.example",)) == []


@TARGETS
def test_nothing_is_verified_where_that_is_said_by_name_which_is_logged(ours, tmp_path, make, caplog):
    """F98."""
    other = Authority(tmp_path, "theirs")
    assert met(ours, make, TargetTls(ca=other.path, insecure_skip_verify=True), tmp_path)[:1] == [None]
    assert "accepts any certificate" in caplog.text


@pytest.mark.parametrize("make", [postgresql, search])
def test_a_name_may_be_given_in_place_of_that_of_the_address(ours, tmp_path, make):
    """F98."""
    tls = TargetTls(ca=ours.path, server_name="db.shop.example")
    assert met(ours, make, tls, tmp_path, names=("db.shop.example",))[:1] == [None]


def test_brokers_tell_their_own_names(ours, tmp_path):
    """F98: and a cache has that of its address, over TLS."""
    with pytest.raises(InvalidOption, match="server_name"):
        cache(9092, TargetTls(ca=ours.path, server_name="x"))
    with rigged(tmp_path / "log", CacheSink("redis://localhost:1", tls=TargetTls(ca=ours.path))) as rig:
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
        assert "speaks no TLS" in rig.runner.statistics().reason
    with pytest.raises(InvalidOption, match="server_name"):
        kafka(9092, TargetTls(ca=ours.path, server_name="x"))


def test_each_of_them_may_be_declared_with_files_beside_that_of_the_sinks(ours, tmp_path):
    """F98, F109."""
    ours.issue("sink", file="sink")
    (tmp_path / "penstock.toml").write_text(
        'log = "x"\n'
        + "".join(
            f'[[sinks]]\nname = "{name}"\nkind = "{name}"\n{address}\n'
            'tls = { ca = "ours.ca.pem", cert = "sink.pem", key = "sink.key" }\n'
            for name, address in (
                ("kafka", 'servers = "localhost:1"'),
                ("search", 'url = "https://localhost:1"'),
                ("cache", 'url = "rediss://localhost:1"'),
                ("sql", 'url = "postgresql://localhost/x"'),
            )
        )
    )
    told = read_sinks(tmp_path / "penstock.toml")
    assert {one.sink._tls.ca for one in told.sinks.values()} == {ours.path}
