"""Both protocols as sans-I/O machines, for the server and the client: messages in, effects out."""
