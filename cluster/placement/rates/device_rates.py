"""From what a GPU's sessions gave together to the rate of whatever held them up."""

from dataclasses import replace

from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine
from ..model.demand import Demand, EncoderKind, Rendition
from ..model.inventory import Device
from .rates import DEFAULT_PRESET, Measurement, Rates, Stage, curve_of, measured_core_fps, read_curve, software_fps


def beside(processor: str, gpu: str) -> str:
    """Return the name under which a processor's rates are kept while a GPU of this model decodes for it.

    Its cores then do nothing but filter and encode; but feeding the GPU and fetching its pictures is theirs too.
    """
    return f"{processor} beside {gpu}"


def core_fps_beside(rates: Rates, processor: str, speed: float, gpu: str, stage: Stage) -> float:
    """Return the frames a second of one core that encodes what a GPU decodes: as measured, else as without the GPU."""
    return measured_core_fps(rates, beside(processor, gpu), stage) or software_fps(rates, processor, speed, stage)


def device_measurement(
    rates: Rates,
    demand: Demand,
    device: Device,
    processor: Device,
    *,
    kinds: tuple[EncoderKind, ...],
    sessions: int,
    fps: float,
) -> Measurement | None:
    """Return what ``fps`` of ``sessions`` sessions that a device decoded for says; None where it says nothing.

    It is the rate of what is slowest by the rates known so far, with that many sessions: the device's decoder, its
    encoder, or the cores that encode. Only a job with one rendition is measured.

    Args:
        rates: what is known.
        demand: the job.
        device: the GPU or slice that decoded all of it.
        processor: its host's.
        kinds: what encoded.
        sessions: how many were at work.
        fps: what they gave together, in source frames a second.
    """
    if device.kind is DeviceKind.CPU or len(demand.renditions) != 1 or len(kinds) != 1 or fps <= 0 or sessions < 1:
        return None
    decode = _decode_stage(demand)
    rendition, kind = demand.renditions[0], kinds[0]
    on_device = kind.is_nvenc
    encode = _encode_stage(rendition, kind)
    decoded_fps = read_curve(curve_of(rates, device, decode), sessions)
    if on_device:
        where, encoded_fps = device, read_curve(curve_of(rates, device, encode), sessions)
    else:
        where = replace(processor, name=beside(processor.name, device.name))
        encoded_fps = sessions * core_fps_beside(rates, processor.name, 1.0, device.name, encode)
    if decoded_fps <= 0 or encoded_fps <= 0:
        return None
    if encoded_fps <= decoded_fps:
        return Measurement(device=where, stage=encode, sessions=sessions, fps=fps)
    return Measurement(device=device, stage=decode, sessions=sessions, fps=fps)


def engine_parts(
    rates: Rates, demand: Demand, device: Device, fps: float, kinds: tuple[EncoderKind, ...]
) -> dict[Engine, float]:
    """Return which part of each kind of a device's engines ``fps`` source frames a second of a job take, from 0 to 1.

    By what the device gives at most when no other program uses it; {} where nothing runs or no rate is known.
    """
    if fps <= 0:
        return {}
    whole = replace(device, busy={}, fps_max=None)
    encodes = [
        _encode_stage(rendition, kind)
        for rendition, kind in zip(demand.renditions, kinds, strict=False)
        if kind.is_nvenc
    ]
    parts: dict[Engine, float] = {}
    for stage in (_decode_stage(demand), *encodes):
        curve = curve_of(rates, whole, stage)
        if curve:
            parts[stage.engine] = min(1.0, parts.get(stage.engine, 0.0) + fps / curve[-1][1])
    return parts


def _decode_stage(demand: Demand) -> Stage:
    return Stage(demand.decode, demand.width, demand.height, Engine.NVDEC, Engine.NVDEC.value)


def _encode_stage(rendition: Rendition, kind: EncoderKind) -> Stage:
    engine = Engine.NVENC if kind.is_nvenc else Engine.CPU
    preset = int(rendition.preset or DEFAULT_PRESET)
    return Stage(rendition.case, rendition.width, rendition.height, engine, kind.implementation, preset)
