"""What lists the fields of a change in other languages is made from their table: ``python -m tests.transports.test_field_pages`` writes it."""

import re
import sys
from pathlib import Path

import pytest

from publishers.model.fields import FIELDS, Field, FieldKind, FieldPlace

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "transports" / "browser" / "penstock.js"
PROTOCOL = ROOT / "docs" / "protocol.md"
ALWAYS = ("area", "operation")
SCRIPT_TYPES = {
    FieldKind.NUMBER: "number",
    FieldKind.COUNT: "number",
    FieldKind.JSON: "any",
    FieldKind.NAMES: "string[]",
}
PAGE_TYPES = {
    FieldKind.NUMBER: "number",
    FieldKind.COUNT: "number",
    FieldKind.JSON: "any JSON",
    FieldKind.NAMES: "array of strings",
    FieldKind.MOMENT: "string, RFC 3339 in UTC",
}


def applies(field: Field) -> bool:
    """Whether there are events without it."""
    return field.place is not FieldPlace.FRAME and field.name not in ALWAYS


def script() -> str:
    """The properties of an event, for the types of penstock.js."""
    lines = [" * @property {string} cursor The cursor behind it: pass it as `since` to resume there."]
    for field in FIELDS:
        kind = SCRIPT_TYPES.get(field.kind, "string")
        kind = f"{kind} | string" if kind == "number" and applies(field) else kind  # as text, with `integers`
        name = f"[{field.name}]" if applies(field) else field.name
        more = " Only with content BODY." if field.images else ""
        lines.append(f" * @property {{{kind}}} {name} {field.says}{more}")
    return "\n".join(lines)


def page() -> str:
    """The rows of the table of docs/protocol.md."""
    lines = ["| `cursor` | string | always: the cursor behind the event |"]
    for field in FIELDS:
        when = "" if applies(field) else "always: "
        when = "with `BODY` only: " if field.images else when
        says = field.says.removesuffix(".")
        says = says[0].lower() + says[1:] if when else says
        kind = PAGE_TYPES.get(field.kind, "string")
        kind = f"{kind}, or string with `integers`" if kind == "number" and applies(field) else kind
        lines.append(f"| `{field.name}` | {kind} | {when}{says} |")
    return "\n".join(lines)


PLACES = {
    SCRIPT: (r"(?<=at the head of a version\.\n).*?(?=\n \*\n)", script),
    PROTOCOL: (r"(?<=\| field \| type \| content \|\n\|---\|---\|---\|\n).*?(?=\n\n)", page),
}


def rewritten(path: Path) -> str:
    pattern, make = PLACES[path]
    text, count = re.subn(pattern, lambda _: make(), path.read_text(), count=1, flags=re.DOTALL)
    assert count == 1, f"{path.name} has no place for the fields of a change"
    return text


@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.name)
def test_the_fields_of_a_change_are_those_of_the_table(path):
    """F23."""
    assert path.read_text() == rewritten(path), "write it with python -m tests.transports.test_field_pages"


def test_the_types_beside_penstock_js_have_every_field():
    """F23: TypeScript makes them of penstock.js."""
    text = SCRIPT.with_suffix(".d.ts").read_text()
    assert script() in text
    (event,) = re.findall(r"export type ChangeEvent = \{\n(.*?)\n\};", text, re.DOTALL)
    names = re.findall(r"^    (\w+)\??:", event, re.MULTILINE)
    assert names == ["cursor", *(field.name for field in FIELDS)]


if __name__ == "__main__":
    for written in PLACES:
        written.write_text(rewritten(written))
        sys.stdout.write(f"{written} was written\n")
