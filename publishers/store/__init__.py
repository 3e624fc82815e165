"""A store: named change logs in one directory, and the system log that tells what becomes of them."""
