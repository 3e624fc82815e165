"""Files that declare sinks: what is right is made, what is wrong is told with its place and without secrets."""

import builtins
import sys

import pytest

from penstock_cdc.errors import InvalidOption
from penstock_cdc.types import Start
from publishers import Criteria, Criterion, Images
from publishers.views.view import Content
from tests.harness.inside import declared_of
from transports.errors import ExtraMissing
from transports.sinks import FileSink, StreamSink
from transports.sinks.cache import CacheSink
from transports.sinks.config import read_sinks
from transports.sinks.kafka import ExactlyOnceKafkaSink, KafkaSink
from transports.sinks.rejects import DeadLetterFile
from transports.sinks.search import SearchSink
from transports.sinks.sql import SqlSink, SqlTable
from transports.sinks.webhook import WebhookSink


def read(folder, text):
    path = folder / "penstock.toml"
    path.write_text(text)
    return read_sinks(path)


def test_every_kind_and_option_may_be_declared(tmp_path, monkeypatch):
    """F109."""
    told = read(
        tmp_path,
        """
        log = "var/shop"
        log_name = "orders"
        [[sinks]]
        name = "hook"
        kind = "webhook"
        url = "https://shop.example/hook"
        secrets = ["env:ONE", "file:two"]
        headers = { x-token = "env:TOKEN" }
        profile = "cloudevents"
        service = "shop-eu"
        node = "n1"
        timeout = 5
        compress = true
        allow = ["10.0.0.0/8"]
        tls = { server_name = "hooks", insecure_skip_verify = true }
        oauth = { token_url = "https://id.example/token", client_id = "ann", client_secret = "env:ID_SECRET", scope = "x", auth = "body" }
        in_flight = 4
        ordering = "key"
        on_failure = "restart"
        snapshot = "initial"
        criteria = [{ entity_types = ["order"], operations = ["UPSERT"] }]
        start = "earliest"
        images = "CHANGE"
        fields = ["id"]
        mask = { name = "-" }
        batch_changes = 10
        retry = { first = 0.5, limit = 10, growth = "linear", attempts = 7, circuit = 3 }
        on_reject = "dead_letter"
        dead_letters = "dead.jsonl"
        [[sinks]]
        name = "files"
        kind = "file"
        directory = "out"
        files = "orders"
        max_bytes = 1000
        content = "HEADER"
        [[sinks]]
        name = "lines"
        kind = "stdout"
        entity_types = ["order"]
        """,
    )
    assert (told.directory, told.log_name) == (tmp_path / "var/shop", "orders")
    hook, files, lines = told.sinks.values()
    assert isinstance(hook.sink, WebhookSink)
    options = hook.options
    assert options.criteria == Criteria.of(Criterion(entity_types={"order"}, operations={"UPSERT"}))
    assert options.since is Start.EARLIEST
    assert (options.in_flight, options.ordering, options.on_failure) == (4, "key", "restart")
    assert options.snapshot == "initial"
    assert "ID_SECRET" in repr(hook.sink._oauth)
    assert (options.view.content, options.view.images) == (Content.BODY, Images.CHANGE)
    assert options.view.lenses
    assert (options.batch_changes, options.retry.attempts, options.retry.growth) == (10, 7, "linear")
    assert isinstance(options.dead_letters, DeadLetterFile)
    assert options.dead_letters.path == tmp_path / "dead.jsonl"
    assert isinstance(files.sink, FileSink)
    assert (files.sink.directory, files.sink.name) == (tmp_path / "out", "orders")
    assert files.options.view.content is Content.HEADER
    assert isinstance(lines.sink, StreamSink)
    assert lines.options.criteria == Criteria.of(Criterion(entity_types={"order"}))


