"""The server: the ASGI application, uvicorn, and what drives the machines of the protocols."""
