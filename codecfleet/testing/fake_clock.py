"""A clock that only the test advances."""

import asyncio

TURNS_TO_QUIET = 20
STEP_S = 0.25


class FakeClock:
    """A clock to read (``clock()``) and to sleep with (``await clock.sleep(s)``). Only ``advance`` moves the clock."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._now_s = now_s
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        """Sleep until ``seconds`` of this clock have passed."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_s + seconds, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Advance the clock in steps of a quarter of a second, and run the tasks that wake up."""
        for _ in range(int(seconds / STEP_S)):
            self._now_s += STEP_S
            due = [woken for at_s, woken in self._sleepers if at_s <= self._now_s]
            self._sleepers = [(at_s, woken) for at_s, woken in self._sleepers if at_s > self._now_s]
            for woken in due:
                if not woken.done():  # a cancelled sleeper is done
                    woken.set_result(None)
            await all_quiet()


async def all_quiet() -> None:
    """Run tasks for so many turns that every task then waits for something."""
    for _ in range(TURNS_TO_QUIET):
        await asyncio.sleep(0)
