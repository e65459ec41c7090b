"""These run containers for real, where there is an engine; elsewhere they say why they were left out."""

import os
from collections.abc import Iterator

import pytest

from support.stack import APP, GRACE, LEASE, TICK, Stack, build_image, why_no_engine


@pytest.fixture(scope="session")
def image() -> str:
    """The name of the image, built from this tree."""
    missing = why_no_engine()
    if missing is not None:
        pytest.skip(missing)
    return build_image()


@pytest.fixture(scope="module")
def stack(image: str) -> Iterator[Stack]:
    """Redis, API, one worker over the test's application and a janitor."""
    made = Stack(
        f"taskq-test-{os.getpid()}",
        TASKQ_APP_DIR=str(APP),
        TASKQ_WORKER_ARGS="-A stackapp:app -c 20",
        TASKQ_LEASE_SECONDS=str(LEASE),
        TASKQ_JANITOR_SECONDS=str(TICK),
        TASKQ_GRACE_SECONDS=str(GRACE),
    )
    try:
        made.make("up")
        made.wait_workers(1)
        yield made
    finally:
        made.remove()
