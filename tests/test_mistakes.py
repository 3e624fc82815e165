"""What is usually mistyped: the error names what was meant."""

import pytest

from penstock_cdc.errors import InvalidOption
from publishers import Criterion, Outbox, SqlSource
from publishers.spark import ChangeSink
from tests.publishers.support import opened
from transports import Application, connect, serve

URL = "ws://127.0.0.1:9/ws"

ARGUMENTS = {
    "Criterion(entity_type=)": (
        lambda _: Criterion(entity_type={"order"}),
        "Criterion() has no argument 'entity_type'; did you mean entity_types=?",
    ),
    "changes(entity_types=)": (
        lambda log: log.changes(entity_types={"order"}),
        "ReadableLog.changes() has no argument 'entity_types'; did you mean Criterion(entity_types=...)?",
    ),
    "changes(entity_type=)": (lambda log: log.changes(entity_type="order"), "did you mean Criterion(entity_types=...)?"),
    "changes(from=)": (lambda log: log.changes(sinse=1), "did you mean since=?"),
    "history(keys=)": (lambda log: log.history(keys={"1"}), "did you mean Criterion(keys=...)?"),
    "remote changes(where=)": (lambda _: connect(URL).changes(where="a > 1"), "did you mean Criterion(where=...)?"),
    "slots.create(operations=)": (
        lambda log: log.slots.create("a", operations={"UPSERT"}),
        "did you mean Criterion(operations=...)?",
    ),
    "connect(reconect=)": (lambda _: connect(URL, reconect=True), "connect() has no argument 'reconect'; did you mean reconnect=?"),
    "serve(origin=)": (lambda log: serve(log, origin="*"), "did you mean origins=?"),
    "Application(host=)": (lambda log: Application(log, host="a"), "did you mean hosts=?"),
    "ChangeSink(keys=)": (lambda log: ChangeSink(log, entity_type="order", keys="id"), "did you mean key=?"),
    "SqlSource(keys=)": (lambda _: SqlSource(None, None, entity_type="order", keys="id"), "did you mean key=?"),
    "Outbox(tables=)": (lambda log: Outbox(None, log, tables="outbox"), "did you mean table=?"),
    "nothing near": (lambda _: connect(URL, colour="red"), "has no argument 'colour'; it has url, token, reconnect, "),
}  # fmt: skip


@pytest.mark.parametrize(("do", "told"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_a_keyword_argument_that_does_not_exist_names_the_one_that_is_meant(do, told):
    with opened() as log, pytest.raises(TypeError) as caught:
        do(log)
    assert told in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_other_errors_of_such_functions_stay_as_they_are():
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'url'$"):
        connect()
    with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given"):
        Criterion({"order"})


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("http://127.0.0.1:8090", "ws://127.0.0.1:8090/ws"),
        ("http://127.0.0.1:8090/live/", "ws://127.0.0.1:8090/live/ws"),
        ("https://shop.example/ws", "wss://shop.example/ws"),
        ("127.0.0.1:9", "ws://127.0.0.1:9/ws"),
        ("[::1]:9/graphql", "ws://[::1]:9/graphql"),
        ("localhost:8090/", "ws://localhost:8090/ws"),
    ],
)
def test_an_address_that_is_no_websocket_tells_the_one_that_is_meant(url, meant):
    with pytest.raises(InvalidOption, match=r"write connect\('[^']+'\)$") as caught:
        connect(url)
    assert str(caught.value).endswith(f"write connect({meant!r})")
    with pytest.raises(InvalidOption) as caught:
        connect(url, server_name="shop")
    assert str(caught.value).endswith(
        f"write connect({meant.replace('ws:', 'wss:', meant.startswith('ws:'))!r})"
    )


@pytest.mark.parametrize(
    "url", ["var/orders", "", None, 5, "ftp://a:1", "http://", "http://a:0/", "http://[::1"]
)
def test_what_resembles_no_address_is_refused_without_a_guess(url):
    with pytest.raises(
        InvalidOption, match=r"must be a URL that begins with wss://, or without TLS with ws://$"
    ):
        connect(url)
