"""What a principal may spend in a second."""

import pytest

from penstock_cdc.errors import TooCostly
from transports.problems import describe
from transports.quotas.rates import PrincipalRates


class Clock:
    """A clock that is set."""

    now = 0.0

    def monotonic(self):
        return self.now


def test_a_principal_spends_its_own_rate_and_owes_what_it_began():
    """F147: a burst of two seconds; what others spend is theirs."""
    clock = Clock()
    rates = PrincipalRates("scanned", 100, "bytes", clock)
    for _ in range(3):
        rates.spend("ann", 90)
    with pytest.raises(TooCostly) as caught:
        rates.spend("ann", 1)
    assert (describe(caught.value).code, caught.value.retryable) == ("TOO_COSTLY", True)
    rates.spend("bob", 10)
    clock.now = 0.5
    with pytest.raises(TooCostly):
        rates.spend("ann", 1)
    clock.now = 0.75
    rates.spend("ann", 1)
    assert (rates.spent, rates.refused) == (281, 2)


def test_a_principal_that_spends_nothing_occupies_nothing():
    """F147: any number of names may come."""
    clock = Clock()
    rates = PrincipalRates("scanned", 100, "bytes", clock)
    for number in range(1_000):
        clock.now = number
        rates.spend(f"p{number}", 100)
    assert len(rates._levels) <= 4
