"""Tokens that an issuer has signed: what is let in, as whom, and everything that is not."""

import base64
import hmac
import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from publishers.errors import InvalidOption
from transports import Credentials, JwtVerifier, Principal

RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
NOW = datetime.now(UTC).replace(microsecond=0)


def public(key, name, **more):
    kinds = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    made = next((one for kind, one in kinds.items() if isinstance(key, kind)), OKPAlgorithm)
    return {**json.loads(made.to_jwk(key.public_key())), "kid": name, **more}


def signed(key=RSA, algorithm="RS256", kid="r", headers=None, **claims):
    told = {
        "sub": "ann",
        "iss": "https://id.example",
        "aud": "penstock",
        "exp": NOW + timedelta(hours=1),
        "roles": ["reader"],
    } | claims
    told = {name: value for name, value in told.items() if value is not None}
    return jwt.encode(told, key, algorithm, ({"kid": kid} if kid else {}) | (headers or {}))


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public(RSA, "r"), public(EC, "e"), public(ED, "d")]}))
    return path


@pytest.fixture
def verifier(keys):
    return JwtVerifier(keys, issuer="https://id.example", audience="penstock")


def test_a_token_that_the_issuer_has_signed_is_a_principal_until_it_ends(verifier):
    """F140: with its roles and claims; the leeway counts at its end too."""
    for key, algorithm, kid in ((RSA, "RS256", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d")):
        found = verifier(Credentials(signed(key, algorithm, kid, tenant="a")))
        assert (found.name, found.roles, found.claims["tenant"]) == ("ann", {"reader"}, "a")
        assert found.expires == (NOW + timedelta(hours=1, seconds=10)).timestamp()
    assert verifier(Credentials(signed(aud=["other", "penstock"]))).name == "ann"
    assert verifier(Credentials(signed(exp=datetime.now(UTC) - timedelta(seconds=3)))).name == "ann"


def forged(header, key):
    """A token that is signed with a public key as a shared secret."""

    def part(told):
        return base64.urlsafe_b64encode(told).rstrip(b"=")

    claims = jwt.decode(signed(), options={"verify_signature": False})
    text = part(json.dumps(header).encode()) + b"." + part(json.dumps(claims).encode())
    return (text + b"." + part(hmac.new(key, text, sha256).digest())).decode()


PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


@pytest.mark.parametrize(
    "token",
    [
        None,
        "",
        "x",
        "a.b.c",
        "x" * 20_000,
        signed(OTHER),
        signed(kid="unknown"),
        signed(kid="e"),
        signed(algorithm="RS512"),
        signed(headers={"crit": ["b64"], "b64": True}),
        signed(iss="https://evil.example"),
        signed(aud="other"),
        signed(exp=NOW - timedelta(minutes=1)),
        signed(nbf=NOW + timedelta(hours=1)),
        signed(exp=None),
        signed(sub=None),
        signed(iss=None),
        signed(aud=None),
        signed(roles=[1]),
        signed(roles=7),
        forged({"alg": "HS256", "kid": "r"}, PEM),
        forged({"alg": "none", "kid": "r"}, b""),
        forged({"alg": ["RS256"], "kid": "r"}, b""),
        forged({"alg": "RS256", "kid": {"x": 1}}, b""),
    ],
)
def test_everything_else_is_not_let_in(verifier, token):
    """F140: no other algorithm, key, issuer, audience, time, and no claim that lacks."""
    assert verifier(Credentials(token)) is None


@pytest.mark.parametrize(
    ("claims", "path", "roles"),
    [
        ({"roles": "reader writer"}, "roles", {"reader", "writer"}),
        ({"realm": {"roles": ["x"]}}, "realm.roles", {"x"}),
        ({"realm": ["x"]}, "realm.roles", set()),
        ({"roles": None}, "roles", set()),
    ],
)
def test_roles_are_where_the_issuer_puts_them(keys, claims, path, roles):
    """F140."""
    verifier = JwtVerifier(keys, issuer="https://id.example", audience="penstock", roles=path)
    assert verifier(Credentials(signed(**claims))).roles == roles


def test_a_key_that_names_its_algorithm_is_taken_for_no_other(keys):
    """F140: and a token that names no key is taken if there is one of its kind only."""
    keys.write_text(json.dumps({"keys": [public(RSA, "r", alg="RS512"), public(EC, "e")]}))
    verifier = JwtVerifier(
        keys, issuer="https://id.example", audience="penstock", algorithms=["RS256", "RS512", "ES256"]
    )
    assert verifier(Credentials(signed())) is None
    assert verifier(Credentials(signed(algorithm="RS512"))).name == "ann"
    assert verifier(Credentials(signed(EC, "ES256", None))).name == "ann"
    for one, other in ((public(OTHER, "o"), public(RSA, "r")), (public(RSA, "r"), public(OTHER, "o"))):
        keys.write_text(json.dumps({"keys": [one, other]}))
        verifier.reload()
        assert verifier(Credentials(signed(kid=None))) is None


def test_keys_are_rotated_by_another_file(keys, verifier):
    """F140: and a file that is broken takes nothing away."""
    first = verifier.revision
    verifier.refresh()
    assert verifier.revision == first
    keys.write_text(json.dumps({"keys": [public(OTHER, "o"), {"kty": "new"}, public(RSA, "e", use="enc")]}))
    assert verifier(Credentials(signed())).name == "ann"
    verifier.refresh()
    assert verifier.revision == first + 1
    assert verifier(Credentials(signed())) is None
    assert verifier(Credentials(signed(OTHER, kid="o"))).name == "ann"
    for broken in ("{", "[]", '{"keys": 1}', '{"keys": []}', "x" * (2**20 + 1)):
        keys.write_text(broken)
        with pytest.raises(InvalidOption, match="JWK Set"):
            verifier.refresh()
    keys.unlink()
    with pytest.raises(InvalidOption, match="No such file"):
        verifier.refresh()
    assert verifier(Credentials(signed(OTHER, kid="o"))).name == "ann"


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ({"kty": "oct", "k": "U0VDUkVU", "kid": "s"}, "key 0 is a secret or private one"),
        ({"kty": "RSA", "d": "SECRET"}, "key 0 is a secret or private one"),
        ({"kty": "RSA", "n": "x"}, "key 0 is none"),
    ],
)
def test_a_set_with_keys_that_nobody_should_have_is_refused_without_telling_them(keys, key, says):
    """F141."""
    keys.write_text(json.dumps({"keys": [key]}))
    with pytest.raises(InvalidOption, match=says) as caught:
        JwtVerifier(keys, issuer="i", audience="a")
    assert "SECRET" not in str(caught.value)
    assert "U0VD" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"issuer": ""}, "issuer is ''"),
        ({"audience": None}, "audience is None"),
        ({"algorithms": ["HS256"]}, "a list of RS256"),
        ({"algorithms": ["none"]}, "a list of RS256"),
        ({"algorithms": []}, "a list of RS256"),
        ({"algorithms": "RS256"}, "a list of RS256"),
        ({"leeway": 301}, "from 0 to 300"),
        ({"leeway": True}, "from 0 to 300"),
    ],
)
def test_what_is_no_right_option_is_refused_in_words(keys, given, says):
    """F140."""
    with pytest.raises(InvalidOption, match=says):
        JwtVerifier(keys, **({"issuer": "i", "audience": "a"} | given))


def test_a_principal_of_a_token_shows_no_claim(verifier):
    """F141."""
    found = verifier(Credentials(signed(email="SECRET")))
    assert isinstance(found, Principal)
    assert "SECRET" not in repr(found)
