"""The Redis protocol (RESP2 and RESP3) on its own port: Kora's CDC commands, for stock Redis clients.

* `server` opens the port; `connection` reads commands and writes replies.
* `commands` is the table of commands; `polling`, `grouping` and `transacting` execute them.
* `parser` and `replies` convert bytes.
"""
