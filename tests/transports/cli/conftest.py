"""Fixtures for tests of commands."""

import io
import sys
import types

import pytest


@pytest.fixture
def feed_stdin(monkeypatch):
    """Replaces standard input by a text."""

    def feed(text):
        data = text if isinstance(text, bytes) else text.encode()
        monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))

    return feed
