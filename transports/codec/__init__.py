"""Bytes on the wire: events encoded once and shared, messages read and checked."""
