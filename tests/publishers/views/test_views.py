"""Views on one shared publisher: each subscriber sees its own, nobody sees another's, and equal views share."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flow
from publishers import Content, Drop, Hash, Images, Partial, View, remove, upsert
from publishers.blocks.block import Block
from publishers.errors import InvalidOption
from publishers.mutations.mutation import columns_of
from tests.harness.scale import scaled
from tests.publishers.support import opened, wait_until

SECRETS = {"card": "4111-SECRET-1234", "customer": {"name": "SECRET Ann", "zip": "SECRET zip"}}
OLD = {"card": "3000-SECRET-9876", "customer": {"name": "SECRET Ann", "zip": "SECRET old"}, "n": 0}
KEY = "sixteen bytes or more"

rules = st.sampled_from(
    [{"rule": "REDACT"}, {"rule": "DROP"}, {"rule": "PARTIAL"}, {"rule": "HASH", "key": KEY}]
)
paths = st.sampled_from(["card", "customer", "customer.name", "customer.zip", "n", "$key", "$meta.user"])
views = st.builds(
    View.of,
    st.sampled_from(Content),
    st.sampled_from(Images),
    fields=st.none() | st.lists(paths.filter(lambda path: path[0] != "$"), min_size=1, max_size=3),
    mask=st.none() | st.dictionaries(paths, rules, min_size=1, max_size=4),
)


def mutations(number: int) -> list:
    body = {**SECRETS, "n": number}
    meta = {"user": "SECRET user"}
    return [
        upsert("order", f"SECRET-{number}", body, before=OLD, changed=["card", "n"], meta=meta),
        upsert("order", f"SECRET-{number}", body, changed=["customer.zip"]),
        remove("order", f"SECRET-{number}", before=OLD),
    ]


class Reader:
    """Keeps what it is given, and asks for as much as it is told to."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.changes: list = []

    def on_subscribe(self, subscription) -> None:
        self.subscription = subscription

    def on_next(self, change) -> None:
        self.changes.append(change)

    def on_error(self, error) -> None:
        raise error

    def on_complete(self) -> None: ...


def block(rows: list, version: int = 1) -> Block:
    """A block of its own, of which nobody has made anything yet."""
    return Block(
        columns_of(rows),
        version=version,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=1 + len(rows),
        transaction_bytes=1,
        committed_at=1,
        annotations=b'{"id":"1","meta":{"user":"SECRET user"}}',
    )


@settings(max_examples=scaled(60), deadline=None)
@given(st.lists(views, min_size=2, max_size=5), st.data())
def test_on_one_publisher_everybody_sees_its_own_view_and_no_other(wanted, data):
    """F59, E8: random views, commits and demands interleaved; each gets what it would get if it were alone."""
    with opened(ring_events=data.draw(st.sampled_from([4, 1000]))) as log:
        readers = [Reader(view) for view in wanted]
        for reader in readers:
            log.changes(since=log.head, view=reader.view).subscribe(reader, executor=flow.INLINE)
        assert len(log.statistics().publishers) == 1
        commits = data.draw(st.integers(1, 4))
        for number in range(commits):
            for reader in data.draw(st.permutations(readers)):
                reader.subscription.request(data.draw(st.integers(1, 3)))
            log.commit(mutations(number), meta={"user": "SECRET user"})
        for reader in readers:
            reader.subscription.request(flow.UNBOUNDED)
        for reader in readers:
            wait_until(lambda reader=reader: len(reader.changes) == 4 * commits)
        for number in range(commits):
            for reader in readers:
                seen = reader.changes[4 * number : 4 * number + 4]
                alone = block(mutations(number), number + 1)
                assert seen[1:] == alone.changes(range(1, 4), reader.view)
                assert seen[0].meta == alone.change(0, reader.view).meta


def test_header_and_body_share_one_publisher_and_one_ring():
    """E8: one publisher is counted, and both contents are right."""
    with opened() as log:
        header, body = Reader(View()), Reader(View(Content.BODY))
        for reader in (header, body):
            log.changes(view=reader.view).subscribe(reader, executor=flow.INLINE)
            reader.subscription.request(flow.UNBOUNDED)
        log.commit(mutations(1))
        assert len(log.statistics().publishers) == 1
        assert [change.body for change in header.changes] == [None] * 4
        assert [change.body is None for change in body.changes] == [False, False, False, True]
        assert [change.key for change in header.changes] == [change.key for change in body.changes]


ALL_HIDDEN = View.of(
    Content.BODY,
    Images.ALL,
    mask={"card": Partial(4), "customer": Hash(KEY), "$key": "***", "$meta": Drop()},
)


@pytest.mark.parametrize("images", Images, ids=lambda images: images.name)
def test_no_secret_is_in_anything_a_masked_view_gives(images):
    """F59: bodies, images, attachments, keys, names, repr: nothing of a masked value is anywhere."""
    with opened() as log:
        log.commit(mutations(1), meta={"user": "SECRET user"})
        view = View(Content.BODY, images, ALL_HIDDEN.lenses)
        page = log.history(view=view)
        assert len(page.changes) == 4
        for change in page.changes:
            said = [getattr(change, name) for name in type(change).__struct_fields__]
            assert "SECRET" not in repr(said) + repr(change) + repr(page), change


