"""Authentication and authorisation from a policy file (TOML).

::

    [principals.ann]                     # by a token, or the name in a certificate
    token = "Zk4n0vQ1u8"                 # or token_sha256 = "..."
    roles = ["reader"]

    [jwt]                                # by what an issuer has signed: the options of JwtVerifier
    jwks = "jwks.json"
    issuer = "https://id.example.org"
    audience = "penstock"

    [[grants]]                           # the first one that fits roles, log and action
    roles = ["reader"]
    logs = ["orders", "shop-*"]
    actions = ["READ"]
    criteria = [{ entity_types = ["order"], key_globs = ["{tenant}/*"] }]
    fields = ["total", "customer"]
    mask = { "customer.name" = "***" }

    [[grants]]
    roles = ["worker"]
    logs = ["orders"]
    actions = ["CONSUME"]
    slots = ["{name}", "{name}_*"]
"""

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from publishers.criteria.criteria import Criteria, Criterion
from publishers.errors import InvalidOption
from publishers.views.view import Content, Images, View
from transports.access.claim_patterns import ClaimPatterns, wrong_with
from transports.access.grant import Grant, LogAction, wrong_pattern
from transports.access.jwt_verifier import JwtVerifier
from transports.access.peer_certificates import AnyOf, PeerCertificates
from transports.access.policy_table import PolicyTable
from transports.access.principal import ANONYMOUS, Credentials, Principal, provable

__all__ = ["Policy", "UnfilledPattern"]

_MOST: Final = 1 << 20
_TABLES: Final = ("principals", "jwt", "certificates", "anonymous", "grants")
_PRINCIPAL: Final = ("token", "token_sha256", "certificate", "roles", "claims")
_JWT: Final = ("jwks", "issuer", "audience", "algorithms", "leeway", "name", "roles")
_GRANT: Final = (
    "roles",
    "logs",
    "actions",
    "criteria",
    "content",
    "images",
    "fields",
    "mask",
    "slots",
    "groups",
)
_CRITERION: Final = (
    "areas",
    "entity_types",
    "keys",
    "key_globs",
    "key_patterns",
    "operations",
    "changed",
    "where",
    "transitions",
    "annotations",
)
_FILLED: Final = {"entity_types": "entity_types", "keys": "keys", "key_globs": "keys"}
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class _Rule(NamedTuple):
    """One grant of the file."""

    roles: frozenset[str]
    logs: tuple[str, ...]
    actions: frozenset[LogAction]
    view: View | None
    criterions: tuple[Mapping[str, Any], ...]
    slots: tuple[str, ...]
    groups: tuple[str, ...]

    def patterns(self) -> Iterator[tuple[str, str, str]]:
        """Yields each pattern, with its key and the kind of names for which it is."""
        for key in ("logs", "slots", "groups"):
            yield from ((key, key, text) for text in getattr(self, key))
        for criterion in self.criterions:
            for key, kind in _FILLED.items():
                yield from ((key, kind, text) for text in criterion.get(key, ()))

    def is_for(self, principal: Principal) -> bool:
        """Whether the grant is for a role of the principal."""
        return "*" in self.roles or bool(self.roles & principal.roles)

    def fits(self, claims: ClaimPatterns, principal: Principal, log: str, action: LogAction) -> bool:
        """Whether the grant applies to a principal, a log and an action."""
        if action not in self.actions or not self.is_for(principal):
            return False
        # As in a shell, a name that begins with $ matches only a pattern that does.
        return any(
            fnmatchcase(log, pattern) and (log[:1] != "$" or pattern[:1] == "$")
            for pattern in claims.all_filled("logs", self.logs, principal)
        )

    def grant(self, claims: ClaimPatterns, principal: Principal) -> Grant | None:
        """Returns the grant for a principal; None if a claim that the criteria name cannot be filled in."""
        if not self.criterions:
            slots, groups = (
                claims.all_filled(kind, getattr(self, kind), principal) for kind in ("slots", "groups")
            )
            return Grant(self.actions, self.view, slots=slots, groups=groups)
        found = []
        for criterion in self.criterions:
            remaining = dict(criterion)
            for name, kind in _FILLED.items():
                texts = [claims.filled(kind, text, principal) for text in criterion.get(name, ())]
                if None in texts:
                    return None
                remaining[name] = texts
            found.append(Criterion(**remaining))
        return Grant(self.actions, self.view, Criteria.of(found))


