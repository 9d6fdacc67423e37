"""Programs and their two drivers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from refold.core.program import Effect, Program, arun, run


@dataclass(frozen=True, kw_only=True)
class Ask(Effect[int]):
    number: int


def drive_sync(program: Program[object], handle: Callable[[Effect[object]], object]) -> object:
    return run(program, handle)


def drive_async(program: Program[object], handle: Callable[[Effect[object]], object]) -> object:
    async def awaited(effect: Effect[object]) -> object:
        await asyncio.sleep(0)
        return handle(effect)

    return asyncio.run(arun(program, awaited))


Driver = Callable[[Program[object], Callable[[Effect[object]], object]], object]


@pytest.fixture(params=[drive_sync, drive_async], ids=["run", "arun"])
def drive(request: pytest.FixtureRequest) -> Driver:
    return request.param


class TestDriversAgree:
    def test_answers_reach_the_program_in_order(self, drive: Driver) -> None:
        """Each effect is answered once, in order, and the program's value is returned."""

        def total_gen() -> Program[int]:
            first = yield from Ask(number=1)
            second = yield from Ask(number=2)
            return first * 10 + second

        seen: list[int] = []

        def handle(effect: Effect[object]) -> object:
            assert isinstance(effect, Ask)
            seen.append(effect.number)
            return effect.number + 1

        assert drive(total_gen(), handle) == 23
        assert seen == [1, 2]

    def test_a_failed_effect_is_thrown_into_the_program(self, drive: Driver) -> None:
        """Retry is ordinary try/except in the program."""

        def stubborn_gen() -> Program[str]:
            for _ in range(3):
                try:
                    yield from Ask(number=0)
                except OSError:
                    continue
                return "answered"
            return "gave up"

        calls = iter([OSError("a"), OSError("b"), 7])

        def handle(effect: Effect[object]) -> object:
            value = next(calls)
            if isinstance(value, OSError):
                raise value
            return value

        assert drive(stubborn_gen(), handle) == "answered"

    def test_what_the_program_raises_comes_out(self, drive: Driver) -> None:
        """An error that the program does not handle reaches the caller."""

        def failing_gen() -> Program[None]:
            yield from Ask(number=0)

        def handle(effect: Effect[object]) -> object:
            raise KeyError("lost")

        with pytest.raises(KeyError, match="lost"):
            drive(failing_gen(), handle)

    def test_the_program_is_closed_when_the_caller_is_interrupted(self, drive: Driver) -> None:
        """A `finally` of the program has run by the time the driver returns, also when the caller is stopped."""
        closed: list[bool] = []

        def careful_gen() -> Program[None]:
            try:
                yield from Ask(number=0)
            finally:
                closed.append(True)

        def handle(effect: Effect[object]) -> object:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            drive(careful_gen(), handle)
        assert closed == [True]
