"""What a request may cost, and what is counted before it is read."""

import json
import random

import pytest
from graphql import get_introspection_query, parse
from hypothesis import given
from hypothesis import strategies as st

from publishers.errors import TooCostly
from tests.harness.constants import set_bounds, without_bounds
from transports import Limits
from transports.graphql import cost
from transports.graphql.cost import check_document, check_text, check_variables, is_light, values_of
from transports.graphql.documents import Documents, essence
from transports.graphql.errors import RequestRefused
from transports.graphql.execution import Engine
from transports.graphql.schema import make_schema

DOUBLING = "query { ...F0 } " + " ".join(
    f"fragment F{n} on Query {{ ...F{n + 1} ...F{n + 1} }}" for n in range(30)
)
CIRCLES = "query { ...F0 } " + " ".join(
    f"fragment F{n} on Query {{ {' '.join(f'...F{other}' for other in range(12))} }}" for n in range(12)
)
SAME_ARGUMENTS = "{ " + " ".join(f"__type(name: [{'1 ' * 40}]) {{ name }}" for _ in range(30)) + " }"


def counted(text, **bounds):
    """What a document is refused for; None if it is not."""
    set_bounds(**bounds)
    try:
        check_text(text)
        check_document(parse(text, max_tokens=cost.DOCUMENT_TOKENS))
    except TooCostly as error:
        return error.option
    return None


@pytest.fixture
def steps(monkeypatch):
    """What was compared with a bound, in order."""
    found, real = [], cost._Count._check

    def check(self, what, *rest):
        found.append(what)
        real(self, what, *rest)

    monkeypatch.setattr(cost._Count, "_check", check)
    return found


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("{ a }" + " " * 200_000, "document_bytes"),
        (
            "{ "
            + " ".join(f"{a}{b} {{ ...F }}" for a in "abcdef" for b in "abcdef")
            + " } fragment F on Q { "
            + " ".join(f"{a}{b}" for a in "abcdef" for b in "abcdef")
            + " }",
            "document_fields",
        ),
        ("{ " + "a { " * 40 + "b" + " }" * 41, "document_depth"),
        ("{ " + "... { " * 40 + "b" + " }" * 41, "document_depth"),
        ("{ " + " ".join(f"a{n}: a" for n in range(33)) + " }", "document_aliases"),
        ("{ a } " + " ".join(f"fragment F{n} on Q {{ a }}" for n in range(65)), "document_fragments"),
        ("{ " + "a " * 300 + "}", "document_pairs"),
        ("{ " + "a { b b b b b b b b b b } " * 25 + "}", "document_pairs"),
        (SAME_ARGUMENTS, "document_pairs"),
        ("{ ...F ...F } fragment F on Q { " + "a " * 100 + "}", "document_pairs"),
    ],
)
def test_what_is_beyond_a_bound_is_refused_by_its_name(text, option):
    """F147: fields after fragments are spread, depth, aliases, and what makes validation quadratic."""
    assert counted(text) == option


HONEST = {
    "introspection as GraphiQL asks for it": get_introspection_query(
        descriptions=True, schema_description=True, specified_by_url=True, directive_is_repeatable=True
    ),
    "introspection as short as it gets": get_introspection_query(descriptions=False),
    "every field of a page": "query ($s: Cursor) { history(since: $s, limit: 1000) { since next hasNext changes { "
    "version index count cursor timestamp area operation entityType key body before changed schemaVersion "
    "entryVersion origin meta lacking expiresAt linked field action error __typename } } }",
    "ten pages with fragments": "query { "
    + " ".join(f'p{n}: history(criteria: [{{keys: ["{n}"]}}]) {{ ...P }}' for n in range(10))
    + " } fragment P on History { next changes { ...C } } fragment C on Change { key body version }",
    "as a client that adds __typename everywhere writes it": "subscription ($s: Cursor) { onChange(since: $s) { ...A "
    "...B __typename } } fragment A on Change { key body __typename } fragment B on Change { cursor body __typename }",
}


