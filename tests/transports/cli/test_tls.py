"""TLS on the command line: of a server, and of those who ask it."""

import signal

import pytest

from publishers.errors import InvalidOption
from tests.transports.certificates import Authority
from tests.transports.cli.test_program import one_line
from transports.cli import main
from transports.client.remote_log import connect
from transports.tcp.trust import trusting


@pytest.fixture
def ours(tmp_path):
    return Authority(tmp_path)


def test_an_operator_serves_with_a_certificate_and_exchanges_it_while_it_runs(start, log, fill, ours, capsys):
    """F98: good, wrong and missing certificates of both sides, and another name, from the command line."""
    fill(2)
    certificate, key = ours.issue("server", names=("shop.example",))
    mine = ours.issue("ann")
    options = ["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", ours.path]
    with start("serve", log.path, "--port", "0", *options) as server:
        url = next(part.rstrip(",") for part in server.stdout.readline().split() if "wss:" in part)
        shown = ["--cert", mine[0], "--cert-key", mine[1]]
        named = ["--server-name", "shop.example"]
        tail = ["tail", url, "--since", "earliest", "--limit", "2"]
        for command in (tail, ["stats", url], ["schema", url]):
            assert main([*command, "--ca", ours.path, *shown, *named]) == 0
            capsys.readouterr()
            for wrong in (["--ca", ours.path, *shown], [*shown, *named], ["--ca", ours.path, *named]):
                assert main([*command, *wrong]) == 1
                assert "Traceback" not in capsys.readouterr().err
            assert main([*command, *shown, "--insecure-tls"]) == 0
            assert "is not checked" in capsys.readouterr().err
        ours.issue("server", names=("other.example",))
        server.send_signal(signal.SIGHUP)
        assert "read the certificate again" in server.stdout.readline()
        other = ["--server-name", "other.example"]
        assert main(["stats", url, "--ca", ours.path, *shown, *named]) == 1
        assert main(["stats", url, "--ca", ours.path, *shown, *other]) == 0
        with open(certificate, "w", encoding="utf-8") as broken:
            broken.write("nothing")
        server.send_signal(signal.SIGHUP)
        said = server.stderr.readline()
        assert "tls-cert is" in said
        assert "the previous version stays in force" in said
        assert main(["stats", url, "--ca", ours.path, *shown, *other]) == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tls-key", "k"], "--tls-key is 'k', but must be left out without --tls-cert"),
        (["--tls-client-ca", "c"], "--tls-client-ca is 'c', but must be left out without --tls-cert"),
        (["--tls-cert", "nowhere"], "tls-cert is 'nowhere'"),
        (["--host", "0.0.0.0"], "unless --policy, --token-file or --tls-client-ca authenticates clients"),
    ],
)
def test_options_of_tls_that_do_not_fit_are_refused_before_anything_is_opened(
    log, capsys, monkeypatch, arguments, says
):
    """F98."""
    assert main(["serve", str(log.path), "--port", "0", *arguments]) == 2
    assert says in one_line(capsys)


@pytest.mark.parametrize("command", ["tail", "stats", "schema"])
def test_what_is_for_tls_is_refused_for_an_address_without_it(command, capsys):
    """F98: lest a token goes out in the clear of which its owner thinks otherwise."""
    assert main([command, "ws://127.0.0.1:1/ws", "--ca", "x.pem"]) == 2
    assert "--ca is 'x.pem', but must be left out for ws://127.0.0.1:1/ws, which has no TLS" in one_line(
        capsys
    )


def test_files_of_a_client_are_refused_in_words(ours, tmp_path):
    """F98, F141."""
    certificate, key = ours.issue("ann")
    locked = ours.issue("locked", password=b"SECRET")
    junk = tmp_path / "junk"
    junk.write_text("SECRET")
    for given, says in (
        ({"ca": junk}, "--ca is .*junk"),
        ({"ca": tmp_path / "none"}, "No such file"),
        ({"certificate": junk}, "--cert is .*junk"),
        ({"certificate": certificate}, "--cert is .*ann.pem"),
        ({"certificate": locked[0], "key": locked[1]}, "the key has a password"),
        ({"key": key}, "--cert-key is .*left out without --cert"),
    ):
        with pytest.raises(InvalidOption, match=says) as caught:
            trusting(**given)
        assert "SECRET" not in str(caught.value)


def test_a_client_without_tls_is_told_that_it_has_none(ours):
    """F98."""
    for given in ({"ssl": ours.trusting()}, {"server_name": "x"}):
        with pytest.raises(InvalidOption, match="a URL that begins with wss://"):
            connect("ws://127.0.0.1:1/ws", **given)
