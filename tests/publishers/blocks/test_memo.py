"""What a block keeps of what was made of it, whatever the number of views."""

from publishers import Content, View, upsert
from publishers.blocks.block import BLOCK_BYTES, SHELVES_MAX, Block, Shelf
from publishers.mutations.mutation import columns_of


def block_of(rows):
    return Block(
        columns_of(rows),
        version=1,
        first_index=1,
        leads=True,
        ends=True,
        transaction_count=len(rows) + 1,
        transaction_bytes=1,
        committed_at=1,
    )


def test_a_shelf_is_made_once_while_it_is_kept():
    block = block_of([upsert("order", "1", {})])
    one = block.shelf("a", Shelf)
    assert block.shelf("a", Shelf) is one
    block.weigh(one, 7)
    for number in range(SHELVES_MAX - 1):
        block.shelf(number, Shelf)
    assert block.memo_bytes == 7
    block.shelf(SHELVES_MAX, Shelf)
    assert block.memo_bytes == 0
    assert block.shelf("a", Shelf) is not one


def test_views_without_end_weigh_no_more_than_so_many():
    """F59: what is made per view goes with the oldest views, and its weight is counted."""
    block = block_of([upsert("order", str(n), {"card": "x" * 100}) for n in range(10)])
    weights = []
    for number in range(4 * SHELVES_MAX):
        block.changes(range(11), View.of(Content.BODY, mask={"card": f"view {number}"}))
        weights.append(block.memo_bytes)
    assert weights[SHELVES_MAX - 1] == weights[-1] == max(weights)
    assert weights[-1] > weights[0]
    assert block.nbytes == BLOCK_BYTES + block.weight + block.memo_bytes
