"""Rows of tables and queries of a database."""

import datetime as dt
import itertools
import uuid
from decimal import Decimal

import pytest

from penstock_cdc.errors import InvalidOption, SourceFailed, SourceRowRefused
from publishers import Area, Criteria, Criterion, Outbox, PageSource, SqlSource, upsert
from publishers.criteria.intersection import both
from publishers.criteria.predicate import CompiledCriterion
from publishers.lossless import key_text
from publishers.snapshots.source import PageRequest
from publishers.state import table as state_table
from tests.publishers.snapshots.test_feed import keys
from tests.publishers.snapshots.test_sources import ORDERS, ends, rows_of
from tests.publishers.support import fill, opened, wait_until
from transports.sinks.sql_leases import SqlLeases


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
    rest.subscription.refresh(ORDERS, after="2", until="10")
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
    probe.subscription.refresh(Criterion(entity_types={"odd"}), after="b")
    wait_until(lambda: ends(probe) == 2)
    by_number = rows_of(log, source(rows=sql.select(table).where(table.c.id > 0)))
    by_number.subscription.refresh(Criterion(entity_types={"odd"}), after="b")
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


TENANTS = [("acme", 1), ("acme", 2), ("acme inc", 1), ("Acme", 1), ("b*", 1), ("b", 2), ("b[", 3), ("é", 1)]
WISHES = [
    {"keys": {"acme/1"}},
    {"keys": {"acme/1", "é/1", "acme/9", "acme", "acme/x", "acme/01", f"b/{2**70}"}},
    {"keys": {"acme/1", "\udcff", "\0"}},
    {"key_globs": {"acme/*"}},
    {"key_globs": {"acme*", "b[[]*"}},
    {"key_globs": {"b?*"}},
    {"key_globs": {"*/1"}},
    {"key_globs": {"*/1", "acme/*"}},
    {"key_globs": {"\udcff*"}},
    {"key_patterns": {"acme/[12]"}},
    {"key_patterns": {"(acme|b)/.*"}},
    {"keys": {"acme/2", "b/2"}, "key_globs": {"b*"}},
    {"keys": {f"x{n}" for n in range(1001)} | {"acme/1"}},
    {},
]


@pytest.mark.parametrize("types", [(), ("order",), ("order", "other")], ids=str)
@pytest.mark.parametrize("origin", ["state", "table", "text", "function"])
def test_rows_of_some_keys_are_those_of_all_that_fulfil_the_criteria(types, origin, engine):
    """Each kind of wish for keys, alone and beside another one, of each source; what is looked for is looked up."""
    columns = (sql.Column("tenant", sql.String), sql.Column("n", sql.Integer))
    table = made(engine, "shop", columns, [{"tenant": tenant, "n": n} for tenant, n in TENANTS])
    joined = sql.select((table.c.tenant + "/" + sql.cast(table.c.n, sql.String)).label("k")).subquery()
    rows = sorted(f"{tenant}/{n}" for tenant, n in TENANTS)
    source = {
        "state": None,
        "table": SqlSource(engine, table, entity_type="order", key=["tenant", "n"], page_rows=3),
        "text": SqlSource(engine, sql.select(joined), entity_type="order", key="k", page_rows=3),
        "function": PageSource(
            entity_type="order",
            pages=lambda asked: [(key, {}) for key in rows if key > (asked.after or "")][: asked.limit],
            page_rows=3,
        ),
    }[origin]
    with opened(state=origin == "state") as log:
        if origin == "state":
            for kind in ("another", "order", "other"):
                log.commit([upsert(kind, key, {}) for key in rows])
            log.state.wait(log.visible)
        kinds = ["another", "order", "other"] if origin == "state" else ["order"]
        for one, two in itertools.product(WISHES, WISHES[:3]):
            asked = Criteria.of(
                Criterion(areas={Area.DATA}, entity_types=types, **one),
                Criterion(areas={Area.DATA}, entity_types=types[:1], **two),
            )
            expected = [
                (kind, key)
                for kind in kinds
                for key in rows
                if any(
                    (not criterion.entity_types or kind in criterion.entity_types)
                    and fulfils(criterion, key.encode())
                    for criterion in asked.criterions
                )
            ]
            probe = rows_of(log, source, *asked.criterions)
            assert sorted((change.entity_type, change.key) for change in probe.changes) == sorted(expected)