ONE = 'log = "x"\n[[sinks]]\nname = "a"\nkind = "stdout"\n'
HOOK = 'log = "x"\n[[sinks]]\nname = "a"\nkind = "webhook"\n'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("log = ", "TOML"),
        ('log = "x"', "sinks"),
        ("sinks = [1]\nlog = 'x'", "[[sinks]] 1 kind"),
        (ONE + "[other]", "key"),
        (ONE.replace('"x"', "7"), "log"),
        (ONE.replace("stdout", "carrier pigeon"), "cache, file, stdout, kafka, search, sql, webhook"),
        (ONE.replace('"a"', '"A B"'), "name"),
        (ONE.replace('name = "a"\n', ""), "name"),
        (ONE + ONE.partition("\n")[2], "[[sinks]] 2 name"),
        (ONE + "colour = 1", "colour"),
        (ONE + "in_flight = 2", "ordering"),
        (ONE + "snapshot = 'always'", "snapshot"),
        (ONE + "on_failure = 'cry'", "on_failure"),
        (HOOK + "url = 'http://x/'\noauth = { token_url = 'http://x/' }", "[[sinks]] 1"),
        ('http_kinds = ["pigeon"]\n' + ONE, "http_kinds"),
        ("http_kinds = 7\n" + ONE, "http_kinds"),
        ("state = 1\n" + ONE, "state"),
        (ONE + "linger = 'long'", "linger"),
        (ONE + "retry = 7", "retry"),
        (ONE + "retry = { times = 7 }", "times"),
        (ONE + "retry = { first = 'x' }", "first"),
        (ONE + "content = 'ALL'", "[[sinks]] 1"),
        (ONE + "images = 'SOME'", "images"),
        (ONE + "start = 'yesterday'", "start"),
        (ONE + "criteria = 7", "criteria"),
        (ONE + "criteria = []\nentity_types = ['a']", "entity_types"),
        (ONE + "on_reject = 'dead_letter'", "dead_letters"),
        (ONE + "dead_letters = 7", "[[sinks]] 1"),
        (HOOK, "[[sinks]] 1"),
        (HOOK + "url = 7", "[[sinks]] 1"),
        (HOOK + "url = 'http://x/'\nsecrets = ['whsec_s3cr3t']", "secret"),
        (HOOK + "url = 'http://x/'\nheaders = { x-a = 's3cr3t' }", "secret"),
        (HOOK + "url = 'ftp://ann:s3cr3t@x/'", "url"),
        (HOOK + "url = 'http://x/'\ntls = { ca = 'none.pem' }", "ca"),
        (HOOK + "url = 'http://x/'\nprofile = 'xml'", "profile"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_without_secrets(tmp_path, text, place):
    with pytest.raises(InvalidOption) as caught:
        read(tmp_path, text)
    assert place in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert "penstock.toml" in str(caught.value)


def test_a_lease_may_be_declared(tmp_path, monkeypatch):
    """F121: in a file, or in a table of a database, whose address is a secret."""
    told = read(tmp_path, 'lease = { kind = "file", path = "led", holder = "n1" }\n' + ONE)
    lease = told.lease.make()
    assert (told.lease.kind, lease.holder) == ("file", "n1")
    lease.step()
    assert (tmp_path / "led.epoch").read_text() == "1 n1\n"
    lease.close()
    monkeypatch.setenv("LEASES", f"sqlite:///{tmp_path}/leases")
    sql = 'lease = { kind = "sql", url = "env:LEASES", name = "orders", create = true, table = "led" }\n'
    lease = read(tmp_path, sql + ONE).lease.make()
    assert not (tmp_path / "leases").exists()
    lease.step()
    assert lease.epoch == 1
    lease.close()
    monkeypatch.setenv("LEASES", "s3cr3t")
    with pytest.raises(InvalidOption, match="SQLAlchemy knows") as caught:
        read(tmp_path, sql + ONE).lease.make()
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("lease", "place"),
    [
        ("7", "lease"),
        ("{ kind = 'zookeeper' }", "lease kind"),
        ("{ kind = 'file' }", "lease path"),
        ("{ kind = 'file', path = 'x', url = 'y' }", "lease key"),
        ("{ kind = 'sql', url = 's3cr3t' }", "lease secret"),
        ("{ kind = 'sql', url = 'plain:sqlite://' }", "lease name"),
        ("{ kind = 'file', path = 'x', every = 'often' }", "lease"),
        ("{ kind = 'file', path = 'x', every = 9 }", "lease seconds"),
    ],
)
def test_what_is_wrong_of_a_lease_is_told_with_its_place(tmp_path, lease, place):
    with pytest.raises(InvalidOption) as caught:
        read(tmp_path, f"lease = {lease}\n" + ONE).lease.make()
    assert place in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_a_lease_in_a_database_needs_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ExtraMissing, match="sql"):
        read(tmp_path, "lease = { kind = 'sql', url = 'env:X', name = 'y' }\n" + ONE)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InvalidOption, match="No such file"):
        read_sinks(tmp_path / "none.toml")


