"""TLS on real sockets: good, wrong, expired and missing certificates, mutual TLS, and certificates exchanged while it runs."""

import asyncio
import json
import shutil
import socket
import ssl
import urllib.request
from datetime import timedelta

import pytest

from publishers.errors import InvalidOption
from publishers.mutations.mutation import upsert
from tests.harness.inside import ended_of
from tests.transports.certificates import Authority
from tests.transports.principals import knowing
from transports import (
    AnyOf,
    ConnectionLost,
    Forbidden,
    Grant,
    Limits,
    PeerCertificates,
    ServerCertificate,
    TokenFile,
    connect,
    serve,
)

TLS = Limits(request_timeout=2.0, stall_timeout=3.0)


@pytest.fixture
def ours(tmp_path):
    return Authority(tmp_path)


def peer_of(port, context, name="localhost"):
    """The certificate that a server shows, as its serial number."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname=name) as wrapped,
    ):
        return wrapped.getpeercert()["serialNumber"]


def fetch(url, context):
    with urllib.request.urlopen(url, timeout=60, context=context) as answer:
        return json.load(answer)


async def test_every_transport_speaks_tls(log, dial, graphql, ours):
    """F98: WebSockets of both protocols, HTTP and the Python client; and nothing else on that port."""
    with serve(log, tls=ServerCertificate(*ours.issue("server"))) as server:
        assert server.url.startswith("wss://")
        assert server.health_url.startswith("https://")
        log.commit([upsert("order", "1", {"a": "b" * 100_000})])
        context = ours.trusting()
        async with dial(server.url, ssl=context) as wire:
            await wire.init()
            await wire.subscribe(start="earliest", credits=10, content="BODY")
            assert len(await wire.events(2)) == 2
        told = await asyncio.to_thread(fetch, server.health_url, context)
        assert told["status"] == "ok"
        async with graphql(_Secure(server), ssl=context) as other:
            await other.init()
            await other.subscribe("subscription { onChange(start: {place: EARLIEST}) { key body } }")
            assert len(await other.events(2)) == 2
        async with connect(server.url, ssl=context) as remote:
            assert await remote.schema("order") is None
        with socket.create_connection(("127.0.0.1", server.port), 10) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in plain.recv(100)


class _Secure:
    def __init__(self, server):
        self.graphql_url = server.graphql_url.replace("https:", "wss:")


async def test_a_client_refuses_a_server_that_it_cannot_trust(log, ours, tmp_path):
    """F98: another authority, another name, and a certificate that is over; each names what is wrong."""
    theirs = Authority(tmp_path, "theirs")
    for shown, trusted, says in (
        (ours.issue("server"), theirs, "certificate verify failed"),
        (ours.issue("elsewhere", names=("shop.example",)), ours, "verify failed"),
        (ours.issue("old", ends=timedelta(hours=-1)), ours, "expired"),
    ):
        with (
            serve(log, tls=ServerCertificate(*shown)) as server,
            pytest.raises(ssl.SSLCertVerificationError, match=says),
        ):
            await asyncio.to_thread(peer_of, server.port, trusted.trusting())


@pytest.mark.parametrize("shown", [None, "theirs", "expired"])
async def test_mutual_tls_lets_in_no_client_without_a_certificate_of_its_authorities(
    log, ours, tmp_path, until, shown
):
    """F98: before anything else is heard of it."""
    theirs = Authority(tmp_path, "theirs")
    pairs = {
        None: (),
        "theirs": theirs.issue("bob", file="theirs-bob"),
        "expired": ours.issue("bob", ends=timedelta(hours=-1)),
    }
    certificate = ServerCertificate(*ours.issue("server"), client_ca=ours.path)
    assert certificate.mutual
    with serve(log, tls=certificate, authenticate=PeerCertificates()) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, urllib.error.URLError)):
            await asyncio.to_thread(fetch, server.health_url, ours.trusting(*pairs[shown]))
        good = await asyncio.to_thread(
            fetch, server.health_url, ours.trusting(*ours.issue("ann", file="ann"))
        )
        assert "logs" in good
        await until(lambda: ended_of(server.application)["TLS_REFUSED"] == 1)
        with pytest.raises(ConnectionLost, match="no certificate that it accepts"):
            async with connect(server.url, ssl=ours.trusting(*pairs[shown])):
                pass
        await until(lambda: ended_of(server.application)["TLS_REFUSED"] == 2)


async def test_a_principal_is_who_its_certificate_says(log, dial, graphql, ours):
    """F98, F140: over every transport; or who its token says, if the server takes both."""
    asked = []

    def authorise(principal, name, action):
        asked.append(principal.name)
        if principal.name not in ("ann", "token"):
            raise Forbidden("log", "one of yours")
        return Grant()

    certificate = ServerCertificate(*ours.issue("server"), client_ca=ours.path)
    both = AnyOf(_Quick(knowing("token")), PeerCertificates(allowed=["ann", "bob"]))
    with serve(log, tls=certificate, authenticate=both, authorise=authorise) as server:
        ann, bob, eve = (ours.trusting(*ours.issue(name)) for name in ("ann", "bob", "eve"))
        async with dial(server.url, ssl=ann) as wire, dial(server.url, ssl=bob) as second:
            await wire.init()
            await wire.subscribe()
            await second.init()
            assert (await second.fail())["code"] == "FORBIDDEN"
        async with dial(server.url, ssl=eve) as wire:
            await wire.send(type="connection_init", payload={})
            assert (await wire.closed())[0] == 4403
        async with dial(server.url, ssl=bob) as wire:
            await wire.init(token="token")
            await wire.subscribe()
        async with graphql(_Secure(server), ssl=ann) as other:
            await other.init()
            await other.subscribe()
            await other.settled()
        assert "shop" in (await asyncio.to_thread(fetch, server.health_url, ann))["logs"]
        assert "shop" not in (await asyncio.to_thread(fetch, server.health_url, bob))["logs"]
    assert set(asked) == {"ann", "bob", "token"}


class _Quick:
    quick = True

    def __init__(self, authenticate):
        self._authenticate = authenticate

    def __call__(self, credentials):
        return self._authenticate(credentials)


async def test_certificates_are_exchanged_without_dropping_a_connection(log, dial, ours, tmp_path):
    """F98: new connections get the new one, and are held to the new authorities; broken files change nothing."""
    paths = ours.issue("server")
    authorities = tmp_path / "authorities.pem"
    shutil.copy(ours.path, authorities)
    certificate = ServerCertificate(*paths, client_ca=authorities)
    theirs = Authority(tmp_path, "theirs")
    client, other = ours.issue("ann"), theirs.issue("bob", file="theirs-bob")
    with serve(log, tls=certificate, authenticate=PeerCertificates()) as server:
        async with dial(server.url, ssl=ours.trusting(*client)) as wire:
            await wire.init()
            await wire.subscribe(credits=10)
            first = await asyncio.to_thread(peer_of, server.port, ours.trusting(*client))
            ours.issue("server")
            shutil.copy(theirs.path, authorities)
            certificate.reload()
            newer = ours.trusting(*other)
            second = await asyncio.to_thread(peer_of, server.port, newer)
            assert first != second
            assert "logs" in await asyncio.to_thread(fetch, server.health_url, newer)
            with pytest.raises((ssl.SSLError, ConnectionError, urllib.error.URLError)):
                await asyncio.to_thread(fetch, server.health_url, ours.trusting(*client))
            authorities.write_text("nothing")
            with pytest.raises(InvalidOption, match="tls-client-ca"):
                certificate.reload()
            assert await asyncio.to_thread(peer_of, server.port, newer) == second
            log.commit([upsert("order", "1", {})])
            assert len(await wire.events(2)) == 2


def test_files_that_are_no_certificates_are_refused_in_words(ours, tmp_path):
    """F98: the parameter, the file, and what would be right; never what is in it."""
    certificate, key = ours.issue("server")
    _, other = ours.issue("other")
    locked = ours.issue("locked", password=b"SECRET")[1]
    junk = tmp_path / "junk.pem"
    junk.write_text("SECRET")
    for given, named, says in (
        ((certificate, other), {}, "tls-key is .*other.key"),
        ((certificate, locked), {}, "tls-key is .*locked.key.* without a password"),
        ((str(junk), key), {}, "tls-cert is .*junk.pem"),
        ((certificate,), {}, "tls-cert is .*server.pem"),
        ((str(tmp_path / "none"), key), {}, "tls-cert is .*No such file"),
        ((certificate, str(tmp_path / "none")), {}, "tls-key is .*No such file"),
        ((certificate, key), {"client_ca": str(junk)}, "tls-client-ca is .*junk.pem"),
        ((certificate, key), {"client_ca": str(tmp_path / "none")}, "tls-client-ca is .*No such file"),
    ):
        with pytest.raises(InvalidOption, match=says) as caught:
            ServerCertificate(*given, **named)
        assert "SECRET" not in str(caught.value)


async def test_a_client_that_does_not_shake_hands_is_cut_off(log, ours):
    """F98: it has as long as for the head of a request."""
    with serve(log, tls=ServerCertificate(*ours.issue("server")), limits=TLS) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()


async def test_a_client_that_takes_nothing_is_cut_off_under_tls_too(log, dial, ours, fill, until):
    """F98, F147."""
    limits = Limits(stall_timeout=3.0)
    with serve(log, tls=ServerCertificate(*ours.issue("server")), limits=limits) as server:
        async with (
            dial(server.url, ssl=ours.trusting()) as stuck,
            dial(server.url, ssl=ours.trusting()) as live,
        ):
            await stuck.init()
            await stuck.subscribe(credits=10**6, content="BODY")
            # What this one is sent has room in the kernel, however late it is taken.
            await live.init()
            await live.subscribe(credits=10**6)
            stuck.socket.transport.pause_reading()
            last = await asyncio.to_thread(fill, 100, body="z" * 200_000)
            assert len(await live.events(2 * last)) == 2 * last
            await until(lambda: server.application.connections == 1)
            assert dict(ended_of(server.application)) == {"STALLED": 1}
            stuck.socket.transport.resume_reading()


async def test_a_token_file_under_tls_is_asked_as_without(log, dial, ours, tmp_path):
    """F98."""
    path = tmp_path / "tokens"
    path.write_text("ann:one\n")
    with serve(log, tls=ServerCertificate(*ours.issue("server")), authenticate=TokenFile(path)) as server:
        async with dial(server.url, ssl=ours.trusting()) as wire:
            await wire.init(token="one")
