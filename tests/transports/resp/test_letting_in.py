"""Who is let in to the port of the Redis protocol, and what each may do: by the same objects as elsewhere."""

import ssl
import subprocess
from shutil import which

import pytest
import redis

from publishers import Content, Criteria, Criterion, View, upsert
from tests.publishers.support import wait_until
from tests.transports.certificates import Authority
from tests.transports.resp.conftest import DEADLINE
from transports import Grant, LogAction, PeerCertificates, Principal, ServerCertificate, TokenFile


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("ann:secret\nbob:other\n")
    return TokenFile(path)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("username", [None, "default", "ann"])
def test_a_token_lets_a_stock_client_in(resp, stock, fill, tokens, protocol, username):
    """F133: with the name of the principal, or none."""
    fill(1)
    client = stock(resp(authenticate=tokens), protocol=protocol, username=username, password="secret")
    assert len(client.execute_command("CDCPOLL", 0, 10)) == 1


@pytest.mark.parametrize(("username", "password"), [(None, "wrong"), ("bob", "secret"), ("nobody", "wrong")])
def test_a_wrong_token_or_name_lets_nobody_in(resp, stock, tokens, username, password):
    """F133."""
    client = stock(resp(authenticate=tokens), username=username, password=password)
    with pytest.raises(redis.AuthenticationError, match=r"WRONGPASS|invalid username-password"):
        client.ping()


