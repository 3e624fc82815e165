"""The options ``--content``, ``--images``, ``--integers``, ``--field`` and ``--mask``."""

import argparse
from collections.abc import Sequence

from publishers.views.masking import Drop, Hash, Partial, Redact, Rule
from publishers.views.view import Content, Images, Integers, View
from transports.cli.arguments import ArgumentParser

__all__ = ["add_lens", "add_view", "mask_of", "view_of"]


def add_view(parser: ArgumentParser) -> None:
    """Adds the options of a view."""
    for name, words, default, what in (
        ("--content", ["HEADER", "BODY"], "BODY", ""),
        ("--images", [images.value for images in Images], "WRITTEN", "which images of an entity "),
        ("--integers", ["NUMBER", "TEXT"], "NUMBER", "how whole numbers beyond 2^53 appear "),
    ):
        text = f"{what}(default: %(default)s)"
        parser.add_argument(name, type=str.upper, choices=words, default=default, help=text)
    add_lens(parser)


def add_lens(parser: ArgumentParser) -> None:
    """Adds the options of a projection and a mask."""
    parser.each("--field", "PATH", "only this field")
    parser.each(
        "--mask", "PATH[=RULE]", "hide this field: =DROP, =PARTIAL, =HASH:KEY or a text for its place"
    )


def view_of(chosen: argparse.Namespace) -> View:
    """Returns the view.

    Raises:
        InvalidOption: If a path or a rule is invalid.
    """
    return View.of(
        Content(getattr(chosen, "content", "BODY")),
        Images(getattr(chosen, "images", "WRITTEN")),
        fields=chosen.field or None,
        mask=mask_of(chosen.mask),
        integers=Integers(getattr(chosen, "integers", "NUMBER")),
    )


def mask_of(given: Sequence[str]) -> dict[str, Rule] | None:
    """Parses the rules of ``--mask``: ``PATH``, ``PATH=DROP``, ``PATH=PARTIAL``, ``PATH=HASH:KEY`` or ``PATH=TEXT``."""
    rules: dict[str, Rule] = {}
    for each in given:
        path, _, how = each.partition("=")
        word, _, key = how.partition(":")
        match word:
            case "":
                rules[path] = Redact()
            case "DROP":
                rules[path] = Drop()
            case "PARTIAL":
                rules[path] = Partial()
            case "HASH":
                rules[path] = Hash(key)
            case _:
                rules[path] = Redact(how)
    return rules or None
