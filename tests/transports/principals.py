"""Authenticators for tests: a token that is known is the name of its principal."""

from collections.abc import Callable

from transports import Credentials, Principal


def knowing(*tokens: str) -> Callable[[Credentials], Principal | None]:
    """Lets in who has one of these tokens; without any of them who has a token at all."""

    def authenticate(credentials: Credentials) -> Principal | None:
        token = credentials.token
        return Principal(token) if token and (not tokens or token in tokens) else None

    return authenticate
