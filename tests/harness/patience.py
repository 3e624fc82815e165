"""Servers of tests are patient with their clients, which are as late as anything else on a busy machine.

What a test tries of these bounds it sets; a child that is a server by itself has those of the product.
"""

from transports.limits import Limits

__all__ = ["PATIENT", "be_patient"]

PATIENT = dict.fromkeys(("authenticate_timeout", "init_timeout", "request_timeout"), 60.0)
"""Not what a client is told, or what the default time between heartbeats comes from."""


def be_patient() -> None:
    """Has every ``Limits`` that is made from now on in this process wait that long, unless it is told otherwise."""
    defaults = Limits.__init__.__kwdefaults__
    assert defaults is not None
    defaults |= PATIENT
