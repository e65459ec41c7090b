"""taskq: a distributed task queue on Redis that does not lose work."""
