"""Keys of a cache: which ones go, which are set, and what is made of the errors of a server; real ones are in tests/servers."""

import fnmatch

import pytest
import redis

from penstock_cdc.errors import InvalidOption
from publishers import Position, remove, truncate, upsert
from tests.transports.sinks.targets import rigged
from transports.sinks import SinkOptions, SinkState
from transports.sinks.cache import CacheSink


class Server:
    """What the client of a server does, of which it needs little."""

    def __init__(self):
        self.keys = {}
        self.places = {}
        self.lost = 0  # answers that do not arrive
        self.transactions = []
        self.unlinked = set()
        self.sizes = []  # commands of each pipeline
        self.seen = []  # the values of keys, in the order in which a reader may see them
        self.fails = []  # what is raised, or answered for a command
        self.options = None

    def pipeline(self, transaction):
        self.transactions.append(transaction)
        return Pipeline(self)

    def get(self, key):
        return self.places.get(key)

    def set(self, key, value, ex):
        (self.places if key.startswith("penstock:") else self.keys)[key] = (
            value if ex is None else (value, ex)
        )
        return True

    def scan(self, cursor, match, count):
        """Two steps, of which the first finds nothing."""
        pattern = match.decode().replace("\\*", "[*]")
        found = [key for key in self.keys if fnmatch.fnmatchcase(key.decode("utf-8", "replace"), pattern)]
        return (0, found) if cursor else (1, [])

    def unlink(self, *keys):
        self.unlinked |= set(keys)
        return len([self.keys.pop(key, None) for key in keys])

    def put(self, key, value, ex):
        self.keys[key] = (value, ex)
        self.seen.append((key, value))
        return True

    def ping(self):
        if self.fails:
            raise self.fails[0]
        return True

    def close(self):
        pass


class Pipeline:
    def __init__(self, server):
        self.server, self.todo = server, []

    def set(self, key, value, ex):
        if isinstance(key, str):
            self.todo.append(lambda: self.server.places.update({key: value.encode()}) is None)
        else:
            self.todo.append(lambda: self.server.put(key, value, ex))

    def mset(self, values):
        self.todo.append(lambda: all(self.server.put(key, value, None) for key, value in values.items()))

    def unlink(self, *keys):
        self.todo.append(lambda: self.server.unlink(*keys))

    def execute(self, raise_on_error):
        assert raise_on_error is False
        todo, self.todo = self.todo, []
        self.server.sizes.append(len(todo))
        answers = []
        for one in todo:
            error = self.server.fails.pop(0) if self.server.fails else None
            if isinstance(error, redis.ConnectionError | redis.AuthenticationError):
                raise error
            answers.append(one() if error is None else error)
        if self.server.lost and todo:
            self.server.lost -= 1
            raise redis.ConnectionError("no answer")
        return answers


@pytest.fixture
def server(monkeypatch):
    made = Server()
    monkeypatch.setattr(redis.Redis, "from_url", lambda url, **options: made)
    return made


URL = "redis://ann:hidden@cache.example/1"


def test_a_key_goes_when_its_entity_changes(server, tmp_path):
    """F110."""
    server.keys = {b"shop/order/1": 1, b"shop/order/2": 1, b"shop/order/3": 1, b"shop/bill/1": 1}
    with rigged(tmp_path / "log", CacheSink(URL, "shop/{entity_type}/{key}")) as rig:
        rig.log.commit([upsert("order", "1", {}), remove("order", "2"), upsert("order", "9", {})])
        rig.drained()
        assert list(server.keys) == [b"shop/order/3", b"shop/bill/1"]
        rig.log.commit([truncate("order")])
        rig.drained()
        assert list(server.keys) == [b"shop/bill/1"]


def test_keys_may_be_set_to_the_body(server, tmp_path):
    """F110: and a TRUNCATE finds those of its own batch, and no others."""
    with rigged(tmp_path / "log", CacheSink(URL, values=True, ttl=60)) as rig:
        rig.log.commit(
            [upsert("a*", "1", {"n": 1}), upsert("ab", "1", {"n": 2}), upsert("order", b"\xff", {})]
        )
        rig.log.commit([truncate("a*"), remove("order", "unknown")])
        rig.drained()
        assert server.keys == {b"ab:1": (b'{"n":2}', 60), b"order:\xff": (b"{}", 60)}


@pytest.mark.parametrize("batch", [1, 2, 100])
@pytest.mark.parametrize("unanswered", [False, True])
def test_values_never_go_back_after_a_crash(server, tmp_path, batch, unanswered):
    """F110: the position is set with them, so that nothing before it is set again, also where the answer was lost."""
    with rigged(tmp_path / "log", CacheSink(URL, values=True), batch_changes=batch) as rig:
        for n in range(1, 6):
            rig.log.commit([upsert("a", "1", {"n": n})])
        rig.drained()
        if unanswered:
            server.lost = 1
        rig.log.commit([truncate("a"), upsert("a", "2", {"n": 6}), upsert("a", "1", {"n": 7})])
        rig.until(lambda: rig.runner.state is SinkState.RETRYING) if unanswered else rig.drained()
        rig.died()
        rig.log.commit([upsert("a", "1", {"n": 8})])
        rig.drained()
        seen = [int(value[5:-1]) for key, value in server.seen if key == b"a:1"]
        assert seen == sorted(set(seen))
        assert server.keys == {b"a:1": (b'{"n":8}', None), b"a:2": (b'{"n":6}', None)}
        assert set(server.transactions) == {True}