class UnfilledPattern(NamedTuple):
    """A pattern that stands for nothing, because a claim of a principal may not be filled in.

    Attributes:
        grant: The number of the grant in the file, from 1.
        key: Its key, such as ``slots``.
        pattern: The text.
        why: What is wrong with the claim.
    """

    grant: int
    key: str
    pattern: str
    why: str


class _Read(NamedTuple):
    """The parsed file."""

    content: bytes
    tokens: Mapping[bytes, Principal]
    names: Mapping[str, Principal]
    anonymous: Principal | None
    others: tuple[JwtVerifier | PeerCertificates, ...]
    rules: tuple[_Rule, ...]
    claims: ClaimPatterns


class Policy:
    """Authenticates and authorises by a file; ``serve(log, authenticate=policy, authorise=policy.authorise)``.

    While there are connections, the file is checked for changes, and changes apply to them too; see ``Limits.revocation``.

    Attributes:
        quick: True: it runs on the event loop, because it reads the file only when constructed and in ``refresh`` and
            ``reload``.

    Args:
        path: The file; paths in it are relative to its directory.

    Raises:
        ExtraMissing: If it has a table ``[jwt]`` and PyJWT is not installed.
        InvalidOption: If it cannot be read or is invalid; names the file, the table, the key and the value.
    """

    quick: Final = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._revision = 0
        self._read = self._parsed(self._content())

    @property
    def revision(self) -> int:
        """Increases when the file, or the keys of an issuer that it names, have changed."""
        return self._revision + sum(getattr(one, "revision", 0) for one in self._read.others)

    def __len__(self) -> int:
        return len({one.name for one in (*self._read.tokens.values(), *self._read.names.values())})

    async def __call__(self, credentials: Credentials) -> Principal | None:
        """Authenticates a client; None if it is refused. A token takes precedence over a certificate."""
        read = self._read
        if credentials.token is not None:
            known = read.tokens.get(_digest(credentials.token))
            signed = [one for one in read.others if isinstance(one, JwtVerifier)]
            return known or await AnyOf(*signed)(credentials)
        shown = [one for one in read.others if isinstance(one, PeerCertificates)]
        found = await AnyOf(*shown)(credentials)
        return read.anonymous if found is None else found

    def authorise(self, principal: Principal, log: str, action: LogAction) -> Grant:
        """Returns the first matching grant of the file; a grant of nothing if none matches."""
        read = self._read
        for rule in read.rules:
            if rule.fits(read.claims, principal, log, action):
                found = rule.grant(read.claims, principal)
                if found is not None:
                    return found
        return Grant(())

    def principals(self) -> list[Principal]:
        """Returns the principals of the file, each once; the anonymous one last."""
        read = self._read
        guests = () if read.anonymous is None else (read.anonymous,)
        return list(
            {one.name: one for one in (*read.tokens.values(), *read.names.values(), *guests)}.values()
        )

    def principal(self, name: str) -> Principal | None:
        """Returns the principal of a name from the file; None if the file has none."""
        return next((one for one in self.principals() if one.name == name), None)

    def unfilled(self, principal: Principal) -> list[UnfilledPattern]:
        """Returns the patterns of grants for the roles of a principal into which its claims may not be filled."""
        read = self._read
        return [
            UnfilledPattern(number, key, text, why)
            for number, rule in enumerate(read.rules, 1)
            if rule.is_for(principal)
            for key, kind, text in rule.patterns()
            if (why := read.claims.why_not(kind, text, principal)) is not None
        ]

    def refresh(self) -> None:
        """Reads the file and the keys that it names again if they have changed; an error changes nothing.

        Raises:
            InvalidOption: As for the class.
        """
        try:
            content = self._content()
            if content != self._read.content:
                self._take(content)
        finally:
            for one in self._read.others:
                if isinstance(one, JwtVerifier):
                    one.refresh()

    def reload(self) -> None:
        """As ``refresh``; called upon a signal."""
        self.refresh()

    def _take(self, content: bytes) -> None:
        read = self._parsed(content)
        # Exceeds the previous sum, to which the old verifiers contributed, so that the revision always increases.
        self._revision = self.revision + 1
        self._read = read

    def _content(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                content = file.read(_MOST + 1)
        except OSError as error:
            right = f"a file that can be read ({error.strerror})"
            raise InvalidOption("policy", str(self._path), right) from None
        if len(content) > _MOST:
            raise InvalidOption("policy", str(self._path), f"a file of at most {_MOST} bytes")
        return content

    def _parsed(self, content: bytes) -> _Read:
        try:
            document = tomllib.loads(content.decode())
        except (
            ValueError,
            RecursionError,
        ) as error:  # the error names the location only, because the content may be secret
            place = re.search(r"\(at (.*)\)", str(error))
            right = f"TOML in UTF-8{f'; see {place[1]}' if place else ''}"
            raise InvalidOption("policy", str(self._path), right) from None
        file = PolicyTable(str(self._path), "", document, _TABLES)
        tokens: dict[bytes, Principal] = {}
        names: dict[str, Principal] = {}
        if "principals" in file:
            listed = document["principals"]
            tables = file.table("principals", list(listed) if isinstance(listed, dict) else ("NAME",))
            for name in tables.names():
                if not provable(name):
                    right = "another name, because clients without credentials have this one"
                    raise tables.wrong(name, right, secret=True)
                _principal(tables.table(name, _PRINCIPAL), name, tokens, names)
        others: list[JwtVerifier | PeerCertificates] = []
        if "jwt" in file:
            others.append(self._verifier(file.table("jwt", _JWT)))
        by_name = file.table("certificates", ("name",)) if "certificates" in file else None
        if names or by_name is not None:
            others.append(
                _Certificates(names, "common_name" if by_name is None else by_name.text("name"), by_name)
            )
        anonymous = None
        if "anonymous" in file:
            anonymous = Principal(ANONYMOUS.name, file.table("anonymous", ("roles",)).texts("roles"))
        rules = tuple(map(_rule, file.each("grants", _GRANT)))
        patterns = [(kind, text) for rule in rules for _, kind, text in rule.patterns()]
        claims = file.made("grants", lambda _: ClaimPatterns(patterns))
        return _Read(content, tokens, names, anonymous, tuple(others), rules, claims)

    def _verifier(self, table: PolicyTable) -> JwtVerifier:
        options = table.plain()
        for name in ("jwks", "issuer", "audience"):
            table.text(name)
        if "algorithms" in table:
            table.texts("algorithms")
        jwks = self._path.parent / options.pop("jwks")
        return table.made("jwks", lambda _: JwtVerifier(jwks, **options))


class _Certificates(PeerCertificates):
    """Authenticates the principals of a file by their certificates."""

    def __init__(self, names: Mapping[str, Principal], name: str, table: PolicyTable | None) -> None:
        if name not in ("common_name", "subject"):
            assert table is not None
            raise table.wrong("name", "common_name or subject")
        super().__init__(name="subject" if name == "subject" else "common_name", allowed=names)
        self._known = names

    def __call__(self, credentials: Credentials) -> Principal | None:
        """Returns the principal of a certificate, with the roles and claims of the file, until the certificate expires."""
        found = super().__call__(credentials)
        if found is None:
            return None
        known = self._known[found.name]
        return Principal(known.name, known.roles, {**found.claims, **known.claims}, found.expires)


def _principal(
    table: PolicyTable, name: str, tokens: dict[bytes, Principal], names: dict[str, Principal]
) -> None:
    """Records a principal under its tokens and certificate."""
    claims = table.made("claims", dict, {})
    found = Principal(name, table.texts("roles"), claims)
    if not any(key in table for key in ("token", "token_sha256", "certificate")):
        raise table.wrong(
            "token", "there, or token_sha256 or certificate, by which it is known", secret=False
        )
    if "token" in table:
        _note(tokens, _digest(table.text("token", secret=True)), found, table, "token")
    if "token_sha256" in table:
        digest = table.text("token_sha256", secret=True)
        if not _SHA256.fullmatch(digest):
            raise table.wrong("token_sha256", "the SHA-256 of a token: 64 digits 0-9 and a-f", secret=True)
        _note(tokens, bytes.fromhex(digest), found, table, "token_sha256")
    if "certificate" in table:
        _note(names, table.text("certificate"), found, table, "certificate")


def _note(known: dict[Any, Principal], proof: object, found: Principal, table: PolicyTable, key: str) -> None:
    if known.setdefault(proof, found) is not found:
        raise table.wrong(key, "that of no other principal", secret=key != "certificate")


def _rule(table: PolicyTable) -> _Rule:
    for key in ("roles", "logs"):
        if not table.texts(key):
            raise table.wrong(key, 'a list of texts that is not empty; "*" stands for all')
    for pattern in table.texts("logs"):
        _check_claims(table, "logs", pattern)
    actions = frozenset(
        table.made("actions", lambda given: [_member(LogAction, one) for one in _listed(given)], ["READ"])
    )
    criterions = table.each("criteria", _CRITERION)
    for criterion in criterions:
        for name in _FILLED:
            for text in criterion.texts(name):
                _check_claims(criterion, name, text)
        criterion.made("", partial(_criterion, criterion.plain()))
    if criterions and LogAction.WRITE in actions:
        right = "left out where actions hold WRITE, as what is written is not narrowed; WRITE needs a grant of its own"
        raise table.wrong("criteria", right)
    view = _view(table)
    _check_actions(table, actions, narrowed=bool(criterions), viewed=view is not None)
    return _Rule(
        frozenset(table.texts("roles")),
        table.texts("logs"),
        actions,
        view,
        tuple(criterion.plain() for criterion in criterions),
        table.texts("slots"),
        table.texts("groups"),
    )


def _check_actions(
    table: PolicyTable, actions: frozenset[LogAction], *, narrowed: bool, viewed: bool
) -> None:
    consumes = LogAction.CONSUME in actions
    if consumes and narrowed:
        right = "left out where actions hold CONSUME, as a slot has its own criteria; CONSUME needs a grant of its own"
        raise table.wrong("criteria", right)
    if LogAction.MANAGE in actions and viewed:
        raise table.wrong("view", "left out where actions hold MANAGE, as a sink has its own view")
    if LogAction.MANAGE in actions and narrowed:
        right = "left out where actions hold MANAGE, as a sink carries what it is told to; MANAGE needs a grant of its own"
        raise table.wrong("criteria", right)
    for name in ("slots", "groups"):
        if table.texts(name) and not consumes:
            raise table.wrong(name, "left out where actions do not hold CONSUME")
        for pattern in table.texts(name):
            _check_claims(table, name, pattern)
            several = wrong_pattern(pattern)
            if several is not None:
                raise table.wrong(name, several)


def _criterion(fields: Mapping[str, Any], _: object) -> Criterion:
    return Criterion(**fields)


def _view(table: PolicyTable) -> View | None:
    if not any(key in table for key in ("content", "images", "fields", "mask")):
        return None
    content = table.made("content", lambda given: _member(Content, given), "BODY")
    images = table.made("images", lambda given: _member(Images, given), "WRITTEN")
    fields = table.texts("fields") if "fields" in table else None
    table.made("fields", lambda _: View.of(fields=fields))
    return table.made("mask", lambda given: View.of(content, images, fields=fields, mask=given))


def _member(kind: Any, given: object) -> Any:
    names = [one.name for one in kind]
    if given not in names:
        raise InvalidOption(kind.__name__, given, "one of " + ", ".join(names))
    return kind[given]


def _listed(given: object) -> Iterable[object]:
    if not isinstance(given, list) or not given:
        raise InvalidOption("actions", given, 'a list that is not empty, such as ["READ"]')
    return given


def _check_claims(table: PolicyTable, key: str, text: str) -> None:
    right = wrong_with(text)
    if right is not None:
        raise table.wrong(key, right)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
