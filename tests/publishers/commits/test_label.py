import json
import random
from uuid import RFC_4122, UUID

from publishers.commits.label import Label, RemoteProducer
from publishers.wal.format.control import unmarked
from tests.forking import in_child
from tests.publishers.support import opened, order


def made():
    return json.loads(Label.of(None, None).annotations)["id"]


def test_the_id_of_a_transaction_is_a_uuid_in_its_usual_form():
    """Whatever a program does with the shared generator of random numbers."""
    ids = set()
    for _ in range(1000):
        random.seed(1)
        text = made()
        found = UUID(text)
        assert (found.version, found.variant, str(found)) == (8, RFC_4122, text)
        ids.add(text)
    assert len(ids) == 1000


def test_a_transaction_of_a_producer_or_with_annotations_has_an_id_too():
    label = Label.of({"user": "ann"}, ("loader", 7))
    told = json.loads(label.annotations)
    assert UUID(told.pop("id")).version == 8
    assert told == {"producer": "loader", "meta": {"user": "ann"}}
    assert label.sequence == 7


def test_a_forked_process_does_not_repeat_the_ids_of_its_parent():
    made()
    theirs, mine = in_child(made), made()
    assert UUID(theirs) != UUID(mine)


def test_a_connection_repeats_what_an_older_version_has_written_for_it():
    """F147: its producer had an id without a mark."""
    drawn = RemoteProducer("ann", "connection-" + "5" * 32)
    with opened() as log:
        log.commit([order(1)], producer=(UUID(bytes=unmarked(drawn.id.bytes)), 7))
        assert log.commit([order(1)], producer=(drawn, 7)).duplicate
        assert not log.commit([order(1)], producer=(drawn, 8)).duplicate
        assert log.commit([order(1)], producer=(drawn, 8)).duplicate
    assert not RemoteProducer("ann", "connection-pool").drawn
