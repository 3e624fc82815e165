"""The server: the ASGI application, the uvicorn protocol class, and the drivers of the protocol machines."""
