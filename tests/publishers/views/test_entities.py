"""Bodies as objects of the application's own classes."""

import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel

import flow
from penstock_cdc.errors import BodyMismatch, InvalidChange, InvalidOption
from penstock_cdc.fields import set_field
from penstock_cdc.mutations import copied
from penstock_cdc.types import ModelChange
from publishers import Area, Change, ChangeStore, Content, Criterion, Images, Position, View, upsert
from tests.publishers.support import BatchProbe, Probe

KEY = UUID(int=7)
AT = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    total: Decimal
    at: datetime = AT
    raw: bytes = b"\x00\xff"
    id: UUID = KEY
    day: date = date(2026, 1, 2)
    wait: timedelta = timedelta(seconds=90)
    lines: tuple[int, ...] = (2**60, 1)
    note: str | None = None


class Customer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    since: datetime = AT


class Visit(BaseModel):
    page: str
    total: Decimal = Decimal("1.10")
    at: datetime = AT


class Line(msgspec.Struct, array_like=True):
    price: int


class Picky:
    """What looks like a pydantic model, and has an opinion of its own."""

    @classmethod
    def model_validate_json(cls, data: bytes) -> "Picky":
        raise LookupError


MODELS = {"order": Order(Decimal("10.00")), "customer": Customer("Ann"), "visit": Visit(page="/")}
CLASSES = {name: type(model) for name, model in MODELS.items()}


def followed(log, *wishes, first=100, probe=Probe, **reading):
    """A probe that has heard everything there is."""
    subscriber = probe(first=first)
    reading = {"since": "earliest", "until": log.head.version - 1} | reading
    log.changes(*wishes, **reading).subscribe(subscriber, executor=flow.INLINE)
    subscriber.wait_for_end()
    assert subscriber.clean
    return subscriber


@pytest.mark.parametrize("name", MODELS)
def test_an_object_that_was_written_comes_back_equal(log, name):
    """F24."""
    log.commit([upsert(name, "1", MODELS[name], before=MODELS[name], changed="auto")])
    (change,) = followed(log, Criterion(entity_types={name}), as_=CLASSES[name], images=Images.ALL).changes
    assert change.body == change.before == MODELS[name]
    assert isinstance(change.body, CLASSES[name])


def test_dataclasses_and_structs_are_written_as_mappings_with_their_fields_are(log):
    """F24."""
    fields = {"total": Decimal("10.00"), "at": AT.astimezone(timezone(timedelta(hours=2)))}
    assert upsert("order", "1", Order(**fields)).body.startswith(upsert("order", "1", fields).body[:-1])


def test_each_entity_type_may_have_a_class(log):
    """F24."""
    log.commit([upsert(name, "1", model) for name, model in MODELS.items()])
    log.commit([upsert("other", "1", {"a": 1})])
    heard = followed(log, as_=CLASSES).changes
    assert [change.body for change in heard] == [None, *MODELS.values(), None, None]
    assert heard[-1].body_bytes == b'{"a":1}'


def test_what_is_no_entity_as_a_whole_has_no_object(log):
    """F3, F9."""
    with log.transaction() as tx:
        tx.schema("order", {"type": "struct"})
        tx.upsert("order", "1", MODELS["order"], changes=[set_field("note", "late")])
        tx.remove("order", "1")
    heard = followed(log, as_=Order).changes
    assert [change.body is None for change in heard] == [True, True, False, True, True]
    assert heard[1].area is Area.SCHEMA
    assert heard[3].body_bytes == b'{"note":"late"}'


def test_a_change_with_objects_is_the_change_it_is_made_of(log):
    log.commit([upsert("order", "1", MODELS["order"])], meta={"user": "ann"})
    heard = followed(log, as_=Order).changes
    plain = followed(log, content=Content.BODY).changes
    assert heard == plain
    assert hash(heard[1]) == hash(plain[1])
    assert repr(heard[1]) == repr(plain[1])
    assert isinstance(heard[1], Change | ModelChange)
    assert (heard[0].meta, heard[1].after) == ({"user": "ann"}, Position(2))
    assert copied(heard[1]) == copied(plain[1])


