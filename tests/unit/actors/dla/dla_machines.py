"""A machine with fake DLAs, and a network on it."""

from collections.abc import Iterator

import numpy as np
import pytest

from codecfleet.actors.dla.engine.host import DlaHost, open_host
from codecfleet.actors.dla.engine.session import DlaSession
from codecfleet.actors.dla.engine.states import DlaMode
from codecfleet.actors.dla.engine.tasks import DlaTask
from codecfleet.actors.dla.engine.watchdog import TimeLimits, Timing
from codecfleet.actors.dla.inference.layout import pack
from codecfleet.testing.nvidia.fake_cudla import FakeLoadable, FakeMachine, fake_tensor

SHAPE = (1, 3, 4, 4)


NETWORK = FakeLoadable(fake_tensor("x", SHAPE), fake_tensor("y", (1, 3, 1, 1)))


class Machine:
    """A fake machine, and a host on the machine whose calls time out if something hangs."""

    def __init__(self) -> None:
        self.fake = FakeMachine(dlas=3)
        self.environment: dict[str, str] = {}

    def host(self, timing: Timing | None = None, mode: DlaMode = DlaMode.HYBRID) -> DlaHost:
        """Open a host."""
        timing = timing or Timing(limits=TimeLimits(task_s=1), patience=self.fake.patience)
        return open_host(timing, mode, environment=self.environment, import_module=self.fake.import_module)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Provide a machine; calls that hang on it are released after the test."""
    machine = Machine()
    yield machine
    machine.fake.release()


def prepared(session: DlaSession) -> DlaTask:
    """Return a task on a session."""
    module = session.load(NETWORK.to_bytes())
    x, y = (session.allocate(each.size_bytes) for each in (*module.inputs, *module.outputs))
    session.upload(x, pack(module.inputs[0], np.ones(SHAPE, dtype=np.float32)))
    return DlaTask(module=module, inputs=(x.registration,), outputs=(y.registration,))
