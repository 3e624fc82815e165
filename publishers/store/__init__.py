"""A store: named change logs in one directory, and the system log that records their creation, renames and drops."""
