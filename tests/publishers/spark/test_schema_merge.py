import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from publishers.spark import SchemaRefused
from publishers.spark.schema_merge import merged


def struct(ddl):
    return StructType.fromDDL(ddl).jsonValue()


@pytest.mark.parametrize(
    ("new", "old", "found"),
    [
        ("id BIGINT, name STRING", "id BIGINT, name STRING", "id BIGINT, name STRING"),
        ("id BIGINT", "id BIGINT, name STRING", "id BIGINT, name STRING"),
        ("mail STRING, id BIGINT", "id BIGINT, name STRING", "id BIGINT, name STRING, mail STRING"),
        ("id BIGINT NOT NULL", "id BIGINT NOT NULL, n INT NOT NULL", "id BIGINT NOT NULL, n INT"),
        ("id INT NOT NULL", "id BIGINT", "id BIGINT"),
        ("id BIGINT", "id INT NOT NULL", "id BIGINT"),
        ("x FLOAT", "x DOUBLE", "x DOUBLE"),
        ("x STRING", "x BIGINT", "x STRING"),
        ("x DECIMAL(12,2)", "x DECIMAL(10,2)", "x DECIMAL(12,2)"),
        ("x DECIMAL(10,2)", "x DECIMAL(12,2)", "x DECIMAL(12,2)"),
        ("x DECIMAL(10,4)", "x DECIMAL(10,2)", "x DECIMAL(12,4)"),
        ("x DECIMAL(38,0)", "x DECIMAL(38,18)", "x DECIMAL(38,0)"),
        ("x ARRAY<DECIMAL(5,1)>", "x ARRAY<DECIMAL(5,3)>", "x ARRAY<DECIMAL(7,3)>"),
        ("x DECIMAL(10,2)", "x BIGINT", "x DECIMAL(10,2)"),
        ("x VOID", "x ARRAY<INT>", "x ARRAY<INT>"),
        ("x BIGINT", "x VOID", "x BIGINT"),
        ("a INT, A INT", "a INT, A INT", "a INT, A INT"),
        ("x ARRAY<STRUCT<a: INT>>", "x ARRAY<STRUCT<b: INT>>", "x ARRAY<STRUCT<b: INT, a: INT>>"),
        ("x MAP<INT, INT>", "x MAP<BIGINT, SMALLINT>", "x MAP<BIGINT, INT>"),
        ("x ARRAY<INT>", "x INT", "x ARRAY<INT>"),
        ("x MAP<INT, INT>", "x ARRAY<INT>", "x MAP<INT, INT>"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_of_two_schemas_one_is_made_of_which_rows_of_both_are(new, old, found):
    assert merged(struct(new), struct(old)) == struct(found)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("Name STRING", "id INT, name STRING"),
        ("x STRUCT<`É`: INT>", "x STRUCT<`é`: INT>"),
        ("x ARRAY<MAP<STRING, STRUCT<B: INT>>>", "x ARRAY<MAP<STRING, STRUCT<b: INT>>>"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_two_columns_that_spark_would_not_tell_apart_are_refused(new, old):
    """F192."""
    with pytest.raises(SchemaRefused, match="in other letters"):
        merged(struct(new), struct(old))


@pytest.mark.parametrize(
    "old",
    [
        None, 7, "struct", {}, {"type": "object"}, {"type": "struct"}, {"type": "struct", "fields": {}},
        {"type": "struct", "fields": [1]}, {"type": "struct", "fields": [{"name": "id"}]},
    ],
)  # fmt: skip
def test_a_schema_that_others_have_told_in_another_form_is_replaced(old):
    new = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    assert merged(new, old) == new


def test_types_of_users_that_are_no_structs_are_replaced_by_newer_ones():
    old, new = ({"type": "udt", "class": name} for name in "ab")
    assert merged(new, old) == new


_TYPES = st.recursive(
    st.sampled_from(["byte", "integer", "long", "float", "double", "decimal(3,1)", "decimal(9,0)", "decimal(9,4)", "void"]),
    lambda inner: st.builds(
        lambda fields: {"type": "struct", "fields": [
            {"name": name, "type": kind, "nullable": null, "metadata": {}} for name, (kind, null) in fields.items()
        ]},
        st.dictionaries(st.sampled_from("abc"), st.tuples(inner, st.booleans())),
    ) | st.builds(lambda kind, null: {"type": "array", "elementType": kind, "containsNull": null}, inner, st.booleans()),
    max_leaves=6,
)  # fmt: skip


@given(
    st.lists(
        _TYPES.filter(lambda one: isinstance(one, dict) and one["type"] == "struct"), min_size=1, max_size=4
    )
)
def test_schemas_that_alternate_settle_unless_their_types_have_nothing_in_common(schemas):
    newest = schemas[0]
    for _ in range(6):
        for schema in schemas:
            newest = merged(schema, newest)
    settled = [merged(schema, newest) == newest for schema in schemas]
    assert all(settled) or _contradict(schemas)


def _contradict(schemas):
    """Whether some field, at whatever depth, has types of different kinds."""
    kinds = {}

    def note(path, kind):
        if kind == "void":
            return
        name = kind.partition("(")[0] if isinstance(kind, str) else kind["type"]
        ladder = {"float": "real", "double": "real", "decimal": "decimal"}.get(
            name, "whole" if isinstance(kind, str) else name
        )
        kinds.setdefault(path, set()).add(ladder)
        if isinstance(kind, dict):
            for field in kind.get("fields", ()):
                note((*path, field["name"]), field["type"])
            if "elementType" in kind:
                note((*path, "[]"), kind["elementType"])

    for schema in schemas:
        note((), schema)
    return any(len(found) > 1 for found in kinds.values())
