"""Who is let in and what each may do, as a file tells it; and every mistake in it with its place."""

import hashlib
import json
import os

import pytest

from publishers import Content, Criteria, Criterion, Images, View
from publishers.errors import InvalidOption
from tests.transports.access.test_jwt_verifier import OTHER, RSA, public, signed
from transports import (
    Access,
    Credentials,
    Forbidden,
    Grant,
    JwtVerifier,
    LogAction,
    PeerCertificate,
    PeerCertificates,
    Policy,
    Principal,
    TokenFile,
)

WHOLE = f"""
[principals.ann]
token = "SECRET-ann"
roles = ["reader"]
claims = {{ tenant = "a" }}

[principals.bob]
token_sha256 = "{hashlib.sha256(b"SECRET-bob").hexdigest()}"
roles = ["reader", "writer"]

[principals.billing]
certificate = "billing.internal"
roles = ["operator"]

[jwt]
jwks = "jwks.json"
issuer = "https://id.example"
audience = "penstock"

[anonymous]
roles = ["guest"]

[[grants]]
roles = ["writer"]
logs = ["orders"]
actions = ["READ", "WRITE"]

[[grants]]
roles = ["reader"]
logs = ["orders", "{{tenant}}-*"]
criteria = [
    {{ entity_types = ["order"], key_globs = ["{{tenant}}-*"] }},
    {{ entity_types = ["order"], operations = ["TRUNCATE"] }},
]
images = "AFTER"
fields = ["total", "card"]
mask = {{ card = {{ rule = "DROP" }} }}

[[grants]]
roles = ["operator"]
logs = ["*", "$system"]
actions = ["OPERATE"]

[[grants]]
roles = ["*"]
logs = ["public"]
content = "HEADER"
"""


@pytest.fixture
def policy(tmp_path):
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public(RSA, "r")]}))
    path = tmp_path / "policy.toml"
    path.write_text(WHOLE)
    return Policy(path)


async def test_a_file_tells_who_a_client_is(policy):
    """F140, E62: by token, by its digest, by certificate, by what an issuer has signed, or nobody in particular."""
    shown = PeerCertificate("CN=billing.internal", "billing.internal", (), 7.0)
    assert await policy(Credentials("SECRET-ann")) == Principal("ann", {"reader"}, {"tenant": "a"})
    assert (await policy(Credentials("SECRET-bob"))).roles == {"reader", "writer"}
    billing = await policy(Credentials(peer_certificate=shown))
    assert (billing.name, billing.roles, billing.expires) == ("billing", {"operator"}, 7.0)
    assert (await policy(Credentials(signed(sub="eve")))).name == "eve"
    assert (await policy(Credentials())).roles == {"guest"}
    assert (await policy(Credentials(peer_certificate=PeerCertificate("CN=x", "x")))).roles == {"guest"}
    assert await policy(Credentials("wrong")) is None
    assert len(policy) == 3
    assert policy.principal("bob").name == "bob"
    assert policy.principal("nobody") is None


def test_the_first_grant_that_fits_decides(policy):
    """F140: by role, log and action; without one nothing is granted."""
    access = Access(authorise=policy.authorise)
    ann, bob = policy.principal("ann"), policy.principal("bob")
    granted = access.grant(ann, "orders", LogAction.READ)
    assert granted == Grant(
        {LogAction.READ},
        View.of(Content.BODY, Images.AFTER, fields=["total", "card"], mask={"card": {"rule": "DROP"}}),
        Criteria.of(
            Criterion(entity_types=["order"], key_globs=["a-*"]),
            Criterion(entity_types=["order"], operations=["TRUNCATE"]),
        ),
    )
    assert access.grant(ann, "a-2026", LogAction.READ) == granted
    assert access.grant(bob, "orders", LogAction.WRITE) == Grant({LogAction.READ, LogAction.WRITE})
    assert access.grant(bob, "orders", LogAction.READ).criteria is None
    for principal, log, action in (
        (ann, "orders", LogAction.WRITE),
        (ann, "b-2026", LogAction.READ),
        (bob, "a-2026", LogAction.READ),
        (ann, "$system", LogAction.READ),
    ):
        with pytest.raises(Forbidden):
            access.grant(principal, log, action)
    billing = policy.principal("billing")
    for log in ("orders", "$system"):
        assert access.grant(billing, log, LogAction.OPERATE).actions == {LogAction.OPERATE}
    assert access.grant(ann, "public", LogAction.READ).view == View()


