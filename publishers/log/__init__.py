"""The public log: one write path, its readers and subscribers, and its statistics.

* `ChangeLog` opens a log for writing or read-only; `ReadableLog` has what both openings share.
* `ChangeFeed` is the publisher of a log's changes; `History` reads past changes in pages.
* `LogTimer` does the background work of all logs that this process owns; `FollowerThread` follows those of others.
"""
