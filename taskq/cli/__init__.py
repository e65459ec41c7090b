"""``taskq``: submit jobs, look at them, and operate queues from the command line.

Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted. Commands of other packages (``api``,
``worker``, ...) come by the entry-point group ``taskq.commands``.
"""

import click

from taskq.cli.apikeys import keys
from taskq.cli.audit import audit
from taskq.cli.dead import dead
from taskq.cli.group import TaskqGroup
from taskq.cli.jobs import jobs
from taskq.cli.queues import queues
from taskq.cli.status import doctor, stats
from taskq.cli.submit import submit
from taskq.cli.top import top
from taskq.cli.why import why
from taskq.cli.workers import workers
from taskq.lifeline import follow_parent


@click.group(cls=TaskqGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="taskq", prog_name="taskq", message="%(prog)s %(version)s")
def main() -> None:
    """A distributed task queue on Redis or Valkey.

    Every command but dev takes --redis-url and --namespace, which beat TASKQ_REDIS_URL and
    TASKQ_NAMESPACE.
    """
    follow_parent()


for _command in (audit, dead, doctor, jobs, keys, queues, stats, submit, top, why, workers):
    main.add_command(_command)

__all__ = ["main"]