def test_a_server_that_came_back_without_its_newest_keys_gets_them_again(server, tmp_path):
    """F178: its position went back with them, and replaces that of the slot."""
    with rigged(tmp_path / "log", CacheSink(URL, values=True)) as rig:
        rig.commit("a")
        rig.drained()
        before = dict(server.places), dict(server.keys)
        rig.commit("b")
        rig.drained()
        rig.stored()
        server.places, server.keys = before
        rig.again()
        rig.drained()
        assert list(server.keys) == [b"order:a", b"order:b"]


def test_a_cache_of_values_takes_one_batch_at_a_time(tmp_path):
    """F110: several could not be set together with one position."""
    with pytest.raises(InvalidOption, match="in_flight"):
        SinkOptions(in_flight=2, ordering="key").lanes_of(CacheSink(URL, values=True))


@pytest.mark.parametrize("refused", range(3))
def test_the_place_of_a_cache_stays_before_what_it_did_not_take(server, tmp_path, refused):
    """F110: so that a crash repeats it, whatever came behind it in its batch was taken."""
    with rigged(tmp_path / "log", CacheSink(URL, values=True)) as rig:
        rig.commit("a", "b", "c")
        full = redis.exceptions.OutOfMemoryError("OOM command not allowed")
        wrong = redis.ResponseError("ERR no value of mine")
        server.fails = [wrong, None, *[None] * refused, full]  # all at once, with the place; then one by one
        rig.until(lambda: rig.runner.state is SinkState.RETRYING)
        ((place,),) = [tuple(server.places.values())]
        assert rig.log.position_of(place) == Position(1, 1 + refused)
        rig.later(60.0)
        rig.drained()
        assert sorted(server.keys) == [b"order:a", b"order:b", b"order:c"]


def test_values_go_by_one_command_and_one_that_is_refused_leaves_the_others(server, tmp_path):
    """F110, F125: a transaction answers each command twice."""
    with rigged(tmp_path / "log", CacheSink(URL, values=True), on_reject="drop") as rig:
        wrong = redis.ResponseError("ERR no value of mine")
        server.fails = [wrong, None, None, wrong]
        rig.commit("a", "b", "c")
        rig.until(lambda: rig.runner.counters.dropped)
        rig.drained()
        assert sorted(server.keys) == [b"order:a", b"order:c"]
        before = len(server.sizes)
        rig.commit(*range(100))
        rig.drained()
        assert {*server.sizes[before:]} == {2}


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (redis.ConnectionError("gone"), SinkState.RETRYING),
        (redis.exceptions.OutOfMemoryError("OOM command not allowed"), SinkState.RETRYING),
        (redis.ResponseError("MISCONF cannot persist"), SinkState.RETRYING),
        (redis.ResponseError("ERR unknown command"), SinkState.PAUSED),
        (redis.exceptions.NoPermissionError("NOPERM no"), SinkState.PAUSED),
        (redis.AuthenticationError("WRONGPASS"), SinkState.PAUSED),
    ],
)
def test_what_a_server_answers_is_judged(server, tmp_path, error, state):
    """F125: a server that cannot now is tried again, one that will not pauses the sink."""
    with rigged(tmp_path / "log", CacheSink(URL, values=True)) as rig:
        server.fails = [error] * 9
        rig.commit("a")
        rig.until(lambda: rig.runner.state is state)
        assert "hidden" not in rig.runner.statistics().last_error
        server.fails = []
        rig.later(60.0)
        rig.runner.resume()
        rig.drained()
        assert list(server.keys) == [b"order:a"]


def test_it_tells_whether_its_server_answers(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CACHE", URL)
    sink = CacheSink("env:CACHE")
    assert repr(sink) == "<CacheSink env:CACHE>"
    with rigged(tmp_path / "log", sink) as rig:
        rig.commit("a")
        rig.drained()
        assert sink.alive()
        server.fails = [redis.ConnectionError()]
        assert not sink.alive()
        monkeypatch.setenv("CACHE", "http://x")
        rig.again()
        rig.until(lambda: rig.runner.state is SinkState.PAUSED)
    assert repr(CacheSink(URL)) == "<CacheSink redis://cache.example/1>"


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "http://x"},
        {"url": None},
        {"template": "order"},
        {"template": "{name}:{key}"},
        {"template": "{key!r}"},
        {"template": "{key"},
        {"template": None},
        {"template": "{{{key}"},
        {"ttl": 0},
        {"timeout": 0},
    ],
)
def test_what_is_out_of_its_bounds_is_refused(arguments):
    with pytest.raises(InvalidOption):
        CacheSink(**{"url": URL, **arguments})
