"""The server.

* `asgi` has the ASGI application, `uvicorn` runs it on a thread inside the program.
* `ws_protocol` is the WebSocket class for uvicorn; `asgi_link` replaces it under other servers.
* `Driver` binds a protocol machine to subscriptions, a link and a clock; `outbound` is the executor of a connection.
* `status` answers ``/health``, ``/metrics`` and ``/statistics``.
"""