def test_a_grant_names_the_slots_that_may_be_opened(tmp_path):
    """F140: a claim that is missing lets a pattern stand for none."""
    path = tmp_path / "policy.toml"
    path.write_text(
        GRANT + 'actions = ["CONSUME"]\nslots = ["{name}-*", "{tenant}"]\ngroups = ["{name}", "{tenant}"]'
    )
    policy = Policy(path)
    granted = policy.authorise(Principal("ann", {"r"}), "l", LogAction.CONSUME)
    assert granted == Grant({LogAction.CONSUME}, slots=["ann-*"], groups=["ann"])
    granted.check_slot("ann-1")
    for name in ("ann", "bob-1", "{tenant}"):
        with pytest.raises(Forbidden):
            granted.check_slot(name)


def test_a_claim_reaches_into_nothing_of_another(tmp_path):
    """F140: tenant a reads nothing of tenant a-b, and ann drops no slot of ann-marie."""
    path = tmp_path / "policy.toml"
    path.write_text(
        GRANT + 'criteria = [{ key_globs = ["{tenant}-*"] }]\n'
        '[[grants]]\nroles = ["*"]\nlogs = ["*"]\nactions = ["CONSUME"]\nslots = ["{name}", "{name}-*"]'
    )
    policy = Policy(path)

    def granted(name, tenant, action):
        return policy.authorise(Principal(name, {"r"}, {"tenant": tenant}), "l", action)

    assert granted("ann", "a", LogAction.READ).criteria == Criteria.of(Criterion(key_globs=["a-*"]))
    assert granted("ann", "a-b", LogAction.READ) == Grant(())
    assert granted("ann", "a", LogAction.CONSUME).slots == ("ann", "ann-*")
    assert granted("ann-marie", "a", LogAction.CONSUME).slots == ()
    marie = Principal("ann-marie", {"r"}, {"tenant": "a-b"})
    assert [(one.grant, one.key, one.pattern) for one in policy.unfilled(marie)] == [
        (1, "key_globs", "{tenant}-*"),
        (2, "slots", "{name}"),
        (2, "slots", "{name}-*"),
    ]


def test_no_credentials_prove_the_name_of_the_anonymous_principal(tmp_path):
    """F140, E62: it would share producers and slots with clients that have shown nothing."""
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public(RSA, "r")]}))
    verifier = JwtVerifier(tmp_path / "jwks.json", issuer="https://id.example", audience="penstock")
    assert verifier(Credentials(signed(sub="anonymous"))) is None
    assert verifier(Credentials(signed(sub="anonymou"))) is not None
    shown = PeerCertificate("CN=anonymous", "anonymous", (), 7.0)
    assert PeerCertificates()(Credentials(peer_certificate=shown)) is None
    (tmp_path / "tokens").write_text("anonymous:x")
    with pytest.raises(InvalidOption, match="a file without the name anonymous"):
        TokenFile(tmp_path / "tokens")


@pytest.mark.parametrize("tenant", ["*", "a*", "?", "", "a b", 7, None, "a" * 300, "{x}"])
def test_a_claim_that_is_no_plain_word_stands_for_nothing(policy, tenant):
    """F140: a tenant that is called * would see all."""
    principal = Principal("eve", {"reader"}, {} if tenant is None else {"tenant": tenant})
    for log in ("orders", "a-2026", "*-2026"):
        with pytest.raises(Forbidden):
            Access(authorise=policy.authorise).grant(principal, log, LogAction.READ)


def test_the_name_of_a_principal_is_a_claim_too(tmp_path):
    """F140: and a star for logs does not stand for those that begin with $."""
    path = tmp_path / "policy.toml"
    path.write_text('[[grants]]\nroles = ["*"]\nlogs = ["*"]\ncriteria = [{ keys = ["{name}"] }]')
    policy = Policy(path)
    assert policy.authorise(Principal("ann"), "x", LogAction.READ).criteria == Criteria.of(
        Criterion(keys=["ann"])
    )
    assert policy.authorise(Principal("ann"), "$system", LogAction.READ) == Grant(())


