"""Whom a webhook trusts: addresses, TLS, secrets and signatures."""

import time
from datetime import UTC, datetime, timedelta

import httpcore
import pytest
import standardwebhooks

from penstock_cdc.errors import InvalidOption
from tests.transports.certificates import Authority
from tests.transports.sinks.receivers import OK, Receiver, server_context
from tests.transports.sinks.targets import HandClock
from tests.transports.sinks.test_webhook import SECRET
from tests.transports.sinks.webhooks import BATCH, LOOPBACK
from transports.sinks import (
    SecretReference,
    TargetRefused,
    TargetUnavailable,
)
from transports.sinks.network import AddressGuard, GuardedNetwork
from transports.sinks.webhook import WebhookSink, WebhookTls, sign


class TestSignature:
    """F99: Standard Webhooks."""

    def test_it_is_that_of_the_published_example(self, monkeypatch):
        # https://github.com/standard-webhooks/standard-webhooks, the tests of its libraries
        monkeypatch.setenv("HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        told = sign(
            [SecretReference("env:HOOK")],
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
        )
        assert told == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    def test_while_secrets_rotate_either_verifies(self, receiver, sinks, monkeypatch, tmp_path):
        other = "bmV3LXNlY3JldC1uZXctc2VjcmV0LW5ldy1zZWNyZXQ="
        monkeypatch.setenv("HOOK", SECRET)
        (tmp_path / "new").write_text(f"{other}\n")
        sink = sinks(receiver.url, secrets=["env:HOOK", SecretReference(f"file:{tmp_path / 'new'}")])
        monkeypatch.setattr(HandClock, "now_us", lambda _self: int(datetime.now(UTC).timestamp() * 1e6))
        sink.write(BATCH)
        (tmp_path / "new").write_text(SECRET)  # counts at once
        sink.write(BATCH)
        first, second = receiver.received
        for secret in (SECRET, other):
            told = standardwebhooks.Webhook(secret).verify(first.body, first.headers)
            assert told["format"] == "penstock.webhook.v1"
        parts = second.headers["webhook-signature"].split(" ")
        assert len(parts) == 2
        assert parts[0] == parts[1]

    @pytest.mark.parametrize("kept", ["", "not base64!", "whsec_", "ÿ"])
    def test_a_secret_that_is_none_is_refused_and_not_told(self, receiver, sinks, monkeypatch, kept):
        monkeypatch.setenv("HOOK", kept)
        with pytest.raises(TargetRefused) as caught:
            sinks(receiver.url, secrets=["env:HOOK"]).write(BATCH)
        assert "env:HOOK" in str(caught.value)
        assert not kept or kept not in str(caught.value)
        assert receiver.received == []

    def test_a_file_that_is_not_there_is_named(self, receiver, sinks, tmp_path):
        with pytest.raises(TargetRefused, match="No such file"):
            sinks(receiver.url, secrets=[f"file:{tmp_path / 'none'}"]).write(BATCH)
        (tmp_path / "bytes").write_bytes(b"\xff")
        with pytest.raises(TargetRefused, match="UTF-8"):
            sinks(receiver.url, secrets=[f"file:{tmp_path / 'bytes'}"]).write(BATCH)