@pytest.mark.parametrize("probe", [Probe, BatchProbe])
def test_what_does_not_fit_ends_the_subscription_that_asked_and_no_other(log, probe):
    """F24, F128: for subscribers of single changes and of batches."""
    log.commit(
        [
            upsert("order", "41", MODELS["order"]),
            upsert("order", "42", {"total": "ten"}),
            upsert("order", "43", MODELS["order"]),
        ]
    )
    wish = Criterion(entity_types={"order"})
    other = Probe(first=9)
    log.changes(wish, since=1, content=Content.BODY).subscribe(other, executor=flow.INLINE)
    asked = followed(log, wish, as_=Order, probe=probe)
    error = asked.error
    assert isinstance(error, BodyMismatch)
    assert str(error) == "body of order '42' at 1:2 does not fit Order: Invalid decimal string - at `$.total`"
    assert (error.entity_type, error.key, error.position) == ("order", "42", Position(1, 2))
    assert [change.key for change in asked.changes] == ["41"]
    log.commit([upsert("order", "44", MODELS["order"])])
    other.wait_for(4)
    assert [change.key for change in other.changes] == ["41", "42", "43", "44"]
    assert other.error is None
    behind = followed(log, wish, since=error.after, as_=Order)
    assert [change.key for change in behind.changes] == ["43", "44"]


@pytest.mark.parametrize(
    ("model", "body", "flaw"),
    [
        (Customer, {"name": "Ann", "age": 7}, "Customer: Object contains unknown field `age`"),
        (
            Visit,
            {"page": 7, "total": "x"},
            "Visit: page: Input should be a valid string; total: Input should be a valid decimal",
        ),
        (Picky, {}, "Picky: LookupError"),
    ],
)
def test_a_mismatch_is_told_in_one_line(log, model, body, flaw):
    """F24."""
    log.commit([upsert("order", "1", body)])
    error = followed(log, as_=model).error
    assert str(error) == f"body of order '1' at 1:1 does not fit {flaw}"
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_a_before_image_that_does_not_fit_is_told_as_one(log):
    log.commit([upsert("order", "1", MODELS["order"], before={})])
    error = followed(log, as_=Order, images=Images.ALL).error
    assert (error.image, error.flaw) == ("before", "Object missing required field `total`")


@pytest.mark.parametrize("as_", ["order", dict, Order(Decimal(1)), {"order": "order"}, {}, 7])
def test_what_is_no_class_with_fields_is_refused(log, as_):
    with pytest.raises(InvalidOption, match=r"a dataclass, a msgspec\.Struct or a pydantic model"):
        log.changes(as_=as_)


def test_a_view_without_bodies_is_refused_where_objects_are_asked_for(log):
    with pytest.raises(InvalidOption, match=r"Content\.BODY"):
        log.changes(as_=Order, view=View())


@pytest.mark.parametrize("body", [Order, Line(1), Order(float("nan")), Order(object()), Order(Picky())])
def test_an_object_that_json_cannot_hold_is_refused(body):
    """F24."""
    with pytest.raises(InvalidChange, match="body"):
        upsert("order", "1", body)


def test_who_wants_objects_has_the_subscription_itself_and_hears_what_else_there_is_to_hear(log):
    class Told(Probe):
        def on_gap(self, gap):
            raise AssertionError

    with pytest.raises(TypeError, match="on_gap"):
        log.changes(as_=Order, on_gap="jump").subscribe(Probe())
    subscriber = Told(first=2)
    feed = log.changes(Criterion(entity_types={"order"}), since=1, as_=Order, on_gap="jump")
    feed.subscribe(subscriber, executor=flow.INLINE)
    log.commit([upsert("order", str(number), MODELS["order"]) for number in range(4)])
    subscriber.wait_for(2)
    subscriber.subscription.seek(Position(1, 4))
    subscriber.request(1)
    subscriber.wait_for(3)
    assert subscriber.positions == [Position(1, 1), Position(1, 2), Position(1, 4)]
    assert log.statistics().publishers[0].subscriptions[0].name == "Told"
    feed.feed.close()
    subscriber.wait_for_end()


def test_a_subscriber_that_raises_is_cancelled_and_hears_no_more(log, dropped):
    class Raising(Probe):
        def on_next(self, change, /):
            raise LookupError

    subscriber = Raising(first=9)
    log.changes(as_=Order).subscribe(subscriber, executor=flow.INLINE)
    log.commit([upsert("order", "1", MODELS["order"])])
    assert (subscriber.terminals, dropped[0][0]) == (0, LookupError)
    assert log.statistics().publishers == ()


def test_the_log_of_a_store_tells_of_its_logs_also_where_objects_are_asked_for(tmp_path):
    with ChangeStore.open(tmp_path) as store:
        store.create("orders")
        heard = followed(store.system, as_=Order).changes
        assert [change.key for change in heard if change.key] == ["orders"]
