"""Pure data, without files and threads.

* `Change` is one event of a log, with `Operation` and `Area`.
* `Position` is the place of the next change to read; `PositionToken` is its text on the wire.
"""
