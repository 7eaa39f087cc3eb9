"""Run a network on a DLA through your own session; here on the shipped fakes, so it needs no DLA.

    python examples/dla_session.py

The network has one input of 1x3x8x8 and returns the mean of each channel. On a Jetson, open the host with `open_host()`
and load a loadable that TensorRT built.
"""

import numpy as np

from codecfleet.actors.dla.engine.host import open_host
from codecfleet.actors.dla.engine.tasks import DlaTask
from codecfleet.actors.dla.inference.layout import pack, unpack
from codecfleet.testing.nvidia.fake_cudla import FakeLoadable, FakeMachine, fake_tensor

loadable = FakeLoadable(fake_tensor("frame", (1, 3, 8, 8)), fake_tensor("means", (1, 3, 1, 1))).to_bytes()
machine = FakeMachine(dlas=2)

host = open_host(environment={}, import_module=machine.import_module)  # on a Jetson: open_host()
with host.open(0) as session:
    module = session.load(loadable)
    frame, means = session.allocate(module.inputs[0].size_bytes), session.allocate(module.outputs[0].size_bytes)
    found = np.zeros(means.size_bytes, dtype=np.uint8)
    session.upload(frame, pack(module.inputs[0], np.full((1, 3, 8, 8), 7, dtype=np.float32)))
    session.submit([DlaTask(module=module, inputs=(frame.registration,), outputs=(means.registration,))])
    session.download(means, found)
    session.synchronize()  # uploads, tasks and downloads keep their order in the session's stream
    print(unpack(module.outputs[0], found).ravel())
host.close()
