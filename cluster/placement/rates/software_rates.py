"""From what a worker's software sessions gave together to the rate of the encoder alone."""

from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine
from ..model.demand import Demand
from ..model.inventory import Device
from .rates import DEFAULT_PRESET, Measurement, Rates, Stage, software_fps


def software_measurement(rates: Rates, demand: Demand, device: Device, sessions: int, fps: float) -> Measurement | None:
    """Return what ``fps`` of ``sessions`` sessions says about the job's encoder; None where it says nothing.

    A session decodes and encodes in turn, so the seconds a frame takes add up: what decoding takes by the rates known
    so far is taken off. Only a job with one rendition is measured.
    """
    if device.kind is not DeviceKind.CPU or len(demand.renditions) != 1 or fps <= 0 or sessions < 1:
        return None
    rendition = demand.renditions[0]
    encode = Stage(
        case=rendition.case,
        width=rendition.width,
        height=rendition.height,
        engine=Engine.CPU,
        implementation=rendition.software,
        preset=int(rendition.preset or DEFAULT_PRESET),
    )
    decode = Stage(case=demand.decode, width=demand.width, height=demand.height, engine=Engine.CPU)
    decode_fps = software_fps(rates, device.name, 1.0, decode)
    encode_s = sessions / fps - (1 / decode_fps if decode_fps > 0 else 0.0)
    if encode_s <= 0:
        return None
    return Measurement(device=device, stage=encode, sessions=sessions, fps=sessions / encode_s)