@pytest.mark.parametrize("text", HONEST.values(), ids=HONEST.keys())
def test_honest_documents_are_taken(engine, text):
    """F147: the bounds are far above what clients send."""
    engine.prepare(text)
    halves = {"document_pairs": cost.DOCUMENT["pairs"] // 2, "document_tokens": cost.DOCUMENT_TOKENS // 2}
    assert counted(text, **halves) is None


def test_a_wish_of_many_keys_is_taken_from_variables(engine):
    """F147: 500 keys and more are no cost."""
    query = "subscription ($c: [Criterion!]) { onChange(criteria: $c) { key } }"
    keys = [f"customer-{n}" for n in range(10_000)]
    assert engine.prepare(query, None, {"c": [{"keys": keys}]}).open().criteria.criterions


def test_variables_are_counted_before_they_are_coerced(engine):
    """F147."""
    query = "subscription ($c: [Criterion!]) { onChange(criteria: $c) { key } }"
    for variables in ({"c": [{}] * 20_001}, {"c": [{"keys": ["x" * 64 * 20_000]}]}):
        with pytest.raises(RequestRefused) as caught:
            engine.prepare(query, None, variables)
        (error,) = caught.value.errors
        assert error["extensions"] | {"cost": 0} == {
            "code": "TOO_COSTLY",
            "retryable": False,
            "cost": 0,
            "limit": 20_000,
            "option": "variable_values",
            "cheaper": "to divide them among several requests",
        }
    assert engine.statistics()["refused"] == 2


def test_a_refusal_says_what_was_counted_what_is_allowed_and_what_costs_less(engine):
    """F147."""
    for number in (1, 2):
        with pytest.raises(RequestRefused) as caught:
            engine.prepare("{ " + "__typename " * 300 + "}")
        (error,) = caught.value.errors
        assert error["extensions"]["code"] == "TOO_COSTLY"
        assert error["extensions"]["cost"] > error["extensions"]["limit"] == 20_000
        assert "document_pairs" in error["message"]
        assert error["message"].endswith("select a field once in each place")
        assert engine.statistics()["refused"] == number


def test_what_a_client_sent_is_not_sent_back_at_length(engine):
    with pytest.raises(RequestRefused) as caught:
        engine.prepare("query ($n: Int!) { history(limit: $n) { next } }", None, {"n": "x" * 100_000})
    assert len(json.dumps(caught.value.errors)) < 2_000


@pytest.mark.parametrize("text", [DOUBLING + " fragment F30 on Query { __typename }", CIRCLES])
@pytest.mark.parametrize("option", ["document_fields", "document_pairs"])
def test_counting_ends_at_the_bound(steps, text, option):
    """F147: to refuse what stands for millions of fields costs no more than to take the largest document."""
    other = {"document_fields": "document_pairs", "document_pairs": "document_fields"}[option]
    assert counted(text, **{other: 10**9, option: 1_000}) == option
    assert len(steps) < 4_000


@pytest.mark.parametrize(
    ("query", "variables", "light"),
    [
        ("{ __typename }", None, True),
        ("{ " + "a " * 250 + "}", None, False),
        ("{ a } #" + "x" * 5000, None, False),
        ("{ a }", {"a": ["x"] * 250}, False),
        ("{ a }", {"a": "x" * 100_000}, False),
        ("{ a }", {"a": {"b": [1, 2, None, True]}}, True),
    ],
)
def test_what_has_more_than_200_tokens_or_values_is_not_light(query, variables, light):
    """F147."""
    assert is_light(query, variables) is light


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=200),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    )
)
def test_values_are_counted_up_to_a_bound(value):
    variables = {"v": value}
    whole = values_of(variables, 10**9)
    assert values_of(variables, whole) == whole
    assert values_of(variables, whole - 1) > whole - 1
    set_bounds(variable_values=whole)
    check_variables(variables)
    set_bounds(variable_values=whole - 1)
    with pytest.raises(TooCostly):
        check_variables(variables)


# What is kept of documents.


