"""Principals from JSON Web Tokens (RFC 7519), verified with the public keys of their issuer."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from publishers.errors import InvalidOption
from transports.access.principal import Credentials, Principal, provable
from transports.errors import ExtraMissing

if TYPE_CHECKING:
    from jwt import PyJWK

__all__ = ["JwtVerifier"]

_TYPES: Final[Mapping[str, str]] = {
    **{f"{kind}{bits}": "RSA" for kind in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"ES{bits}": "EC" for bits in (256, 384, 512)},
    "EdDSA": "OKP",
}
_MOST: Final = 1 << 20
_TOKEN_MAX: Final = 16 << 10
_KEYS_MAX: Final = 100
_LEEWAY_MAX: Final = 300.0
_RIGHT: Final = 'a file of at most 1 MiB with a JWK Set (RFC 7517), that is {"keys": [...]}, of public keys for signatures'


class JwtVerifier:
    """Authenticates clients by tokens that an issuer has signed; see ``serve(..., authenticate=...)``.

    A token must be signed with one of the given algorithms and a matching key of the set, and must contain ``iss``, ``aud``,
    ``exp`` and the name of the principal. ``none`` and algorithms with a shared secret (such as HS256) are never accepted: a
    server that accepted them would take the public key as the secret, and whoever knows it could sign. All claims become the
    claims of the principal, which expires with the token.

    Attributes:
        quick: True: it runs on the event loop, because it reads the file only when constructed and in ``refresh`` and
            ``reload``.
        revision: Counts how often new keys were read; connections are then authenticated again.

    Args:
        jwks: The file with the issuer's keys. While there are connections it is checked every half of ``Limits.revocation``,
            so replacing the file rotates the keys.
        issuer: The required ``iss``.
        audience: The required ``aud``, or a member of it.
        algorithms: The accepted signature algorithms.
        leeway: Seconds, from 0 to 300, by which clocks may differ.
        name: The claim with the name of the principal.
        roles: The claim with its roles, a list or a text with spaces; dots lead into objects, as in ``realm_access.roles``.
            A principal without the claim has no roles.

    Raises:
        ExtraMissing: If PyJWT is not installed.
        InvalidOption: If the file cannot be read or has no such keys, or if another argument is invalid.
    """

    quick: Final = True

    def __init__(
        self,
        jwks: str | os.PathLike[str],
        *,
        issuer: str,
        audience: str,
        algorithms: Collection[str] = ("RS256", "ES256", "EdDSA"),
        leeway: float = 10.0,
        name: str = "sub",
        roles: str = "roles",
    ) -> None:
        for parameter, value in (
            ("issuer", issuer),
            ("audience", audience),
            ("name", name),
            ("roles", roles),
        ):
            if not isinstance(value, str) or not value:
                raise InvalidOption(parameter, value, "a text that is not empty")
        if isinstance(algorithms, str) or not algorithms or not set(algorithms) <= _TYPES.keys():
            raise InvalidOption("algorithms", algorithms, "a list of " + ", ".join(_TYPES))
        if isinstance(leeway, bool) or not isinstance(leeway, (int, float)) or not 0 <= leeway <= _LEEWAY_MAX:
            raise InvalidOption("leeway", leeway, "a number of seconds from 0 to 300")
        self._path = Path(jwks)
        self._issuer = issuer
        self._audience = audience
        self._algorithms = frozenset(algorithms)
        self._leeway = leeway
        self._name = name
        self._roles = roles.split(".")
        self._read = b""
        self._keys: list[tuple[str | None, str | None, str, PyJWK]] = []
        self.revision: int = 0
        self.reload()

    def __call__(self, credentials: Credentials) -> Principal | None:
        """Returns the principal of a token; None if there is no token or it is invalid."""
        import jwt  # noqa: PLC0415 - an optional dependency

        token = credentials.token
        if token is None or len(token) > _TOKEN_MAX:
            return None
        try:
            header = jwt.get_unverified_header(token)
            key = None if "crit" in header else self._key(header.get("kid"), header.get("alg"))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[header["alg"]],
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud", self._name]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        return self._principal(claims)

    def _key(self, name: object, algorithm: object) -> "PyJWK | None":
        """Returns the key that a token names; for a token that names none, the only key of its kind."""
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            return None
        kind = _TYPES[algorithm]
        fitting = [
            key
            for kid, alg, kty, key in self._keys
            if kty == kind and alg in (None, algorithm) and (name is None or kid == name)
        ]
        return fitting[0] if len(fitting) == 1 or (fitting and name is not None) else None

    def _principal(self, claims: Mapping[str, Any]) -> Principal | None:
        name, roles = claims[self._name], self._found(claims)
        if not isinstance(name, str) or not name or not provable(name) or roles is None:
            return None
        return Principal(name, roles, claims, float(claims["exp"]) + self._leeway)

    def _found(self, claims: Mapping[str, Any]) -> list[str] | None:
        """Returns the roles in the claims; None if they have an unknown form."""
        found: object = claims
        for name in self._roles:
            if not isinstance(found, Mapping) or name not in found:
                return []
            found = found[name]
        if isinstance(found, str):
            return found.split()
        if not isinstance(found, list):
            return None
        texts = [role for role in found if isinstance(role, str)]
        return texts if len(texts) == len(found) else None

    def refresh(self) -> None:
        """Reads the file again if it has changed; if that fails, the previous keys stay in use."""
        if self._content() != self._read:
            self.reload()

    def reload(self) -> None:
        """Reads the file again; if that fails, the previous keys stay in use.

        Raises:
            InvalidOption: As for the class.
        """
        content = self._content()
        keys = self._parsed(content)
        if content != self._read:
            self._read, self._keys = content, keys
            self.revision += 1

    def _content(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(_MOST + 1)
        except OSError as error:
            right = f"a file that can be read ({error.strerror})"
            raise InvalidOption("jwks", str(self._path), right) from None

    def _parsed(self, content: bytes) -> "list[tuple[str | None, str | None, str, PyJWK]]":
        try:
            import cryptography  # noqa: F401, PLC0415 - an optional dependency
            from jwt import PyJWK, PyJWTError  # noqa: PLC0415 - likewise
        except ImportError as error:
            raise ExtraMissing("JSON Web Tokens", error.name or "jwt", "jwt") from None
        try:
            document = msgspec.json.decode(content) if len(content) <= _MOST else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            document = None
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or len(listed) > _KEYS_MAX:
            raise InvalidOption("jwks", str(self._path), _RIGHT)
        found = []
        for place, one in enumerate(listed):
            if not isinstance(one, dict) or one.get("use", "sig") != "sig":
                continue
            kind = str(one.get("kty"))
            # The key is left out of the error, because it is a secret.
            if kind == "oct" or "d" in one or "k" in one:
                raise InvalidOption(
                    "jwks", str(self._path), f"{_RIGHT}; key {place} is a secret or private one"
                )
            if kind not in _TYPES.values():
                continue
            algorithm = one.get("alg")
            if algorithm is not None and _TYPES.get(algorithm) != kind:
                continue
            usable = algorithm or next(each for each in _TYPES if _TYPES[each] == kind)
            try:
                key = PyJWK(one, usable)
            except PyJWTError:
                raise InvalidOption("jwks", str(self._path), f"{_RIGHT}; key {place} is none") from None
            found.append((one.get("kid"), algorithm, kind, key))
        if not found:
            raise InvalidOption("jwks", str(self._path), _RIGHT)
        return found
