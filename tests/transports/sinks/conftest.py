"""A receiver of webhooks, and sinks that send to it."""

import pytest

from tests.transports.sinks.receivers import Receiver
from tests.transports.sinks.webhooks import LOOPBACK, context
from transports.sinks.webhook import WebhookSink


@pytest.fixture
def receiver():
    with Receiver() as made:
        yield made


@pytest.fixture
def sinks():
    """Makes sinks that are opened, and closes them."""
    made = []

    def make(url, view=None, **options):
        sink = WebhookSink(url, **{"allow": LOOPBACK, **options})
        made.append(sink)
        sink.open(context(view))
        return sink

    yield make
    for sink in made:
        sink.close()
