"""Two versions of taskq over one Redis: the last tagged one and this one, working, dying, and rolled back."""

import os
import signal
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from support.faults import LEASE, RECOVERY, Place, last
from support.place import TESTS
from taskq.states import State

ROOT = TESTS.parent


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


def _last_tag() -> str:
    """The newest tag that this commit descends from; empty in a copy without the history."""
    return _git("describe", "--tags", "--abbrev=0").decode().strip()


@pytest.fixture
def before(tmp_path: Path) -> dict[str, str]:
    """The environment of a process of the tagged version."""
    folder = tmp_path / "before"
    with tarfile.open(fileobj=BytesIO(_git("archive", _last_tag()))) as tar:
        tar.extractall(folder, filter="data")
    folders = [folder, folder / "api", folder / "worker", TESTS]
    return {"PYTHONPATH": os.pathsep.join(str(f) for f in folders)}


@pytest.mark.skipif(not _last_tag(), reason="no tagged version in this copy")
def test_f88_two_versions_share_a_server(place: Place, before: dict[str, str]) -> None:
    """F88: workers, janitors and APIs of both, each killed and stopped under load; then back to the old one
    alone, over what the new one wrote: nothing lost, nothing run twice without a reason."""
    new = place.workers(2, "-c", "10")
    old = place.workers(2, "-c", "10", **before)
    place.process("janitor", "--every", "0.2", **before)
    _is_of(place, before)
    apis = [place.api(), place.api(**before)]
    ids = []
    for n in range(6):
        ids += place.submit("work", [{"seconds": 0.3}] * 40)
        ids += place.submit("flaky", [{"times": 2}] * 10)
        ids += place.submit("work", 5, delay=0.5, priority=n, max_attempts=7)
        for m, api in enumerate(apis):
            status, answer, _ = api.send(
                "POST", "/jobs", {"job_type": "work", "payload": {}}, Idempotency_Key=f"k{n}"
            )
            # Whichever of them is asked first, the other knows the key.
            assert status == (201 if m == 0 else 200), answer
        ids.append(answer["id"])
        place.ledger.write([("TRY", f"k{n}", answer["id"]), ("ACK", f"k{n}", answer["id"])])
    place.wait_started(40)
    place.kill(old.pop())
    place.kill(new.pop())
    for worker in (old[0], new[0]):
        place.freeze(worker)
        last(LEASE + 1)
        worker.signal(signal.SIGCONT)
    new += place.workers(1, "-c", "10")
    v = place.verdict(60)
    assert v.states == {State.SUCCEEDED: len(ids)}
    for worker in new:
        worker.stop()
    rest = place.submit("work", 50) + place.submit("flaky", [{"times": 1}] * 20)
    place.submit("work", 5, delay=1)
    place.wait_ended(rest, RECOVERY + 20)
    v = place.verdict(30)
    assert not place.findings()
    place.note(f"{_last_tag()} and this one: {v.figures()}")
    print(*place.notes)


def _is_of(place: Place, environment: dict[str, str]) -> None:
    """A process with this environment really imports the other version, worker and API too."""
    out = subprocess.run(
        [sys.executable, "-c", "import taskq, taskq_api, taskq_worker as w\n"
         "print(taskq.__file__, taskq_api.__file__, w.__file__)"],
        env=place.environment(**environment),
        cwd=place.folder,
        capture_output=True,
        check=True,
    )  # fmt: skip
    files = out.stdout.decode().split()
    assert len(files) == 3
    assert all(f.startswith(environment["PYTHONPATH"].split(os.pathsep)[0]) for f in files), files