class TestGuard:
    """F94, F142: a URL reaches public addresses only, whatever its name resolves to."""

    @pytest.mark.parametrize(
        "address",
        [
            "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
            "0.0.0.0", "224.0.0.1", "255.255.255.255", "240.0.0.1", "::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd12::1",
            "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1",
            "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1",
        ],
    )  # fmt: skip
    def test_what_is_not_public_is_refused(self, address):
        assert not AddressGuard().allows(address)

    @pytest.mark.parametrize(
        "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
    )
    def test_what_is_public_is_not(self, address):
        assert AddressGuard().allows(address)

    def test_networks_may_be_allowed_also_in_other_forms(self):
        guard = AddressGuard(["10.1.0.0/16", "fd00::/8"])
        assert guard.allows("10.1.2.3")
        assert guard.allows("::ffff:10.1.2.3")
        assert guard.allows("fd00::1")
        assert not guard.allows("10.2.0.1")
        with pytest.raises(InvalidOption):
            AddressGuard(["10.0.0.1/8"])

    def test_a_local_receiver_is_refused_unless_it_is_meant(self, receiver, sinks):
        with pytest.raises(TargetRefused, match=r"127\.0\.0\.1 is not public"):
            sinks(receiver.url.replace("localhost", "127.0.0.1"), allow=[]).write(BATCH)
        assert receiver.connections == 0

    @pytest.mark.parametrize(
        "private", ["10.0.0.5", "127.0.0.1", "::1", "::ffff:10.0.0.5", "169.254.169.254"]
    )
    def test_of_several_addresses_of_a_name_only_those_that_may_be_reached_are_tried(self, private):
        """F142: whichever comes first."""
        tried = []

        class Plain:
            def connect_tcp(self, address, *_):
                tried.append(address)
                raise httpcore.ConnectError("down")

        public = ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"]
        found = [public[0], private, public[1]]
        for addresses in (found, found[::-1]):
            tried.clear()
            network = GuardedNetwork(
                AddressGuard(), lambda *_, of=addresses, **__: [(0, 0, 0, "", (one, 80)) for one in of]
            )
            network._plain = Plain()  # nothing is to be reached from here
            network.deadline = time.monotonic() + 60
            with pytest.raises(httpcore.ConnectError):
                network.connect_tcp("shop.example", 80)
            assert sorted(tried) == sorted(public)

    def test_a_name_is_resolved_once_for_each_connection_and_what_was_checked_is_connected_to(self, receiver):
        """F142: against rebinding: a second answer of the name server is never asked for."""
        asked = []

        def resolve(host, port, **_):
            asked.append(host)
            address = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
            return [(2, 1, 6, "", (address, port))]

        network = GuardedNetwork(AddressGuard(LOOPBACK), resolve)
        network.deadline = time.monotonic() + 60.0
        with httpcore.ConnectionPool(network_backend=network) as pool:
            for _ in range(2):
                answer = pool.request("POST", f"http://rebound.example:{receiver.port}/", content=b"x")
                assert answer.status == 200
            assert receiver.received[0].headers["host"] == f"rebound.example:{receiver.port}"
        assert asked == ["rebound.example"]
        with httpcore.ConnectionPool(network_backend=network) as pool, pytest.raises(TargetRefused):
            pool.request("POST", f"http://rebound.example:{receiver.port}/", content=b"x")

    def test_of_several_addresses_the_next_one_is_tried(self, receiver):
        def resolve(_host, port, **_):
            return [(2, 1, 6, "", (address, port)) for address in ("10.0.0.1", "127.0.0.9", "127.0.0.1")]

        network = GuardedNetwork(AddressGuard(LOOPBACK), resolve)
        network.deadline = time.monotonic() + 60.0
        network.connect_tcp("many.example", receiver.port).close()

    def test_a_name_that_there_is_not_may_be_there_later(self, sinks):
        def resolve(*_, **__):
            raise OSError("Name or service not known")

        sink = sinks("http://nowhere.example/")
        sink._network._resolve = resolve
        with pytest.raises(TargetUnavailable, match="has no address"):
            sink.write(BATCH)


class TestTls:
    """F98: good, wrong, expired and missing certificates."""

    @pytest.fixture
    def ours(self, tmp_path):
        return Authority(tmp_path)

    def test_the_receiver_is_known_by_its_certificate_and_knows_the_sink_by_its_own(self, ours, sinks):
        cert, key = ours.issue("server")
        mine = ours.issue("sink", file="sink")
        with Receiver(server_context(cert, key, ours.path)) as receiver:
            tls = WebhookTls(ca=ours.path, cert=mine[0], key=mine[1])
            assert not sinks(receiver.url, tls=tls).write(BATCH)
            assert not sinks(receiver.url.replace("localhost", "127.0.0.1"), tls=tls).write(BATCH)
            with pytest.raises(TargetUnavailable):
                sinks(receiver.url, tls=WebhookTls(ca=ours.path)).write(BATCH)
            with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                sinks(receiver.url).write(BATCH)

    def test_a_name_may_be_given_and_a_wrong_one_is_refused(self, ours, sinks):
        cert, key = ours.issue("server", names=("hooks.shop.example",), file="named")
        with Receiver(server_context(cert, key)) as receiver:
            named = WebhookTls(ca=ours.path, server_name="hooks.shop.example")
            assert not sinks(receiver.url, tls=named).write(BATCH)
            with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
                sinks(receiver.url, tls=WebhookTls(ca=ours.path)).write(BATCH)

    def test_an_expired_one_is_refused_unless_any_will_do_which_is_logged(self, ours, sinks, caplog):
        cert, key = ours.issue("server", ends=timedelta(hours=-1), file="old")
        with Receiver(server_context(cert, key)) as receiver:
            with pytest.raises(TargetUnavailable, match="expired"):
                sinks(receiver.url, tls=WebhookTls(ca=ours.path)).write(BATCH)
            assert "any certificate" not in caplog.text
            assert not sinks(receiver.url, tls=WebhookTls(insecure_skip_verify=True)).write(BATCH)
            assert "accepts any certificate" in caplog.text

    def test_files_are_read_when_it_is_made(self, ours, tmp_path):
        (tmp_path / "none.pem").write_text("none")
        for wrong in ({"ca": str(tmp_path / "none.pem")}, {"cert": str(tmp_path / "no")}, {"key": "x"}):
            with pytest.raises(InvalidOption):
                WebhookTls(**wrong)


