"""What all subscriptions of a connection, and of a server, may weigh."""

import pytest

from penstock_cdc.errors import TooCostly
from publishers import Criteria, Criterion
from publishers.criteria.cost import Cost, weigh
from transports import Limits
from transports.problems import describe
from transports.quotas.weight import ConnectionWeight, ServerWeight


def of(*keys):
    return Criteria.of(Criterion(keys=keys))


def test_a_connection_may_take_what_is_left_and_gets_back_what_ended():
    """F147."""
    server = ServerWeight(1_000)
    one = ConnectionWeight(100, server)
    one.take("a", "shop", of("1"), Cost(60, "keys"))
    with pytest.raises(
        TooCostly, match="connection_weight is 100, of which 40 are left; cheaper would be: fewer keys"
    ) as caught:
        one.take("b", "shop", of("2"), Cost(41, "keys"))
    assert (caught.value.cost, caught.value.limit, caught.value.retryable) == (41, 100, True)
    one.take("b", "shop", of("2"), Cost(40, "keys"))
    assert (one.weight, server.weight) == (100, 100)
    for _ in range(2):
        one.give("a")
    assert (one.weight, server.weight) == (40, 40)
    one.give("b")
    one.give("unknown")
    assert (one.weight, server.weight, server._taken) == (0, 0, {})


def test_equal_criteria_of_one_log_count_once_for_the_server():
    """F147: they share one publisher."""
    server = ServerWeight(100)
    crowd = [ConnectionWeight(60, server) for _ in range(50)]
    for each in crowd:
        each.take("a", "shop", of("1", "2"), Cost(60, "keys"))
    assert server.weight == 60
    crowd[0]._limit = 1_000
    with pytest.raises(TooCostly, match="criteria_weight") as caught:
        crowd[0].take("b", "other", of("1", "2"), Cost(60, "keys"))
    assert describe(caught.value).payload() == {
        "code": "TOO_COSTLY",
        "message": str(caught.value),
        "retryable": True,
        "cost": 60,
        "limit": 100,
        "option": "criteria_weight",
        "cheaper": caught.value.cheaper,
    }
    assert crowd[0].weight == 60
    for each in crowd:
        each.give("a")
    assert server.weight == 0


def test_honest_use_is_far_below_the_defaults():
    """F147: what is known to be asked for, with the option that it counts against and how much of it that is at most."""
    limits = Limits()
    dashboard = weigh(
        Criteria.of(Criterion(entity_types={"order"}, keys={f"order-{n:06}" for n in range(500)}))
    ).weight
    single = weigh(
        Criteria.of(Criterion(entity_types={"order"}, where="status == OPEN", transitions={"ENTERED"}))
    ).weight
    patterns = weigh(
        Criteria.of(Criterion(key_patterns={rf"order-\d+-{n}", rf"[a-z]+-{n}-\d{{4}}"}) for n in range(10))
    ).weight
    replica = weigh(Criteria.of(Criterion(entity_types={f"table{n}" for n in range(300)}))).weight
    listed = {
        "500 keys of one subscription": (dashboard, limits.subscription_weight),
        "100 subscriptions of 500 keys on a connection": (100 * dashboard, limits.connection_weight),
        "10,000 connections with a condition each": (10_000 * single, limits.criteria_weight),
        "20 patterns of one subscription": (patterns, limits.subscription_weight),
        "300 tables of one subscription": (replica, limits.subscription_weight),
    }
    for use, (weight, limit) in listed.items():
        assert weight <= limit / 3, f"{use} weighs {weight}, and {limit} are all"
