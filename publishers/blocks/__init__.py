"""Frames of the log in memory, with everything that is derived from them once and shared by all subscribers.

* `Block` is one frame: columns, parsed images, encoded events, and ``Change`` objects made on demand.
* `Slice` is a selection of the rows of a block: the matches of one predicate.
"""
