"""Named change logs in one directory.

* `ChangeStore` creates, opens, renames and drops logs.
* Its system log records each of these steps, and readers follow it.
"""
