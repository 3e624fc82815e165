"""Both WebSocket protocols as machines without I/O: messages in, effects out.

* `ServerConnection` is the part that both protocols share; `states` has the table of its phases.
* `ServerSession` and `ClientSession`: the two sides of ``penstock.v1+json``.
* `graphql_ws`: the server side of ``graphql-transport-ws``.
"""
