"""What is taken for granted of a processor that was not probed: every node has the same codecfleet and PyAV."""

from functools import cache
from itertools import product

from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from ..model.demand import Demand, EncoderChoice, Rendition
from ..model.inventory import Device, Node, processor_name

CHROMAS = ("4:0:0", "4:2:0", "4:2:2", "4:4:4")
BIT_DEPTHS = (8, 10, 12)
PLAIN_FRAMES = 250
"""How long a piece of work is taken to be of which nothing is known: a usual segment."""
PLAIN_CASE = CodecCase(MediaCodec.H264, Direction.DECODE)


@cache
def _assumed_trials() -> tuple[Trial, ...]:
    cases = product(MediaCodec, Direction, CHROMAS, BIT_DEPTHS)
    return tuple(
        Trial(case=CodecCase(*case), engine=Engine.CPU, implementation="", works=True, how=How.DOCUMENTED)
        for case in cases
    )


def processor_of(node: str, name: str, cores: int) -> Node:
    """Return a node of which only its processor is known, with ``cores`` slots for any software codec."""
    device = Device(
        device=processor_name(node),
        node=node,
        kind=DeviceKind.CPU,
        name="processor",
        engines={Engine.CPU: cores},
        trials=_assumed_trials(),
    )
    return Node(node=node, name=name, devices=(device,))


def plain_demand(job: str, pieces: int, workers_max: int | None = None) -> Demand:
    """Return the demand of a job whose media is unknown: ``pieces`` segments of software work."""
    rendition = Rendition(
        case=CodecCase(PLAIN_CASE.codec, Direction.ENCODE), width=1920, height=1080, software="libx264"
    )
    return Demand(
        job=job,
        segments=(PLAIN_FRAMES,) * pieces,
        decode=PLAIN_CASE,
        width=1920,
        height=1080,
        renditions=(rendition,),
        encoder=EncoderChoice.SOFTWARE,
        workers_max=workers_max,
    )
