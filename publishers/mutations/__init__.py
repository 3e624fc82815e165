"""Mutations that writers commit: operations, field-level changes, and their stored form."""
