"""Derives the rate of the slowest stage from the speed of a worker's sessions."""

from dataclasses import replace

from ..probes.report.engines import Engine
from .model.demand import Demand, EncoderKind
from .model.inventory import Device
from .rates import (
    Measurement,
    Rates,
    Stage,
    curve_of,
    decode_stage,
    encode_stage,
    measured_core_fps,
    read_curve,
    software_fps,
)


def beside(processor: str, gpu: str) -> str:
    """Return the name under which a processor's rates are kept while a GPU decodes and the cores encode."""
    return f"{processor} beside {gpu}"


def core_fps_beside(rates: Rates, processor: str, speed: float, gpu: str, stage: Stage) -> float:
    """Return one core's frames a second while a GPU decodes: as measured, otherwise the rate without a GPU."""
    return measured_core_fps(rates, beside(processor, gpu), stage) or software_fps(rates, processor, speed, stage)


def measurement_of(
    rates: Rates,
    demand: Demand,
    device: Device,
    processor: Device,
    *,
    kinds: tuple[EncoderKind, ...],
    sessions: int,
    fps: float,
) -> Measurement | None:
    """Return the rate of the slowest stage of a device's sessions, derived from the sessions' speed; None if unknown.

    Which stage is slowest follows from the current rates: the device's decoder, its encoder, or the encoding cores of
    the host's ``processor``. Only jobs with one rendition are measured.
    """
    if len(demand.renditions) != 1 or fps <= 0 or sessions < 1:
        return None
    if device.kind.is_processor:
        return _of_software(rates, demand, device, sessions, fps)
    if len(kinds) != 1:
        return None
    decode, encode = decode_stage(demand), encode_stage(demand.renditions[0], kinds[0])
    decoded_fps = read_curve(curve_of(rates, device, decode), sessions)
    if kinds[0].is_nvenc:
        where, encoded_fps = device, read_curve(curve_of(rates, device, encode), sessions)
    else:
        where = replace(processor, name=beside(processor.name, device.name))
        encoded_fps = sessions * core_fps_beside(rates, processor.name, 1.0, device.name, encode)
    if decoded_fps <= 0 or encoded_fps <= 0:
        return None
    if encoded_fps <= decoded_fps:
        return Measurement(device=where, stage=encode, sessions=sessions, fps=fps)
    return Measurement(device=device, stage=decode, sessions=sessions, fps=fps)


def _of_software(rates: Rates, demand: Demand, device: Device, sessions: int, fps: float) -> Measurement | None:
    """Return an encoder's rate from sessions that alternate decoding and encoding: the decoding time is subtracted."""
    decode_fps = software_fps(rates, device.name, 1.0, decode_stage(demand, Engine.CPU))
    encode_s = sessions / fps - (1 / decode_fps if decode_fps > 0 else 0.0)
    if encode_s <= 0:
        return None
    encode = encode_stage(demand.renditions[0], EncoderKind(demand.renditions[0].software))
    return Measurement(device=device, stage=encode, sessions=sessions, fps=sessions / encode_s)


def engine_parts(
    rates: Rates, demand: Demand, device: Device, fps: float, kinds: tuple[EncoderKind, ...]
) -> dict[Engine, float]:
    """Return which fraction of a device's engines a job uses at ``fps`` source frames a second, by kind.

    The fraction is relative to the device's maximum without other programs; {} if nothing runs or no rate is known.
    """
    if fps <= 0:
        return {}
    whole = replace(device, busy={}, fps_max=None)
    encoding = zip(demand.renditions, kinds, strict=False)
    stages = [decode_stage(demand), *(encode_stage(rendition, kind) for rendition, kind in encoding if kind.is_nvenc)]
    parts: dict[Engine, float] = {}
    for stage in stages:
        if curve := curve_of(rates, whole, stage):
            parts[stage.engine] = min(1.0, parts.get(stage.engine, 0.0) + fps / curve[-1][1])
    return parts