def fulfils(criterion, key):
    compiled = CompiledCriterion(criterion)
    checks = (compiled.keys.__contains__ if compiled.keys else None, compiled.globs, compiled.patterns)
    return all(check is None or check(key) for check in checks)


def test_a_beginning_of_keys_is_looked_up_with_like_where_glob_is_unknown():
    table = sql.Table("shop", sql.MetaData(), sql.Column("k", sql.String))
    elsewhere = sql.create_engine("sqlite://")
    elsewhere.dialect.name = "postgresql"
    source = SqlSource(elsewhere, table, entity_type="order", key="k")
    asked = PageRequest(after=None, until=None, limit=1, version=None, keys=(), heads=("a_%*",))
    narrow = source._narrow([table.c.k], asked)
    made = narrow.compile(compile_kwargs={"literal_binds": True})
    assert "LIKE 'a/_/%*' || '%' ESCAPE '/'" in str(made)
    assert "GLOB" not in str(made)


@pytest.mark.parametrize("origin", ["state", "table"])
def test_a_key_and_a_tenant_of_many_cost_their_rows(origin, engine, monkeypatch):
    columns = (
        sql.Column("tenant", sql.String, primary_key=True),
        sql.Column("n", sql.Integer, primary_key=True),
    )
    every = [{"tenant": f"t{n % 100}", "n": n} for n in range(5_000)]
    table = made(engine, "shop", columns, every)
    source = SqlSource(engine, table, entity_type="order", key=["tenant", "n"])
    with opened(state=True) as log:
        log.commit([upsert("order", f"{row['tenant']}/{row['n']}", {}) for row in every])
        log.state.wait(log.visible)
        read = []
        if origin == "state":
            checked = state_table._checked
            monkeypatch.setattr(state_table, "_checked", lambda row: read.append(row) or checked(row))
        else:
            made_row = SqlSource._row
            monkeypatch.setattr(SqlSource, "_row", lambda self, row: read.append(row) or made_row(self, row))
        for wish, count in (
            (Criterion(keys={"t7/107"}), 1),
            (Criterion(entity_types={"order"}, keys={"t7/107"}), 1),
            (Criterion(entity_types={"order"}, key_globs={"t7/*"}), 50),
            (both(Criteria.of(ORDERS), Criteria.of(Criterion(key_globs={"t7/*"}))), 50),
        ):
            read.clear()
            criterions = wish.criterions if isinstance(wish, Criteria) else [wish]
            assert len(rows_of(log, None if origin == "state" else source, *criterions).changes) == count
            assert len(read) == count


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (sql.String, ["a", "b c", "é"]),
        (sql.Boolean, [False, True]),
        (sql.Float, [-1.5, 0.1, 1e300]),
        (sql.Uuid, [uuid.UUID(int=n) for n in (1, 2, 300)]),
        (sql.Time, [dt.time(1, 2), dt.time(1, 2, 3, 4)]),
        (sql.Date, [dt.date(2025, 1, 2), dt.date(2025, 1, 10)]),
    ],
)
def test_columns_of_any_type_may_come_first_in_a_key(log, engine, kind, values):
    columns = (sql.Column("k", kind), sql.Column("n", sql.String))
    table = made(engine, "some", columns, [{"k": one, "n": n} for one in values for n in ("1", "2/3")])
    source = SqlSource(engine, table, entity_type="some", key=["k", "n"], body=lambda _: {}, page_rows=1)
    expected = [f"{key_text(one)}/{n}" for one in values for n in ("1", "2/3")]
    assert keys(rows_of(log, source).changes) == expected
    for key in expected:
        assert keys(rows_of(log, source, Criterion(keys={key})).changes) == [key]


def test_a_column_of_bytes_is_a_key_as_a_sink_writes_it_and_comes_last(log, engine):
    columns = (sql.Column("n", sql.Integer), sql.Column("k", sql.LargeBinary))
    values = (b"\0", b"a/b", b"\xff\xff\xff")
    table = made(engine, "some", columns, [{"n": 1, "k": one} for one in values])
    for key, start in (("k", ""), (["n", "k"], "1/")):
        source = SqlSource(engine, table, entity_type="some", key=key, body=lambda _: {}, page_rows=1)
        expected = [start + key_text(one) for one in values]
        assert keys(rows_of(log, source).changes) == expected
        for text in expected:
            assert keys(rows_of(log, source, Criterion(keys={text})).changes) == [text]
    with pytest.raises(InvalidOption, match="the last column of the key"):
        SqlSource(engine, table, entity_type="some", key=["k", "n"])


