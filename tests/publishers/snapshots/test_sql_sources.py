"""Rows of tables and queries of a database."""

import datetime as dt
import uuid
from decimal import Decimal

import pytest

from publishers import (
    Criterion,
    InvalidOption,
    PageSource,
    SourceRowRefused,
    SqlSource,
)
from publishers.lossless import key_text
from tests.publishers.snapshots.test_feed import keys
from tests.publishers.snapshots.test_sources import ORDERS, ends, rows_of
from tests.publishers.support import fill, opened, wait_until


@pytest.fixture
def log():
    with opened() as one:
        yield one


sql = pytest.importorskip("sqlalchemy")


@pytest.fixture
def engine(tmp_path):
    engine = sql.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    yield engine
    engine.dispose()


def made(engine, name, columns, rows):
    table = sql.Table(name, sql.MetaData(), *columns)
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), rows)
    return table


def test_the_rows_of_a_table_come_by_pages_of_its_key(log, engine):
    """F88, F89: whole numbers come as numbers do, and not as their texts."""
    columns = (sql.Column("id", sql.Integer, primary_key=True), sql.Column("total", sql.Numeric(10, 2)))
    orders = made(engine, "orders", columns, [{"id": n, "total": Decimal(n)} for n in (2, 9, 10, 11, 100)])
    source = SqlSource(engine, orders, entity_type="order", key="id", page_rows=2)
    probe = rows_of(log, source, ORDERS)
    assert keys(probe.changes) == ["2", "9", "10", "11", "100"]
    assert probe.changes[0].body == {"id": 2, "total": "2.00"}
    rest = rows_of(log, source, since=probe.changes[2].cursor)
    assert keys(rest.changes) == ["11", "100"]
    rest.subscription.again(ORDERS, after="2", until="10")
    wait_until(lambda: ends(rest) == 2)
    assert keys(rest.changes[2:]) == ["9", "10"]


def test_the_rows_of_a_query_have_keys_of_several_columns_and_bodies_of_choice(log, engine):
    """F88."""
    columns = (sql.Column("shop", sql.Integer), sql.Column("code", sql.String), sql.Column("n", sql.Integer))
    items = made(
        engine, "items", columns, [{"shop": s, "code": c, "n": s} for s in (1, 2, 10) for c in ("a/b", "c")]
    )
    source = SqlSource(
        engine,
        sql.select(items).where(items.c.n > 1),
        entity_type="item",
        key=["shop", "code"],
        body=lambda row: {"n": row["n"]},
        marker=lambda: log.visible,
        page_rows=1,
    )
    probe = rows_of(log, source)
    assert [(change.key, change.body) for change in probe.changes] == [
        ("2/a/b", {"n": 2}),
        ("2/c", {"n": 2}),
        ("10/a/b", {"n": 10}),
        ("10/c", {"n": 10}),
    ]


class Moments(sql.TypeDecorator):
    """Times with a time zone, as a connection far east of Greenwich shows them."""

    impl = sql.DateTime
    cache_ok = True
    python_type = dt.datetime

    def process_bind_param(self, value, dialect):
        return value.astimezone(dt.UTC).replace(tzinfo=None)

    def process_result_value(self, value, dialect):
        return value.replace(tzinfo=dt.UTC).astimezone(dt.timezone(dt.timedelta(hours=5, minutes=45)))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Moments, [dt.datetime(2025, 1, 2, 3, tzinfo=dt.UTC), dt.datetime(2025, 1, 2, 23, 4, 5, 6, dt.UTC)]),
        (sql.Uuid, [uuid.UUID(int=n) for n in (1, 2)]),
        (sql.Date, [dt.date(2025, 1, 2), dt.date(2025, 1, 10)]),
        (sql.DateTime, [dt.datetime(2025, 1, 2, 3), dt.datetime(2025, 1, 2, 3, 4, 5, 6)]),  # noqa: DTZ001
        (sql.String, ["a", "é"]),
    ],
)
def test_keys_of_many_types_can_be_gone_on_behind(log, engine, kind, values):
    """F89."""
    table = made(engine, "some", (sql.Column("k", kind, primary_key=True),), [{"k": one} for one in values])
    source = SqlSource(engine, table, entity_type="some", key="k", body=lambda row: {}, page_rows=1)
    assert keys(rows_of(log, source).changes) == [key_text(one) for one in values]