def test_a_stranger_may_say_who_it_is_and_nothing_else(resp, raw, tokens):
    """F133: in small commands, and soon."""
    server = resp(authenticate=tokens, request_timeout=0.5)
    client = raw(server)
    for words in (["PING"], ["CDCPOLL", "0", "1"], ["NONSENSE"], ["HELLO", "3"], ["COMMAND"]):
        client.send(*words)
        assert client.line().startswith(b"-NOAUTH ")
    client.write(b"*11\r\n")
    assert b"-ERR Protocol error: invalid multibulk length" in client.rest()
    large = raw(server)
    large.write(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n")
    assert b"-ERR Protocol error: invalid bulk length" in large.rest()
    silent = raw(server)
    assert b"-NOAUTH Authentication required, within" in silent.rest()


@pytest.mark.parametrize(
    "words",
    [
        ["AUTH", "wrong"],
        ["AUTH", "bob", "secret"],
        ["HELLO", "3", "AUTH", "ann", "other"],
        ["HELLO"],
        ["PING"],
    ],
)
def test_a_connection_is_refused_so_often_and_no_more(resp, raw, tokens, words):
    """F133: each refusal asks the authenticator, however many commands come at once."""
    asked = []

    def authenticate(credentials):
        asked.append(credentials)
        return tokens(credentials)

    authenticate.quick = True
    server = resp(authenticate=authenticate, resp_refusals=5)
    client = raw(server)
    client.send(*words, times=50)
    assert client.rest().count(b"\r\n") == 5
    assert len(asked) == 5
    assert server.figures()["ended"] == {"UNAUTHORIZED": 1}


def test_a_token_that_is_shown_again_costs_no_authentication(resp, raw, tokens):
    """F133: until it may have been taken away."""
    asked = []

    def authenticate(credentials):
        asked.append(credentials)
        return tokens(credentials)

    authenticate.quick = True
    authenticate.revision = 0
    client = raw(resp(authenticate=authenticate))
    for _ in range(50):
        client.send("AUTH", "secret")
        assert client.line() == b"+OK"
    assert len(asked) == 1
    authenticate.revision = 1
    client.send("AUTH", "ann", "secret")
    assert client.line() == b"+OK"
    assert len(asked) == 2


def test_a_token_that_is_taken_away_counts_no_more(resp, stock, fill, tokens, tmp_path):
    """F133: from the next command on."""
    fill(1)
    client = stock(resp(authenticate=tokens), password="secret")
    assert client.ping()
    (tmp_path / "tokens").write_text("bob:other\n")
    tokens.reload()
    with pytest.raises(redis.RedisError, match=r"invalid username|Authentication required"):
        client.execute_command("CDCPOLL", 0, 1)


def test_an_open_server_says_that_it_has_no_tokens(resp, raw):
    """F133: as Redis does."""
    client = raw(resp())
    client.send("AUTH", "secret")
    assert client.line().startswith(b"-ERR AUTH <password> called without any password configured")


def test_what_a_principal_may_see_is_all_that_it_polls(log, resp, stock):
    """F133: criteria and view of its grant; and what they hide costs it no place."""
    log.commit([upsert("user", "1", {"name": "Alice", "secret": 1}), upsert("order", "1", {})])
    grant = Grant(
        {LogAction.READ},
        View.of(Content.BODY, fields=["name"]),
        Criteria.of(Criterion(entity_types={"user"})),
    )
    client = stock(resp(authorise=grant))
    ((_, _, _, key, value),) = client.execute_command("CDCPOLL", 0, 10)
    assert (key, value) == (b"user:1", b'{"name":"Alice"}')


def test_a_log_that_is_not_for_a_principal_is_told_as_one_that_it_may_not_read(log, resp, stock, tokens):
    """F133: whether there is such a log or not."""

    def authorise(principal: Principal, name: str, action: LogAction) -> Grant:
        return Grant({LogAction.READ} if (principal.name, name) == ("ann", "shop") else ())

    server = resp(authenticate=tokens, authorise=authorise)
    assert stock(server, password="secret").execute_command("CDCPOLL", 0, 1) == []
    for name in ("shop", "secret-log"):
        with pytest.raises(redis.RedisError, match=r"No permission|NOPERM|must be"):
            stock(server, password="other").execute_command("CDCPOLL", 0, 1, "LOG", name)


def test_a_principal_whose_time_is_over_is_asked_again(log, resp, stock):
    """F133."""
    server = resp(authenticate=lambda _: Principal("ann", expires=1.0))
    with pytest.raises(redis.AuthenticationError):
        stock(server, password="secret").ping()


def test_the_port_speaks_tls_and_knows_clients_by_their_certificates(log, fill, resp, tmp_path, caplog):
    """F133; and whoever leaves is no line in the log."""
    fill(1)
    ours = Authority(tmp_path)
    certificate, key = ours.issue("server")
    mine, mine_key = ours.issue("ann")
    server = resp(
        tls=ServerCertificate(certificate, key, client_ca=ours.path),
        authenticate=PeerCertificates(allowed={"ann"}),
    )
    assert server.url.startswith("rediss://")
    with redis.Redis(
        port=server.port,
        ssl=True,
        ssl_ca_certs=ours.path,
        ssl_certfile=mine,
        ssl_keyfile=mine_key,
        socket_timeout=DEADLINE,
    ) as client:
        assert len(client.execute_command("CDCPOLL", 0, 10)) == 1
    wait_until(lambda: not server.figures()["connections"])
    with (
        redis.Redis(port=server.port, ssl=True, ssl_ca_certs=ours.path, socket_timeout=DEADLINE) as stranger,
        pytest.raises((redis.RedisError, ssl.SSLError)),
    ):
        stranger.ping()
    wait_until(lambda: server.figures()["ended"].get("TLS_REFUSED"))
    assert not caplog.records


@pytest.mark.skipif(which("redis-cli") is None, reason="no redis-cli; apt-get install redis-tools")
def test_redis_cli_shows_a_token(resp, fill, tokens):
    """F133: in both versions of the protocol."""
    fill(1)
    server = resp(authenticate=tokens)
    for version in ("-2", "-3"):
        command = [
            "redis-cli",
            version,
            "-p",
            str(server.port),
            "--no-auth-warning",
            "-a",
            "secret",
            "CDCPOLL",
            "0",
            "5",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
        assert "order:0-0" in done.stdout
