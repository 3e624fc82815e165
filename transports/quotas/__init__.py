"""Quotas for the costs that clients cause: threads, bytes, and the weight of criteria."""
