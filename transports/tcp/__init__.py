"""Sockets: options that asyncio does not set, and inherited sockets in a child of ``fork``."""