def test_a_query_of_a_version_is_read_as_of_it(log, engine):
    """F88."""
    fill(log, 3)
    columns = (sql.Column("id", sql.String), sql.Column("since", sql.Integer))
    past = made(engine, "past", columns, [{"id": str(n), "since": n} for n in range(6)])

    def as_of(version):
        return sql.select(past).where(past.c.since <= version)

    probe = rows_of(log, SqlSource(engine, as_of, entity_type="order", key="id"))
    assert keys(probe.changes) == ["0", "1", "2", "3"]


def test_a_table_that_cannot_be_read_by_its_key_is_refused(log, engine):
    columns = (sql.Column("id", sql.Integer), sql.Column("x", sql.Float), sql.Column("name", sql.String))
    table = made(engine, "odd", columns, [{"id": None, "x": 1.0, "name": "a"}])

    def source(**named):
        return SqlSource(**{"engine": engine, "rows": table, "entity_type": "odd", "key": "id", **named})

    for parameter, value in (
        ("engine", "sqlite://"),
        ("rows", "odd"),
        ("key", "nothing"),
        ("key", "x"),
        ("key", ["name", "id"]),
        ("key", []),
        ("key", [3]),
        ("body", 3),
        ("marker", 3),
        ("page_rows", 0),
    ):
        with pytest.raises(InvalidOption) as caught:
            source(**{parameter: value})
        assert caught.value.parameter == parameter
    assert isinstance(rows_of(log, source()).error, SourceRowRefused)
    probe = rows_of(log, source(key="name"))
    probe.subscription.again(Criterion(entity_types={"odd"}), after="b")
    wait_until(lambda: ends(probe) == 2)
    by_number = rows_of(log, source(rows=sql.select(table).where(table.c.id > 0)))
    by_number.subscription.again(Criterion(entity_types={"odd"}), after="b")
    wait_until(lambda: by_number.error is not None)
    assert isinstance(by_number.error, InvalidOption)


def test_a_key_that_is_there_twice_is_told_and_neither_row_is_left_out_in_silence(log, engine):
    """F88: also where the second one would be on the next page, which begins behind it."""
    columns = (sql.Column("id", sql.Integer, nullable=False), sql.Column("n", sql.Integer))
    twice = made(engine, "twice", columns, [{"id": id_, "n": n} for n, id_ in enumerate((1, 2, 2, 3))])
    for page_rows in (1, 2, 3, 100):
        found = rows_of(log, SqlSource(engine, twice, entity_type="order", key="id", page_rows=page_rows))
        assert isinstance(found.error, SourceRowRefused)
        assert (found.error.entity_type, found.error.key) == ("order", "2")
    few = SqlSource(
        engine, sql.select(twice).where(twice.c.n != 2), entity_type="order", key="id", page_rows=2
    )
    assert keys(rows_of(log, few).changes) == ["1", "2", "3"]
    again = PageSource(entity_type="order", pages=lambda request: [("1", {}), ("2", {}), ("1", {})])
    assert isinstance(rows_of(log, again).error, SourceRowRefused)


def test_a_row_without_a_key_is_told_on_every_page(log, engine):
    """F88, F89: it is behind no key, and thus on the first page at most."""
    columns = (sql.Column("shop", sql.Integer, nullable=False), sql.Column("id", sql.Integer))
    rows = [{"shop": 1, "id": id_} for id_ in (1, 2, 3)]
    table = made(engine, "gaps", columns, rows)
    source = SqlSource(engine, table, entity_type="order", key=["shop", "id"], page_rows=2)
    probe = rows_of(log, source)
    assert keys(probe.changes) == ["1/1", "1/2", "1/3"]
    with engine.begin() as connection:
        connection.execute(table.insert().values(shop=2, id=None))
    rest = rows_of(log, source, since=probe.changes[0].cursor)
    assert isinstance(rest.error, SourceRowRefused)
    assert (rest.error.key, rest.changes) == (None, [])


def test_without_sqlalchemy_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"penstock-cdc\[sql\]"):
        SqlSource(None, None, entity_type="order", key="id")