def test_an_extra_that_is_not_installed_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "transports.sinks.webhook":
            raise ImportError("no", name="httpcore")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ExtraMissing, match="webhook"):
        read(tmp_path, HOOK + "url = 'http://x/'")


def test_tables_of_a_database_may_be_declared(tmp_path):
    """F109."""
    text = """
    log = "x"
    [[sinks]]
    name = "tables"
    kind = "sql"
    url = "sqlite:///target.db"
    create_tables = true
    tombstone_ttl = 60
    [sinks.tables]
    order = "orders"
    bill = { name = "bills", body = "doc", columns = { total = "sum" } }
    """
    (one,) = read(tmp_path, text).sinks.values()
    assert isinstance(one.sink, SqlSink)
    assert declared_of(one.sink)["bill"] == SqlTable(name="bills", body="doc", columns={"total": "sum"})
    assert declared_of(one.sink)["order"] == SqlTable(name="orders")
    for wrong in ('"or ders"', "7", '{ name = "a b" }', '{ nam = "a" }'):
        with pytest.raises(InvalidOption, match="sinks"):
            read(tmp_path, text.replace('"orders"', wrong))


def test_a_cache_may_be_declared(tmp_path, monkeypatch):
    """F109."""
    text = "log = 'x'\n[[sinks]]\nname = 'a'\nkind = 'cache'\nurl = 'redis://x'\nvalues = true\nttl = 5"
    assert isinstance(read(tmp_path, text).sinks["a"].sink, CacheSink)
    monkeypatch.delitem(sys.modules, "transports.sinks.cache")
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ExtraMissing, match="redis"):
        read(tmp_path, text)


def test_topics_of_kafka_may_be_declared(tmp_path, monkeypatch):
    """F109."""
    text = """
    log = "x"
    [[sinks]]
    name = "a"
    kind = "kafka"
    servers = "127.0.0.1:9092"
    topic = "shop.{entity_type}"
    form = "debezium"
    exactly_once = true
    settings = { "compression.type" = "lz4" }
    """
    assert type(read(tmp_path, text).sinks["a"].sink) is ExactlyOnceKafkaSink
    assert type(read(tmp_path, text.replace("true", "false")).sinks["a"].sink) is KafkaSink
    monkeypatch.delitem(sys.modules, "transports.sinks.kafka")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ExtraMissing, match="kafka"):
        read(tmp_path, text)


def test_indices_of_a_search_engine_may_be_declared(tmp_path, monkeypatch):
    """F109."""
    text = "log = 'x'\n[[sinks]]\nname = 'a'\nkind = 'search'\nurl = 'http://x'\nindex = 'shop'"
    assert isinstance(read(tmp_path, text).sinks["a"].sink, SearchSink)
    monkeypatch.delitem(sys.modules, "transports.sinks.search")
    monkeypatch.setitem(sys.modules, "opensearchpy", None)
    with pytest.raises(ExtraMissing, match="search"):
        read(tmp_path, text)


@pytest.mark.parametrize(("url", "lacks"), [("sqlite:///x", "sqlalchemy"), ("postgresql://x", "psycopg")])
def test_a_kind_whose_extra_is_not_installed_says_so(tmp_path, monkeypatch, url, lacks):
    for name in ("transports.sinks.sql", "transports.sinks.sql_table"):
        if lacks == "sqlalchemy":
            monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, lacks, None)
    with pytest.raises(ExtraMissing, match="sql"):
        read(tmp_path, f"log = 'x'\n[[sinks]]\nname = 'a'\nkind = 'sql'\nurl = '{url}'")


def test_a_file_may_leave_all_sinks_to_those_who_declare_them_over_http(tmp_path):
    """F109."""
    told = read(tmp_path, 'log = "x"\nhttp_kinds = ["webhook", "kafka"]\nsinks = []\n')
    assert (told.sinks, told.http_kinds) == ({}, ("webhook", "kafka"))
    assert read(tmp_path, ONE).http_kinds == ("webhook",)


def test_the_state_is_kept_where_a_sink_wants_rows_or_the_file_says_so(tmp_path):
    """F109: rows come from it."""
    assert read(tmp_path, ONE).state is False
    assert read(tmp_path, "state = true\n" + ONE).state is True
    for snapshot in ("initial", "initial_only", "on_gap"):
        assert read(tmp_path, f'{ONE}\nsnapshot = "{snapshot}"\n').state is True