class TestSecrets:
    def test_nothing_that_is_told_has_a_secret_in_it(self, receiver, sinks, monkeypatch, caplog):
        monkeypatch.setenv("TOKEN", "s3cr3t-token")
        url = receiver.url.replace("http://", "http://ann:pa55word@") + "?key=s3cr3t-query"
        receiver.plan = [OK, (404, {}, b"")]
        sink = sinks(url, headers={"X-Token": "env:TOKEN", "x-plain": "plain:hello"})
        sink.write(BATCH)
        told = receiver.received[0]
        assert told.headers["authorization"] == "Basic YW5uOnBhNTV3b3Jk"
        assert (told.headers["x-token"], told.headers["x-plain"]) == ("s3cr3t-token", "hello")
        assert told.target == "/hook?key=s3cr3t-query"
        with pytest.raises(TargetRefused) as caught:
            sink.write(BATCH)
        for text in (repr(sink), str(caught.value), caplog.text):
            assert "s3cr3t" not in text
            assert "pa55word" not in text
        assert repr(sink) == f"<WebhookSink {receiver.url}>"

    def test_the_address_may_be_kept_elsewhere_and_is_not_told_then(self, receiver, sinks, monkeypatch):
        monkeypatch.setenv("HOOK_URL", receiver.url)
        receiver.plan = [(404, {}, b"")]
        sink = sinks("env:HOOK_URL")
        with pytest.raises(TargetRefused, match=r"^env:HOOK_URL answered 404$"):
            sink.write(BATCH)
        monkeypatch.setenv("HOOK_URL", "ftp://x/")
        with pytest.raises(InvalidOption) as caught:
            sinks("env:HOOK_URL")
        assert "ftp" not in str(caught.value)
        assert repr(WebhookSink("env:HOOK_URL")) == "<WebhookSink env:HOOK_URL>"

    def test_references_are_compared_and_told_without_what_they_hold(self):
        assert SecretReference("env:A") == SecretReference("env:A") != SecretReference("env:B")
        assert len({SecretReference("env:A"), SecretReference("env:A")}) == 1
        assert repr(SecretReference("plain:x")) == "<SecretReference plain:...>"
        for wrong in ("whsec_abc", "env:", "file", "s3cr3t:x"):
            with pytest.raises(InvalidOption) as caught:
                SecretReference(wrong)
            assert "abc" not in str(caught.value)
            assert "s3cr3t" not in str(caught.value)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"url": "ftp://x/"}, {"url": "http:///x"}, {"url": "http://[::1/"}, {"url": "http://x:99999/"},
            {"url": "http://x/\n"}, {"profile": "xml"}, {"timeout": 0}, {"headers": {"Webhook-Id": "plain:x"}},
            {"headers": {"a b": "plain:x"}}, {"headers": {"host": "plain:x"}}, {"secrets": ["whsec_x"]},
        ],
    )  # fmt: skip
    def test_arguments_are_checked(self, wrong):
        with pytest.raises(InvalidOption):
            WebhookSink(**{"url": "http://x.example/", **wrong})

    def test_a_header_that_cannot_be_sent_is_refused(self, receiver, sinks, monkeypatch):
        monkeypatch.setenv("TOKEN", "s3cr3t\r\nx: y")
        with pytest.raises(TargetRefused, match="header") as caught:
            sinks(receiver.url, headers={"x-token": "env:TOKEN"}).write(BATCH)
        assert "s3cr3t" not in str(caught.value)
