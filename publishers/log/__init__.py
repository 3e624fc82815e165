"""The public log: one write path, its readers and subscribers, and its statistics.

* `ChangeLog` opens a log for writing or read-only; `ReadableLog` has what both openings share.
* `ChangeFeed` is the publisher of a log's changes; `History` reads past changes in pages.
* `Housekeeping` is the only background thread of an open log.
"""
