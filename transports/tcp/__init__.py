"""Sockets: what asyncio does not tell them, and what a child of ``fork`` does with them."""