def test_a_view_made_of_the_words_of_the_wire_is_the_view_they_mean():
    """F8, F59: no other thing passes for a content, which would then be neither HEADER nor BODY."""
    assert View("BODY", "AFTER") == View(Content.BODY, Images.AFTER)
    assert View(Content.BODY).within(View("HEADER")).content is Content.HEADER
    for wrong in ({"content": "body"}, {"images": None}):
        with pytest.raises(InvalidOption, match=r"must be one of (HEADER, BODY|WRITTEN, CHANGE)"):
            View(**wrong)


def test_equal_views_in_any_order_are_equal_objects():
    """F59: and so share bytes."""
    one = View.of(Content.BODY, fields=["a", "b.c"], mask={"x": "*", "y": {"rule": "DROP"}})
    other = View.of(Content.BODY, fields=("b.c", "a", "b.c.d"), mask={"y": Drop(), "x": "*"})
    assert one == other
    assert hash(one) == hash(other)
    assert View.of(Content.HEADER, Images.ALL) == View.of(Content.HEADER, Images.AFTER) == View()
    assert View.of(Content.BODY, mask={}) == View(Content.BODY)
    with pytest.raises(InvalidOption):
        View.of(fields=[])


def told(card: str, name: str, place: str) -> list:
    """Changes of an entity with these secrets, in which the same fields change whatever they are."""
    old = {"card": card + "-", "customer": {"name": name + "-", "zip": place + "-"}, "n": 0}
    new = {"card": card, "customer": {"name": name, "zip": place}, "n": 1}
    return [
        upsert("order", place, new, before=old, meta={"user": name}),
        upsert("order", place, new, changed=["card", "n"], meta={"user": name}),
        upsert("order", place, new),
        remove("order", place, before=old),
    ]


PLACES = {"card": 0, "customer.name": 1, "customer.zip": 2}


@settings(max_examples=scaled(400))
@given(
    views,
    views,
    st.sampled_from(sorted(PLACES)),
    st.sampled_from(["***", {"rule": "DROP"}, {"rule": "PARTIAL"}]),
)
def test_what_looks_the_same_through_the_wider_view_looks_the_same_within_it(asked, widest, path, rule):
    """F59: whatever a client asks for, it cannot tell apart what the view of the server makes equal."""
    one = ["4111111111111234", "4111111111111234", "4111111111111234"]
    other = [text if place != PLACES[path] else "4222222222221234" for place, text in enumerate(one)]
    mask = {path: rule, "$key": "***", "$meta": "***"} if path != "card" else {path: rule}
    widest = View(widest.content, widest.images, (*View.of(mask=mask).lenses, *widest.lenses))
    blocks = [block(told(*values)) for values in (one, other)]
    images = Images.KEYS_ONLY if widest.images is Images.KEYS_ONLY else Images.ALL
    everything = View(widest.content, images, widest.lenses)
    for index in range(1, 5):
        allowed = [each.change(index, everything) for each in blocks]
        assert allowed[0] == allowed[1]
        narrow = [each.change(index, asked.within(widest)) for each in blocks]
        assert narrow[0] == narrow[1]


@given(views, views)
def test_within_is_never_wider_in_content_or_images(asked, widest):
    """F59, F7."""
    narrow = asked.within(widest)
    assert (narrow.content is Content.BODY) <= (asked.content is widest.content is Content.BODY)
    row = block(told("1", "2", "3"))
    lenses = widest.lenses + asked.lenses
    for index in range(1, 5):
        seen = row.change(index, narrow)
        for view in (asked, widest):
            limit = row.change(index, View(view.content, view.images, lenses))
            assert (seen.body is not None) <= (limit.body is not None)
            assert (seen.before is not None) <= (limit.before is not None)
            assert _size(seen.body) <= _size(limit.body)
            assert _size(seen.before) <= _size(limit.before)


def _size(value) -> int:
    return len(value) if isinstance(value, dict) else 0


@pytest.mark.parametrize(
    "asked",
    [
        {"mask": {"customer": Hash(KEY)}},
        {"mask": {"customer.name": Hash(KEY)}},
        {"mask": {"customer.name": Partial(1)}},
        {"fields": ["customer.name"], "mask": {"customer": Hash(KEY)}},
    ],
)
def test_a_rule_of_ones_own_is_given_what_is_masked_already(asked):
    """F59: a hash with a key that the client knows would let it guess; it is made of the mask, never of the value."""
    widest = View.of(Content.BODY, mask={"customer.name": "***"})
    one, other = (block(told("1", name, "2")) for name in ("Ann", "Bob"))
    narrow = View.of(Content.BODY, **asked).within(widest)
    assert one.change(4, narrow).before == other.change(4, narrow).before
    assert one.change(1, narrow).body == other.change(1, narrow).body
