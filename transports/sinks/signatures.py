"""Signatures of Standard Webhooks (standardwebhooks.com, symmetric, version 1)."""

import base64
import binascii
import hmac
from collections.abc import Sequence
from typing import Final

from transports.sinks.errors import TargetRefused
from transports.sinks.secrets import SecretReference

__all__ = ["sign"]

_PREFIX: Final = "whsec_"


def sign(secrets: Sequence[SecretReference], message: str, timestamp: int, body: bytes) -> str:
    """Returns the header ``webhook-signature``: one signature for each secret, so that receivers may verify with any during a rotation.

    Args:
        secrets: References to the secrets, which are base64 with or without the prefix ``whsec_``.
        message: The header ``webhook-id``.
        timestamp: The header ``webhook-timestamp``, in Unix seconds.
        body: The body before compression.

    Raises:
        TargetRefused: If a secret is missing or is not base64.
    """
    signed = b"%s.%d.%s" % (message.encode(), timestamp, body)
    return " ".join(
        "v1," + base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode() for secret in secrets
    )


def _key(secret: SecretReference) -> bytes:
    text = secret.value().removeprefix(_PREFIX)
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise TargetRefused(
            f"the secret {secret} is not base64, as secrets of Standard Webhooks are"
        ) from None
    return key
