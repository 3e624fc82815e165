"""Every order and question that a client may send about a log, once: its fields, what it needs, its answer, and what does it.

The faces read this table: the messages of ``penstock.v1+json``, the checks of permissions, the clients, the commands, and
``docs/operations.md``. `LogOperation` says what belongs to one.
"""
