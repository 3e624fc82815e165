"""Keys of a real Redis that go when entities change."""

import pytest

from publishers import remove, truncate, upsert
from tests.servers.redis_server import RedisServer
from tests.transports.sinks.targets import GoingClock, rigged

redis = pytest.importorskip("redis", reason="the extra redis is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis")) as made:
        yield made


def test_keys_go_when_their_entities_change_and_no_others(server, tmp_path):
    """F110: one by one, and all of an entity type, whatever characters they have."""
    from transports.sinks.cache import CacheSink

    url = f"redis://127.0.0.1:{server.port}/0"
    with (
        rigged(
            tmp_path / "log",
            CacheSink(url, "shop:{entity_type}:{key}"),
            clock=GoingClock(),
            in_flight=3,
            ordering="key",
        ) as rig,
        redis.Redis.from_url(url) as client,
    ):
        filled = {f"shop:{kind}:{key}": "x" for kind in ("order", "order*", "bill") for key in "abc"}
        client.mset({**filled, "session:order:a": "x"})
        rig.log.commit([upsert("order", "a", {}), remove("order", "b"), upsert("other", "a", {})])
        rig.drained()
        left = filled.keys() - {"shop:order:a", "shop:order:b"} | {"session:order:a"}
        assert {key.decode() for key in client.scan_iter()} == left
        rig.log.commit([truncate("order*")])
        rig.drained()
        left -= {f"shop:order*:{key}" for key in "abc"}
        assert {key.decode() for key in client.scan_iter()} == left
        rig.log.commit([truncate("order")])
        rig.drained()
        assert {key.decode() for key in client.scan_iter()} == left - {"shop:order:c"}


def test_keys_that_are_set_go_after_their_time(server, tmp_path):
    """F110."""
    from transports.sinks.cache import CacheSink

    url = f"redis://127.0.0.1:{server.port}/1"
    with (
        rigged(tmp_path / "log", CacheSink(url, values=True, ttl=500), clock=GoingClock()) as rig,
        redis.Redis.from_url(url) as client,
    ):
        rig.log.commit([upsert("order", "a", {"n": 1})])
        rig.drained()
        assert client.get("order:a") == b'{"n":1}'
        assert 0 < client.ttl("order:a") <= 500
