"""What must not be read by others is in no log, no list of processes and no answer."""

import psutil
import pytest

from support.faults import Place, kill_connections, until

pytestmark = pytest.mark.beside

SECRET = "sesame-7391"
TOKEN = "walnut-2846"


@pytest.mark.beside(seconds=15)
def test_f86_secrets_are_masked(place: Place) -> None:
    """F86: a password in the URL, connections that break, a login that is refused, arguments that are called
    token: nothing of it in the logs at level debug, in the processes' titles, in health and errors."""
    words = ("SETUSER", "app", "on", f">{SECRET}", "~*", "&*", "+@all")
    place.admin.execute_command("ACL", *words)
    url = f"redis://app:{SECRET}@127.0.0.1:{place.port}/0"
    worker = place.worker("-c", "5", "--log-level", "debug", TASKQ_REDIS_URL=url)
    api = place.api(TASKQ_REDIS_URL=url, TASKQ_LOG_LEVEL="debug")
    place.process("janitor", "--every", "0.2", TASKQ_REDIS_URL=url)
    payload = {"seconds": 0, "password": TOKEN, "token": TOKEN}
    place.wait_ended(place.submit("work", [payload, {}]), 20)  # the first does not fit its function
    status, refused, _ = api.post("work", payload)
    assert status == 422, "it does not fit what the workers publish"
    assert TOKEN not in str(refused)
    assert "7391" not in str(api.send("GET", "/queues")) + str(api.send("GET", "/ready"))
    titles = [" ".join(psutil.Process(pid).cmdline()) for p in place.processes for pid in p.tree()]
    kill_connections(place)
    place.wait_ended(place.submit("work", 1), 20)
    # The password is changed under their feet: what is said of it does not repeat it.
    place.admin.execute_command("ACL", "SETUSER", "app", "resetpass", ">other")
    kill_connections(place)
    until(lambda: api.ready() == 503, 10, "the API may not log in")
    _, answer, _ = api.send("GET", "/ready")
    until(lambda: "login" in worker.text() or "auth" in worker.text(), 20, "the worker says so")
    place.admin.execute_command("ACL", "SETUSER", "app", "resetpass", f">{SECRET}")
    (late,) = place.submit("work", 1)
    until(lambda: place.ledger.starts(late), 20, "it goes on with the old password")
    told = "\n".join([*(p.text() for p in place.processes), *titles, str(answer)])
    assert "debug" in told.lower()
    for secret in (SECRET, TOKEN):
        assert secret not in told
