"""Work waits where a session limit refuses it."""

import pytest

from codecfleet.cluster.fleet.leases.refusals import WAITS_S, when_admitted
from codecfleet.errors import CodecfleetError, DeviceMemory, SessionLimit


class Driver:
    """Refuses the first tries with these errors."""

    def __init__(self, *errors: CodecfleetError) -> None:
        self.errors = list(errors)
        self.slept: list[float] = []

    async def submit(self) -> str:
        """Refuse, or admit."""
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def sleep(self, seconds: float) -> None:
        """Note the wait."""
        self.slept.append(seconds)


async def test_a_refused_session_is_tried_again_after_a_while() -> None:
    """The job does not notice, and waits longer each time."""
    driver = Driver(SessionLimit("full"), SessionLimit("full"))
    assert await when_admitted(driver.submit, driver.sleep) == "done"
    assert driver.slept == list(WAITS_S[:2])


async def test_a_minute_of_refusals_is_an_error() -> None:
    """A limit that never gives way is reported as what it is."""
    driver = Driver(*[SessionLimit("full")] * 50)
    with pytest.raises(SessionLimit):
        await when_admitted(driver.submit, driver.sleep)
    assert sum(driver.slept) == pytest.approx(60, abs=1)


async def test_a_lack_of_memory_is_no_limit() -> None:
    """Other errors are raised at once: waiting opens no memory."""
    driver = Driver(DeviceMemory("full"))
    with pytest.raises(DeviceMemory):
        await when_admitted(driver.submit, driver.sleep)
    assert driver.slept == []