def test_a_file_is_read_again_when_it_says_something_else(policy, tmp_path):
    """F140: also when only the keys of an issuer do; what is broken changes nothing, and keeps no keys from being read."""
    first = policy.revision
    policy.refresh()
    assert policy.revision == first
    path, keys = tmp_path / "policy.toml", tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [public(OTHER, "o")]}))
    policy.reload()
    second = policy.revision
    assert second > first
    path.write_text(WHOLE.replace('roles = ["reader", "writer"]', 'roles = ["reader"]'))
    policy.refresh()
    assert policy.revision > second
    assert policy.principal("bob").roles == {"reader"}
    path.write_text("[grants")
    keys.write_text(json.dumps({"keys": [public(RSA, "r")]}))
    third = policy.revision
    with pytest.raises(InvalidOption, match="TOML"):
        policy.refresh()
    assert policy.revision > third
    assert policy.principal("bob").roles == {"reader"}
    path.unlink()
    with pytest.raises(InvalidOption, match="No such file"):
        policy.refresh()


GRANT = '[[grants]]\nroles = ["r"]\nlogs = ["l"]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = \ny = 1", r"policy is '.*policy.toml', but must be TOML in UTF-8; see line 1"),
        ("[grant]", r"policy.toml: key is 'grant', but must be one of principals, .*; grants is near"),
        ("[zzz]", r"policy.toml: key is 'zzz', but must be one of principals, jwt, certificates, anonymous, grants$"),
        ("principals = 1", r"policy.toml: \[principals\] is 'int', but must be a table"),
        ("[principals]\nann = 1", r"policy.toml: \[principals.ann\] is 'int', but must be a table with token"),
        ('[principals.ann]\nrole = ["x"]', r"\[principals.ann\] key is 'role', .*; roles is near"),
        ("[principals.ann]", r"\[principals.ann\] token is None, but must be there, or token_sha256 or certificate"),
        ('[principals.anonymous]\ntoken = "SECRET"', r"\[principals\] anonymous must be another name"),
        (GRANT.replace('"l"', '"{tenant}*"'), r"1 logs is \['{tenant}\*'\], .* with another character between"),
        ('[principals.ann]\ntoken = ""', r"\[principals.ann\] token must be a text"),
        ('[principals.ann]\ntoken_sha256 = "SECRET"', r"token_sha256 must be the SHA-256"),
        ('[principals.ann]\ntoken = "SECRET"\nroles = "x"', r"\[principals.ann\] roles is 'x', but must be a list"),
        ('[principals.ann]\ntoken = "SECRET"\nclaims = 7', r"\[principals.ann\] claims is 7"),
        (
            '[principals.ann]\ntoken = "SECRET"\n[principals.bob]\ntoken = "SECRET"',
            r"\[principals.bob\] token must be that of no other principal",
        ),
        (
            '[principals.ann]\ncertificate = "c"\n[principals.bob]\ncertificate = "c"',
            r"\[principals.bob\] certificate is 'c', but must be that of no other principal",
        ),
        ('[certificates]\nname = "cn"', r"\[certificates\] name is 'cn', but must be common_name or subject"),
        ("[jwt]", r"\[jwt\] jwks is None, but must be a text"),
        (
            '[jwt]\njwks = "none"\nissuer = "i"\naudience = "a"',
            r"\[jwt\] jwks: jwks is '.*none', but must be a file that can be read",
        ),
        (
            '[jwt]\njwks = "none"\nissuer = "i"\naudience = "a"\nalgorithms = ["HS256"]',
            r"\[jwt\] jwks: algorithms is \['HS256'\], but must be a list of RS256",
        ),
        (
            '[jwt]\njwks = "none"\nissuer = "i"\naudience = "a"\nleeway = "1"',
            r"\[jwt\] jwks: leeway is '1', but must be a number of seconds",
        ),
        ("[anonymous]\nroles = [1]", r"\[anonymous\] roles is \[1\], but must be a list of texts"),
        ("[grants]", r"policy.toml: grants is {}, but must be a list of tables"),
        ("grants = [1]", r"policy.toml: \[\[grants\]\] 1 is 'int', but must be a table"),
        ("[[grants]]", r"\[\[grants\]\] 1 roles is None, but must be a list of texts that is not empty"),
        ('[[grants]]\nroles = ["r"]', r"\[\[grants\]\] 1 logs is None"),
        (GRANT + 'actions = ["read"]', r"1 actions: LogAction is 'read', but must be one of READ, WRITE, OPERATE"),
        (GRANT + 'slots = ["a"]', r"1 slots is \['a'\], but must be left out where actions do not hold CONSUME"),
        (GRANT + 'groups = ["a"]', r"1 groups is \['a'\], but must be left out where actions do not hold CONSUME"),
        (GRANT + 'actions = ["CONSUME"]\nslots = ["{name},b"]', r"1 slots is \['{name},b'\], .*'{name},b' is one, which no name matches"),
        (GRANT + 'actions = ["CONSUME"]\nslots = ["{a"]', r"1 slots is \['{a'\], .* the name of a claim"),
        (
            GRANT + 'actions = ["CONSUME"]\ncriteria = [{ keys = ["x"] }]',
            r"1 criteria is .* but must be left out where actions hold CONSUME",
        ),
        (
            GRANT + 'actions = ["MANAGE"]\ncriteria = [{ keys = ["x"] }]',
            r"1 criteria is .* but must be left out where actions hold MANAGE",
        ),
        (
            GRANT + 'actions = ["MANAGE"]\ncontent = "HEADER"',
            r"1 view is .* but must be left out where actions hold MANAGE",
        ),
        (GRANT + "actions = []", r"1 actions: actions is \[\], but must be a list that is not empty"),
        (GRANT + "actions = [[]]", r"1 actions: LogAction is \[\], but must be one of READ"),
        (GRANT + 'content = "ALL"', r"1 content: Content is 'ALL', but must be one of HEADER, BODY"),
        (GRANT + 'images = "X"', r"1 images: Images is 'X', but must be one of WRITTEN"),
        (GRANT + 'fields = ["a..b"]', r"\[\[grants\]\] 1 fields: fields"),
        (GRANT + 'mask = "SECRET"', r"\[\[grants\]\] 1 mask: mask is 'str', but must be a mapping"),
        (GRANT + 'mask = { "a..b" = "x" }', r"\[\[grants\]\] 1 mask: mask"),
        (GRANT + 'criteria = "all"', r"\[\[grants\]\] 1 criteria is 'all', but must be a list of tables"),
        (
            GRANT + 'criteria = [{ key_glob = ["x"] }]',
            r"\[\[grants\]\] 1 criteria 1 key is 'key_glob', .*; key_globs is near",
        ),
        (GRANT + 'criteria = [{ keys = ["{tenant"] }]', r"criteria 1 keys is \['{tenant'\], .* the name of a claim"),
        (GRANT + 'criteria = [{ keys = "x" }]', r"\[\[grants\]\] 1 criteria 1 keys is 'x', but must be a list"),
        (GRANT + 'criteria = [{ areas = ["DATEN"] }]', r"\[\[grants\]\] 1 criteria 1 areas.*'DATEN', but must be"),
        (GRANT + 'criteria = [{ where = ["total >"] }]', r"\[\[grants\]\] 1 criteria 1 where"),
        (
            GRANT + 'actions = ["READ", "WRITE"]\ncriteria = [{ keys = ["x"] }]',
            r"\[\[grants\]\] 1 criteria is .*, but must be left out where actions hold WRITE",
        ),
        (GRANT + 'criteria = [{ where = 7 }]', r"\[\[grants\]\] 1 criteria 1 where is 7"),
        (GRANT.replace('"l"', '"{}"'), r"\[\[grants\]\] 1 logs is \['{}'\]"),
    ],
)  # fmt: skip
def test_every_mistake_is_told_with_file_table_key_value_and_what_is_right(tmp_path, text, says):
    """F140, F141: and no token of the file."""
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(InvalidOption, match=says) as caught:
        Policy(path)
    assert "SECRET" not in str(caught.value)


def test_a_file_that_is_no_text_or_too_long_is_refused(tmp_path):
    """F140."""
    path = tmp_path / "policy.toml"
    for content, says in ((b"\xff", "TOML in UTF-8$"), (b"#" * (2**20 + 1), "at most 1048576 bytes")):
        path.write_bytes(content)
        with pytest.raises(InvalidOption, match=says):
            Policy(path)
    os.unlink(path)
    with pytest.raises(InvalidOption, match="No such file"):
        Policy(path)


def test_a_subject_can_be_the_name_of_a_certificate(tmp_path):
    """F98, F140."""
    path = tmp_path / "policy.toml"
    path.write_text('[certificates]\nname = "subject"\n[principals.x]\ncertificate = "CN=a,O=b"\n')
    (certificates,) = Policy(path)._read.others
    assert certificates(Credentials(peer_certificate=PeerCertificate("CN=a,O=b", "a"))).name == "x"
    assert certificates(Credentials(peer_certificate=PeerCertificate("CN=a", "a"))) is None