class Unknown(sql.types.UserDefinedType):
    """A type of which no Python type is known, as SQLAlchemy 2.0 says it."""

    @property
    def python_type(self):
        raise NotImplementedError


def test_a_column_that_cannot_be_a_key_is_named_with_its_type(log, engine):
    """A type that SQLAlchemy does not know, such as GEOMETRY; what is no key to go on behind; a shorter float elsewhere."""
    table = sql.Table(
        "places", sql.MetaData(), sql.Column("at", sql.types.NullType), sql.Column("more", sql.JSON)
    )
    for name, what in (("at", "NullType"), ("more", "JSON")):
        with pytest.raises(InvalidOption, match=what) as caught:
            SqlSource(engine, table, entity_type="place", key=name)
        assert caught.value.parameter == "key"
        probe = rows_of(log, SqlSource(engine, lambda _: sql.select(table), entity_type="place", key=name))
        assert isinstance(probe.error, SourceFailed)
        assert what in str(probe.error)
    refused = sql.Table("old", sql.MetaData(), sql.Column("at", Unknown))
    with pytest.raises(InvalidOption, match="Unknown") as caught:
        SqlSource(engine, refused, entity_type="place", key="at")
    assert "not of" not in str(caught.value), "no Python type is told where there is none"
    shorter = sql.Table("f", sql.MetaData(), sql.Column("k", sql.REAL), sql.Column("d", sql.Double))
    elsewhere = sql.create_engine("sqlite://")
    elsewhere.dialect.name = "postgresql"
    SqlSource(elsewhere, shorter, entity_type="f", key="d")
    with pytest.raises(InvalidOption, match="of double precision"):
        SqlSource(elsewhere, shorter, entity_type="f", key="k")


def test_a_separator_within_a_column_is_told_and_no_row_is_taken_for_another(log, engine):
    columns = (sql.Column("a", sql.String), sql.Column("b", sql.String))
    table = made(engine, "some", columns, [{"a": "x/y", "b": "z"}, {"a": "x", "b": "y/z"}])
    probe = rows_of(log, SqlSource(engine, table, entity_type="some", key=["a", "b"]))
    assert isinstance(probe.error, SourceFailed)
    assert "a '/' in its column 'a'" in str(probe.error)


def test_a_value_that_is_not_of_its_column_is_told_and_can_be_left_out(log, engine):
    """A column of GEOMETRY in SQLite is one of numbers for SQLAlchemy."""
    with engine.begin() as connection:
        connection.execute(sql.text("CREATE TABLE places (id INTEGER PRIMARY KEY, at GEOMETRY)"))
        connection.execute(sql.text("INSERT INTO places VALUES (1, x'0101')"))
    table = sql.Table("places", sql.MetaData(), autoload_with=engine)
    probe = rows_of(log, SqlSource(engine, table, entity_type="place", key="id"))
    assert isinstance(probe.error, SourceFailed)
    assert not probe.error.retryable
    assert "leave the column out in a select(...)" in str(probe.error)
    probe = rows_of(log, SqlSource(engine, sql.select(table.c.id), entity_type="place", key="id"))
    assert keys(probe.changes) == ["1"]


class AsyncEngine:
    """Stands for the engine of ``sqlalchemy.ext.asyncio``, whose package needs another one."""

    def __init__(self, engine):
        self.sync_engine, self.dialect = engine, engine.dialect


WANT_ENGINES = {
    "a source": lambda engine, _: SqlSource(engine, sql.table("orders"), entity_type="order", key="id"),
    "an outbox": Outbox,
    "leases": lambda engine, _: SqlLeases(engine, "sinks"),
}


@pytest.mark.parametrize("use", WANT_ENGINES.values(), ids=WANT_ENGINES)
def test_an_engine_for_coroutines_is_refused_with_the_line_to_write(log, engine, use):
    with pytest.raises(InvalidOption, match=r"AsyncEngine: sqlalchemy\.create_engine\('sqlite://\.\.\.'\)$"):
        use(AsyncEngine(engine), log)
    with pytest.raises(InvalidOption, match=r"^engine is 'sqlite://', but must be a sqlalchemy.Engine$"):
        use("sqlite://", log)
