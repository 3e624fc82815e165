"""Secrets are planted wherever a sink may have one, everything goes wrong, and nothing that is told has one in it."""

import json
import logging

import pytest

from publishers import ChangeLog, upsert
from tests.publishers.support import wait_until
from tests.transports.sinks.receivers import Receiver, closed_port
from tests.transports.sinks.targets import QUICK
from transports.cli import main
from transports.sinks import LogSinks
from transports.sinks.config import read_sinks
from transports.sinks.control import ControlSocket

PLANTED = "Pl4nted"  # in each secret
FILE = """
log = "shop"
lease = {{ kind = "sql", url = "env:LEASE_URL", name = "x" }}

[[sinks]]
name = "hook"
kind = "webhook"
url = "http://ann:Pl4nted-1@localhost:{hook}/hook?key=Pl4nted-2"
secrets = ["env:SIGNING"]
headers = {{ x-token = "file:{token}" }}
allow = ["127.0.0.0/8", "::1/128"]
start = "earliest"

[[sinks]]
name = "hook2"
kind = "webhook"
url = "env:HOOK_URL"
allow = ["127.0.0.0/8", "::1/128"]
oauth = {{ token_url = "http://ann:Pl4nted-3@localhost:{issuer}/token?x=Pl4nted-4", client_id = "env:CLIENT", client_secret = "env:SIGNING" }}
start = "earliest"

[[sinks]]
name = "kafka"
kind = "kafka"
servers = "localhost:{closed}"
settings = {{ "security.protocol" = "sasl_plaintext", "sasl.mechanism" = "PLAIN", "sasl.username" = "ann", "sasl.password" = "env:SIGNING" }}
timeout = 0.5
start = "earliest"

[[sinks]]
name = "search"
kind = "search"
url = "http://ann:Pl4nted-5@localhost:{closed}"
start = "earliest"

[[sinks]]
name = "cache"
kind = "cache"
url = "redis://ann:Pl4nted-6@localhost:{closed}/0"
start = "earliest"

[[sinks]]
name = "sql"
kind = "sql"
url = "postgresql://ann:Pl4nted-7@localhost:{closed}/shop?sslpassword=Pl4nted-8"
start = "earliest"
"""


@pytest.fixture
def declared(tmp_path, monkeypatch):
    for name in ("SIGNING", "CLIENT"):
        monkeypatch.setenv(name, f"whsec_{PLANTED}{name}")
    (tmp_path / "token").write_text(f"{PLANTED}-token")
    with Receiver() as hook, Receiver() as issuer:
        hook.otherwise = lambda request: (
            500,
            {},
            json.dumps({"to": request.target, **request.headers}).encode(),
        )
        issuer.otherwise = lambda _: (400, {}, b'{"error":"invalid_client","error_description":"Pl4nted"}')
        monkeypatch.setenv("HOOK_URL", f"http://ann:{PLANTED}-9@localhost:{hook.port}/{PLANTED}-10")
        monkeypatch.setenv("LEASE_URL", f"sqlite:///{tmp_path}/{PLANTED}-lease.db")
        path = tmp_path / "penstock.toml"
        path.write_text(
            FILE.format(hook=hook.port, issuer=issuer.port, closed=closed_port(), token=tmp_path / "token")
        )
        yield path


def test_no_secret_is_told_by_anything(declared, capsys, caplog):
    """F141: in status, metrics, commands, logs at every level, reprs and files, whatever fails."""
    caplog.set_level(logging.DEBUG, logger="penstock")
    told = read_sinks(declared)
    texts = [repr(told), repr(told.sinks)]
    with ChangeLog.open(declared.parent / "shop", **QUICK) as log:
        log.commit([upsert("order", "a", {})])
        with LogSinks(log) as sinks, ControlSocket(log.path, sinks):
            for one in told.sinks.values():
                sinks.add(one.name, one.sink, one.options)
            wait_until(
                lambda: all(one["lastError"] for one in sinks.told().values()), sinks.told, timeout=120.0
            )
            texts += [json.dumps(sinks.told()), repr(sinks), *(repr(one) for one in sinks.values())]
            for command in ("list", "status", "test"):
                for form in ([], ["--json"]):
                    main(["sinks", command, str(declared), *form])
            for name in told.sinks:
                sinks.order(name, "off")
            texts += [path.read_text() for path in (log.path / "sinks").iterdir()]
    captured = capsys.readouterr()
    texts += [captured.out, captured.err, caplog.text]
    texts += [repr(record.args) for record in caplog.records if record.name.startswith("penstock")]
    assert all(PLANTED not in text for text in texts), [
        text[max(text.index(PLANTED) - 200, 0) :][:300] for text in texts if PLANTED in text
    ]
    assert "invalid_client" in caplog.text
    assert all(name in caplog.text for name in told.sinks)
