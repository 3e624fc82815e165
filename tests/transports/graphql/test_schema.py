"""The schema as it is documented."""

from pathlib import Path

from graphql import print_schema

from transports.graphql.schema import make_schema

DOCUMENTED = Path(__file__).parents[3] / "docs" / "schema.graphql"


def test_the_schema_in_the_documents_is_the_one_that_is_served():
    assert DOCUMENTED.read_text() == print_schema(make_schema()) + "\n"


def test_every_type_field_and_argument_says_what_it_is_for():
    for name, kind in make_schema().type_map.items():
        if name.startswith("__") or name in ("String", "Int", "Boolean", "Float", "ID"):
            continue
        assert kind.description, name
        for field, definition in getattr(kind, "fields", {}).items():
            assert definition.description, f"{name}.{field}"
            for argument, asked in getattr(definition, "args", {}).items():
                assert asked.description, f"{name}.{field}({argument})"
