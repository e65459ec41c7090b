"""The worker of taskq: it claims jobs, runs them and reports (extra ``worker``)."""
