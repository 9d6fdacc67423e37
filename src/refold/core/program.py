"""Programs: procedures that need the world, written once for sync and async.

A program is a generator. It yields an `Effect` (a frozen value that says what is needed), and is sent the result. When
the effect fails, its exception is thrown into the program at the yield, so that retry and fall-back are ordinary
`try/except` there. `run` and `arun` are the only two drivers; both close the program when they leave, also when the
caller is cancelled, so that its `finally` blocks run at a known time.

    @dataclass(frozen=True, kw_only=True)
    class ReadFile(Effect[bytes]):
        path: str

    def size_gen(path: str) -> Program[int]:
        data = yield from ReadFile(path=path)  # typed: bytes
        return len(data)

    run(size_gen("/a"), handle)

The handler answers effects: it maps the effect's type to the code that performs it. A handler that does not know an
effect raises `TypeError`; it never returns None for it.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeAlias, TypeVar, cast

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Effect(Generic[T_co]):
    """Base of the requests that programs make, by the type of their answer. Subclasses are frozen dataclasses.

    `answer = yield from effect` asks for it; that is what makes the answer typed.
    """

    def __iter__(self) -> Generator["Effect[object]", object, T_co]:
        return cast("T_co", (yield self))


Program: TypeAlias = Generator[Effect[object], object, T]
"""A generator that yields effects, is sent their answers, and returns a `T`."""


def run(program: Program[T], handle: Callable[[Effect[object]], object]) -> T:
    """Drive a program to its end, answering each effect with `handle`.

    Raises what the program raises. An exception of `handle` is thrown into the program first.
    """
    try:
        effect = next(program)
        while True:
            try:
                answer = handle(effect)
            except Exception as error:  # noqa: BLE001 - handed to the program, which decides
                effect = program.throw(error)
            else:
                effect = program.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        program.close()


async def arun(program: Program[T], handle: Callable[[Effect[object]], Awaitable[object]]) -> T:
    """The same as `run`, for a handler that is awaited."""
    try:
        effect = next(program)
        while True:
            try:
                answer = await handle(effect)
            except Exception as error:  # noqa: BLE001 - handed to the program, which decides
                effect = program.throw(error)
            else:
                effect = program.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        program.close()
