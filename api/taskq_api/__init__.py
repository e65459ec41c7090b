"""The REST API and the dashboard of taskq (extra ``api``)."""
