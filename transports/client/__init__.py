"""The Python client: a remote log, and the connection that it makes and makes again."""
