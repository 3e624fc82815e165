"""Both protocols as machines without I/O, on the side of the server and of the client: messages in, effects out."""
