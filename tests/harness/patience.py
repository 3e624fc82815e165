"""Longer client timeouts for servers in tests, since clients are late on a busy machine.

A test of a timeout sets it explicitly. A server in a child process keeps the defaults of the product.
"""

from transports.limits import Limits
from transports.protocol import connection

__all__ = ["PATIENT", "be_patient"]

PATIENT = dict.fromkeys(("authenticate_timeout", "request_timeout"), 60.0)
"""Only timeouts that are not sent to clients, and that the default heartbeat interval does not depend on."""


def be_patient() -> None:
    """Makes `PATIENT` the defaults of every ``Limits`` created in this process from now on, and waits as long for ``connection_init``."""
    defaults = Limits.__init__.__kwdefaults__
    assert defaults is not None
    defaults |= PATIENT
    vars(connection)["INIT_TIMEOUT"] = 60.0
