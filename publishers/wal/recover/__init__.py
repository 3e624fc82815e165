"""Recovery after a crash, and truncation of withheld transactions.

* `recovery` opens a log for writing, and truncates torn writes.
* `inspector` scans segments, and distinguishes torn writes from damage to acknowledged data.
* `truncate` removes the end of a log, or finishes an interrupted removal.
"""