def test_comments_and_white_space_make_no_other_document(engine):
    """F147."""
    first = engine.prepare("{ logs { name } }")
    for text in ("# hello\n{ logs { name } }", "{ logs #x\n { name,\n\n } } # end", "\t{ logs\r\n{ name } }"):
        assert engine.prepare(text)._document is first._document
    assert engine.statistics()["documents"] == 1


def test_marks_of_comments_in_texts_are_no_comments():
    text = '{ a(b: "# \\" no comment  ", c: """ # \\""" , none """) } # one'  # a comma is a blank
    assert essence(text) == '{ a(b: "# \\" no comment  " c: """ # \\""" , none """) }'


@given(st.text('"#\\ \n,a{}', max_size=60))
def test_a_document_says_the_same_without_comments(text):
    from graphql import Lexer, Source, TokenKind
    from graphql.error import GraphQLSyntaxError

    def tokens(body):
        lexer, found = Lexer(Source(body)), []
        try:
            while lexer.advance().kind is not TokenKind.EOF:
                found.append((lexer.token.kind, lexer.token.value))
        except GraphQLSyntaxError:
            return None
        return found

    assert tokens(essence(text)) == tokens(text)


def test_lines_and_columns_of_a_mistake_are_those_of_the_text_that_was_sent(engine):
    for text, line in (("{ nothing }", 1), ("# a\n# b\n{ nothing }", 3), ("{ nothing }", 1)):
        with pytest.raises(RequestRefused) as caught:
            engine.prepare(text)
        assert caught.value.errors[0]["locations"][0]["line"] == line


def test_kept_documents_have_a_bound_in_bytes():
    """F147."""
    set_bounds(document_cache_bytes=200_000)
    documents = Documents(make_schema())
    for number in range(300):
        documents.read(f"{{ a{number}: logs {{ name }} }}")
        assert documents.nbytes <= 200_000
    before = len(documents)
    assert 0 < before < 300
    for number in range(300):
        with pytest.raises(RequestRefused):
            documents.read(f"{{ a{number} }}")
        assert documents.nbytes <= 200_000
    huge = "{ " + " ".join(f'a{n}: history(since: "x") {{ next }}' for n in range(30)) + " }"
    assert documents.read(huge + " " * 9).node
    assert documents.nbytes <= 200_000


def test_one_that_is_larger_than_all_room_is_read_and_not_kept():
    set_bounds(document_cache_bytes=100)
    documents = Documents(make_schema())
    assert documents.read("{ logs { name } }").node
    assert (len(documents), documents.nbytes) == (0, 0)


# What is executed.


def resolved(monkeypatch, log):
    """Names of what resolvers ask of a log, in order."""
    calls = []
    for name in ("history", "schema", "schemas"):
        real = getattr(type(log), name)

        def call(self, *args, _name=name, _real=real, **named):
            calls.append(_name)
            return _real(self, *args, **named)

        monkeypatch.setattr(type(log), name, call)
    return calls


def test_every_field_of_a_query_is_resolved_once(engine, log, fill, monkeypatch):
    """F147."""
    fill(2)
    calls = resolved(monkeypatch, log)
    query = '{ history { changes { body } } b: history { next } schema(entityType: "order") { told } schemas { versions } }'
    answer = json.loads(engine.prepare(query).answer())
    assert "errors" not in answer
    assert calls == ["history", "history", "schema", "schemas"]


def test_the_logs_of_a_server_are_listed_once(engine, monkeypatch):
    """F147."""
    from transports.graphql import schema

    calls = []
    real = schema.LogState
    monkeypatch.setattr(schema, "LogState", lambda **named: calls.append(1) or real(**named))
    assert json.loads(engine.prepare("{ logs { name } }").answer()) == {"data": {"logs": [{"name": "shop"}]}}
    assert calls == [1]


# Bounds of pages and answers.


def bounded(log, **limits):
    return Engine({"shop": log}, Limits(**without_bounds(limits)))


