"""Secrets that are planted wherever a client can put one come out nowhere: no line, status, answer, error or repr has them."""

import asyncio
import json
import logging
import urllib.error
import urllib.request

import pytest

from publishers.mutations.mutation import upsert
from tests.harness.inside import access_of
from tests.transports.access.test_jwt_verifier import RSA, public, signed
from transports import (
    Access,
    AnyOf,
    Credentials,
    Forbidden,
    JwtVerifier,
    Limits,
    Policy,
    TokenFile,
    connect,
    serve,
)
from transports.errors import ConnectionLost, RemoteError

RIGHT, WRONG = "SECRET-right", "SECRET-wrong"


def everywhere(token):
    """A request with a token in every place where one could be."""
    return {
        "Authorization": f"Bearer {token}",
        "Cookie": f"session={token}",
        "X-Api-Key": token,
        "Content-Type": "application/json",
    }


def fetch(server, path, token, data=None):
    url = server.health_url.replace("/health", path)
    request = urllib.request.Request(url, data, everywhere(token))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.headers) + answer.read().decode()
    except urllib.error.HTTPError as error:
        return str(error.headers) + error.read().decode()


async def said_on(wire, **payload):
    """All that a connection says until it is closed or has answered twice."""
    await wire.send(type="connection_init", payload=payload)
    await wire.send(type="subscribe", id="a", payload={"criteria": [], "credits": 1, "query": "{ x }"})
    told = []
    try:
        async with asyncio.timeout(60):
            told.append(await wire.socket.recv())
            told.append(await wire.socket.recv())
    except Exception as error:
        told.append(repr(error))
    return str(told)


@pytest.mark.parametrize("kind", ["tokens", "raising", "slow", "forbidding"])
async def test_no_token_comes_out_anywhere(log, dial, graphql, tmp_path, caplog, kind):
    """F141: let in or not, while the authenticator works, raises, is slow, or the authoriser refuses."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "tokens"
    path.write_text(f"ann:{RIGHT}\n")
    tokens = TokenFile(path)

    async def slow(credentials):
        await asyncio.Event().wait()

    def raising(credentials):
        raise OSError("the directory is down")

    def forbidding(principal, name, action):
        raise Forbidden("log", "one of yours")

    authenticate = {"raising": raising, "slow": slow}.get(kind, tokens)
    authorise = forbidding if kind == "forbidding" else None
    log.commit([upsert("order", "1", {})])
    limits = Limits(authenticate_timeout=0.2)
    with serve(log, limits=limits, authenticate=authenticate, authorise=authorise) as server:
        told = []
        body = json.dumps({"query": "{ logs { name } }"}).encode()
        for token in (RIGHT, WRONG):
            for route in (
                "/health",
                "/ready",
                "/statistics",
                "/metrics",
                "/schemas",
                "/graphql",
                "/changes",
                "/x",
            ):
                for data in (None, body):
                    asked = f"{route}?access_token={token}"
                    told.append(await asyncio.to_thread(fetch, server, asked, token, data))
            headers = everywhere(token)
            del headers["Content-Type"]
            for payload in ({}, {"token": token}, {"token": {"x": token}, "secret": token}):
                async with dial(f"{server.url}?token={token}", additional_headers=headers) as wire:
                    told.append(await said_on(wire, **payload))
                async with graphql(server, additional_headers=headers) as other:
                    told.append(await said_on(other, **payload))
            try:
                async with connect(server.url, token=token) as remote:
                    told.append(repr(remote))
                    await remote.schema("order")
            except (ConnectionLost, RemoteError) as error:
                told.append(f"{error!r} {error}")
        told += [repr(vars(one)) for one in (server, server.application, access_of(server.application))]
        assert "SECRET" not in "".join(told)
    ours = [
        one for one in caplog.records if one.name != "websockets.client"
    ]  # with which this test dials by hand
    assert ours
    assert not [one for one in ours if "SECRET" in str(one.__dict__) + str(one.exc_text)]


def test_no_object_shows_a_secret(tmp_path):
    """F141: what is at hand in a debugger, a traceback or a log line."""
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public(RSA, "r")]}))
    (tmp_path / "tokens").write_text(f"ann:{RIGHT}\n")
    (tmp_path / "policy.toml").write_text(
        f'[principals.ann]\ntoken = "{RIGHT}"\nclaims = {{ pin = "SECRET" }}\n'
    )
    verifier = JwtVerifier(tmp_path / "jwks.json", issuer="https://id.example", audience="penstock")
    tokens, policy = TokenFile(tmp_path / "tokens"), Policy(tmp_path / "policy.toml")
    both = AnyOf(tokens, verifier, policy)
    shown = [tokens, verifier, policy, both, Access(both, policy.authorise), policy.principal("ann")]
    shown += [
        verifier(Credentials(signed(email="SECRET"))),
        Credentials(RIGHT, {"x": RIGHT}, {"x": RIGHT}, {"x": RIGHT}),
    ]
    assert "SECRET" not in " ".join(map(repr, shown))
    assert "SECRET" not in repr(vars(tokens)) + repr(vars(verifier))
