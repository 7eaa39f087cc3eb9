"""How far nodes' clocks are behind the supervisor's, by the workers' heartbeats."""

import pytest

from codecfleet.actors.worker.heartbeat import Heartbeat
from codecfleet.cluster.supervisor.runner.heartbeats import SENT_KEPT, Heartbeats
from codecfleet.cluster.worker_names import WorkerId
from codecfleet.testing import FakeClock, FakeClusterBackend

UTC_S = 1_700_000_000.0


class Beating(FakeClusterBackend):
    """A cluster whose heartbeats take a while; ``behind_s`` has how far each node's clock is behind."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(())
        self.clock, self.behind_s, self.takes_s = clock, {"a": 0.0, "b": 0.0}, 0.0

    async def heartbeat(self, worker: str) -> Heartbeat:
        """Send one, which arrives later."""
        sent_s = UTC_S + self.clock() - self.behind_s[worker.partition("/")[0]]
        await self.clock.advance(self.takes_s)
        return Heartbeat(0, (), sent_utc_s=sent_s)


def reading(backend: Beating) -> Heartbeats:
    """Return the reader of these heartbeats."""
    return Heartbeats(
        backend=backend,
        limit_s=20.0,
        clock=backend.clock,
        feed=pytest.fail,
        note=lambda *_: None,
        superseded=pytest.fail,
        utc=lambda: UTC_S + backend.clock(),
    )


@pytest.mark.parametrize("behind_s", [0.0, 90.0, -90.0])
async def test_the_least_delay_of_a_few_heartbeats_counts(behind_s: float) -> None:
    """One prompt heartbeat of one worker is enough; after some slow ones the bound is less exact."""
    backend = Beating(FakeClock())
    backend.behind_s["a"] = behind_s
    heartbeats = reading(backend)
    assert heartbeats.skews_s() == {}
    for takes_s, worker in ((3.0, "a/cpu#0:1"), (0.5, "a/gpu#0:2"), (1.0, "a/cpu#0:1"), (0.25, "b/cpu#0:3")):
        backend.takes_s = takes_s
        await heartbeats.read(WorkerId(worker))
    assert heartbeats.skews_s() == {"a": pytest.approx(behind_s + 0.5), "b": pytest.approx(0.25)}
    heartbeats.forget(WorkerId("a/gpu#0:2"))
    assert heartbeats.skews_s()["a"] == pytest.approx(behind_s + 1.0)


async def test_a_clock_that_was_set_is_noticed() -> None:
    """Old heartbeats are dropped, and workers of other versions may state no time."""
    backend = Beating(FakeClock())
    heartbeats = reading(backend)
    await heartbeats.read(WorkerId("a/cpu#0:1"))
    backend.behind_s["a"] = 7.0
    for _ in range(SENT_KEPT):
        await heartbeats.read(WorkerId("a/cpu#0:1"))
    assert heartbeats.skews_s() == {"a": pytest.approx(7.0)}


async def test_the_time_of_the_last_heartbeat_is_known() -> None:
    """Operators see how long ago each worker's last heartbeat arrived, not when it was sent."""
    backend = Beating(FakeClock())
    heartbeats = reading(backend)
    backend.takes_s = 0.5
    await heartbeats.read(WorkerId("a/cpu#0:1"))
    await heartbeats.read(WorkerId("b/cpu#0:3"))
    await backend.clock.advance(2.0)
    assert heartbeats.heard_s() == {"a/cpu#0:1": pytest.approx(2.5), "b/cpu#0:3": pytest.approx(2.0)}
