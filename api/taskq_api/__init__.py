"""The REST API of taskq (extra ``api``)."""
