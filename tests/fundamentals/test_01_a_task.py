"""A task is a function that was registered with an application."""

from taskq import Context, TaskQ


def test_a_task_is_declared_with_a_decorator(app: TaskQ) -> None:
    """Its name is the function's; under this name jobs are submitted and run."""

    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    assert greet.name == "greet"


def test_a_task_may_have_another_name(app: TaskQ) -> None:
    """So the function can be renamed while jobs of the old name still wait."""

    @app.task(name="mail.send")
    async def send(to: str) -> None:
        pass

    assert send.name == "mail.send"


async def test_a_task_can_just_be_called(app: TaskQ) -> None:
    """Calling it runs the function here and now: no queue, no worker."""

    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    assert await greet("Ada") == "Hello Ada"
    assert add(1, 2) == 3


async def test_a_context_is_filled_in_when_a_task_is_called(app: TaskQ) -> None:
    """A parameter hinted ``Context`` tells a job about itself; callers do not pass it."""

    @app.task
    async def who(ctx: Context) -> str:
        return ctx.job_type

    assert await who() == "who"