def test_a_page_ends_at_its_bytes_and_the_next_one_goes_on(log, fill):
    """F147: without a gap or a repetition."""
    fill(30, body="x" * 3000)
    engine = bounded(log, history_bytes=20_000)
    query = "query ($s: Cursor) { history(since: $s, limit: 1000) { next hasNext changes { version index body } } }"
    found, since, pages = [], None, 0
    while True:
        page = json.loads(engine.prepare(query, None, {"s": since}).answer())["data"]["history"]
        assert len(json.dumps(page["changes"])) < 20_000
        found += [(int(one["version"]), one["index"]) for one in page["changes"]]
        since, pages = page["next"], pages + 1
        if not page["hasNext"]:
            break
    assert found == [(version, index) for version in range(1, 31) for index in (0, 1)]
    assert pages > 5


def test_what_is_larger_than_a_page_goes_alone(log, fill):
    fill(2, body="x" * 50_000)
    for reverse in (False, True):
        page = log.history(None, None, 100, content=_body(), max_bytes=10_000, reverse=reverse)
        assert [change.position for change in page.changes] == ([(2, 0)] if reverse else [(1, 0)])
        page = log.history(None, page.next, 100, content=_body(), max_bytes=10_000, reverse=reverse)
        assert len(page.changes) == 1
        assert page.nbytes > 50_000


def _body():
    from publishers import Content

    return Content.BODY


def test_headers_only_take_no_bytes_of_bodies(log, fill):
    fill(20, body="x" * 50_000)
    assert len(log.history(None, None, 100, max_bytes=100_000).changes) == 40


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "x"])
def test_a_bound_of_a_page_is_a_number_of_bytes(log, wrong):
    from penstock_cdc.errors import InvalidOption

    with pytest.raises(InvalidOption, match="max_bytes"):
        log.history(max_bytes=wrong)


def test_pages_of_one_operation_share_the_bytes_of_its_answer(log, fill):
    """F147: a query of a kilobyte does not take a gigabyte."""
    fill(50, body="x" * 10_000)
    engine = bounded(log, answer_bytes=300_000)
    query = "{ " + " ".join(f"p{n}: history(limit: 1000) {{ changes {{ body }} }}" for n in range(30)) + " }"
    read = []
    real = type(log).history

    def history(self, *args, **named):
        page = real(self, *args, **named)
        read.append(page.nbytes)
        return page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(log), "history", history)
        answer = engine.prepare(query).answer()
    assert sum(read) <= 300_000 + 12_000
    assert len(answer) < 320_000
    codes = {error["extensions"]["code"] for error in json.loads(answer)["errors"]}
    assert codes == {"TOO_COSTLY"}


def test_an_answer_that_repeats_what_it_holds_is_refused_before_it_is_written(log, fill):
    """F147."""
    fill(10, body="x" * 10_000)
    engine = bounded(log, answer_bytes=300_000)
    again = " ".join(f"b{n}: body" for n in range(30))
    answer = json.loads(engine.prepare(f"{{ history {{ changes {{ {again} }} }} }}").answer())
    assert answer["data"] is None
    (error,) = answer["errors"]
    assert error["extensions"]["code"] == "TOO_COSTLY"
    assert error["extensions"]["cost"] > error["extensions"]["limit"] == 300_000
    assert engine.statistics()["refused"] == 1


def test_random_documents_cost_a_bounded_number_of_steps(steps):
    """F147: whatever is nested, spread and repeated."""
    seed = random.Random(147)
    for _ in range(200):
        names = [f"F{n}" for n in range(seed.randint(0, 6))]

        def selection(depth, names=names):
            parts = []
            for _ in range(seed.randint(1, 8)):
                kind = seed.random()
                if kind < 0.3 and names:
                    parts.append("..." + seed.choice(names))
                elif kind < 0.6 and depth:
                    parts.append(f"{seed.choice('abc')} {{ {selection(depth - 1)} }}")
                else:
                    parts.append(seed.choice(["a", "b", "x: a", "c(d: [1 2 3])"]))
            return " ".join(parts)

        text = f"{{ {selection(3)} }} " + " ".join(
            f"fragment {name} on Q {{ {selection(2)} }}" for name in names
        )
        steps.clear()
        counted(text, document_tokens=100_000)
        assert len(steps) <= 4 * cost.DOCUMENT["fields"]
