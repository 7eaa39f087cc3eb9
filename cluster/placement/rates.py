"""The speed of engines in frames a second, by number of sessions: start values, replaced by measurements of workers.

A start value is the documented rate of one engine, scaled by clock and pixels (NVDEC and NVENC Application Notes, Video
Codec SDK 13.0). Measurements show how the rate grows with the number of sessions: a second session per engine
adds a few percent, a third next to nothing.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil

from ..probes.gpus.hardware import MIB, Hardware, HostMemory, load_hardware
from ..probes.report.engines import CodecCase, Direction, Engine, MediaCodec
from .model.demand import USUAL_THREADS, Demand, EncoderKind, Rendition
from .model.inventory import Device

REFERENCE_PIXELS = 1920 * 1080
DEFAULT_PRESET = 4
EIGHT_BITS = 8
SMOOTHING = 0.3
"""The weight of a new measurement in the resulting rate."""
BUSY_MOST = 0.9
"""The largest part of an engine that counts as used by other programs: engines are time-shared, so a session always
gets a part."""
LEAST_GAIN = 0.02
"""A curve ends where another session adds less than this fraction of the first session's speed."""

_PRESETS = frozenset("1234567")

Curve = tuple[tuple[int, float], ...]
"""Points (number of sessions, their total pixels or frames a second), from 1 session up."""


_SIZES = (1024 * 576, 1280 * 800, 2048 * 1152, 4096 * 2304)
"""Upper bounds, in pixels, of the ranges SD, HD, Full HD and UHD. An engine codes about as many pixels a second for one
size as for another size in the same range."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a session: decode or encode these pictures with this implementation and preset."""

    case: CodecCase
    width: int
    height: int
    engine: Engine
    implementation: str = ""  # "nvdec", "nvenc" or the software codec
    preset: int = DEFAULT_PRESET  # an encoder's preset, from 1 (fastest) to 7
    threads: int = USUAL_THREADS

    @property
    def pixels(self) -> int:
        """The number of pixels of a picture."""
        return self.width * self.height


def decode_stage(demand: Demand, engine: Engine = Engine.NVDEC) -> Stage:
    """Return the stage that decodes the input of a demand."""
    return Stage(demand.decode, demand.width, demand.height, engine, engine.value)


def encode_stage(rendition: Rendition, kind: EncoderKind) -> Stage:
    """Return the stage that encodes a track; a preset other than 1 to 7 counts as the default."""
    engine = Engine.NVENC if kind.is_nvenc else Engine.CPU
    preset = int(rendition.preset) if rendition.preset in _PRESETS else DEFAULT_PRESET
    size = rendition.width, rendition.height
    return Stage(rendition.case, *size, engine, kind.implementation, preset, rendition.threads)


RateKey = tuple[object, ...]
"""Identifies a measured curve of a model: see ``_key``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A worker's measurement on a device: the frames a second of one stage, in ``sessions`` busy sessions together."""

    device: Device
    stage: Stage
    sessions: int
    fps: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Documented start values and measured curves, by a device's name: a GPU with its MIG profile, or a processor."""

    hardware: Hardware
    measured: Mapping[str, Mapping[RateKey, Curve]] = field(default_factory=dict)


def start_rates() -> Rates:
    """Return the documented rates in ``configs/hardware.toml``."""
    tables = load_hardware()
    return Rates(tables, _documented(tables))


def record_measurement(rates: Rates, measurement: Measurement) -> Rates:
    """Return a copy of the rates that includes another measurement, unless the measurement is empty.

    The first measurement of a number of sessions counts fully, each later one only with the weight ``SMOOTHING``, so
    that one bad moment does not move work.
    """
    if measurement.fps <= 0 or measurement.sessions < 1:
        return rates
    device, stage = measurement.device, measurement.stage
    key, of_model = _key(_engines(device, stage), stage), rates.measured.get(device.name, {})
    curve = dict(of_model.get(key, ()))
    pixels_per_s = measurement.fps * stage.pixels
    before = curve.get(measurement.sessions)
    curve[measurement.sessions] = pixels_per_s if before is None else before + SMOOTHING * (pixels_per_s - before)
    of_model = {**of_model, key: tuple(sorted(curve.items()))}
    return replace(rates, measured={**rates.measured, device.name: of_model})


def curve_of(rates: Rates, device: Device, stage: Stage) -> Curve:
    """Return the total frames a second for each number of sessions; () if the device has no such engine.

    The curve starts at one session, never falls, and ends where more sessions add nothing: the engines are full (use by
    other programs counts), or the driver limits the rate.
    """
    engines = device.engine_count(stage.engine)
    if engines <= 0:
        return ()
    curve = _start_curve(rates.hardware, device, stage, engines)
    if measured := _measured(rates, device.name, _engines(device, stage), stage):
        curve = _joined(tuple((sessions, rate / stage.pixels) for sessions, rate in measured), curve)
    if curve and device.busy.get(stage.engine):
        curve = _up_to(curve, curve[-1][1] * (1 - min(device.busy[stage.engine], BUSY_MOST)))
    if curve and device.fps_max is not None:
        curve = _up_to(curve, device.fps_max)
    return curve


def _up_to(curve: Curve, fps_max: float) -> Curve:
    """Cap a curve at ``fps_max``; the curve ends at the first number of sessions that reaches the cap."""
    below = tuple(point for point in curve if point[1] < fps_max)
    if len(below) == len(curve):
        return curve
    last, last_fps = below[-1] if below else (0, 0.0)
    after, after_fps = curve[len(below)]
    sessions = last + ceil((after - last) * (fps_max - last_fps) / (after_fps - last_fps))
    return (*below, (max(sessions, last + 1), fps_max))


def software_fps(rates: Rates, processor: str, speed: float, stage: Stage) -> float:
    """Return the frames a second of one core for a software stage; 0 for an unknown encoder.

    A measurement on a processor of this name takes precedence over the rate of the reference core times ``speed``.
    """
    return measured_core_fps(rates, processor, stage) or _software_start(rates.hardware, stage) * speed


def usual_fps(demand: Demand) -> float:
    """Return the documented frames a second of one session in software on the reference core; 0 if unknown."""
    rates, software = start_rates(), [EncoderKind(each.software) for each in demand.renditions]
    stages = [decode_stage(demand, Engine.CPU), *map(encode_stage, demand.renditions, software)]
    fps = [software_fps(rates, "", 1.0, stage) for stage in stages]
    return 1 / sum(1 / each for each in fps) if all(fps) else 0.0


def measured_core_fps(rates: Rates, processor: str, stage: Stage) -> float:
    """Return the frames a second of one core as measured on a processor of this name; 0 without a measurement.

    The measurement with the most sessions counts, because placement fills the machine: with few sessions, each gets
    more of the caches and a higher clock.
    """
    curve = _measured(rates, processor, 1.0, stage)
    if not curve:
        return 0.0
    sessions, pixels_per_s = curve[-1]
    return pixels_per_s / sessions / stage.pixels


def _measured(rates: Rates, model: str, engines: float, stage: Stage) -> Curve:
    # Most models were not measured, and this look-up is faster than computing a key.
    of_model = rates.measured.get(model)
    return of_model.get(_key(engines, stage), ()) if of_model else ()


def _engines(device: Device, stage: Stage) -> float:
    return 1.0 if stage.engine is Engine.CPU else device.engine_count(stage.engine)


def _key(engines: float, stage: Stage) -> RateKey:
    size = bisect_left(_SIZES, stage.pixels)
    preset = stage.preset if stage.case.direction is Direction.ENCODE else 0
    return (engines, stage.case, size, stage.engine, stage.implementation, preset)


def _joined(measured: Curve, start: Curve) -> Curve:
    """Return the measured points; beyond the last point, the start curve continues, scaled to that point."""
    last, peak = measured[-1]
    scale = peak / read_curve(start, last)
    points = {sessions: fps * scale for sessions, fps in start if sessions > last} | dict(measured)
    if 1 not in points:
        first, fps = measured[0]
        points[1] = max(fps / first, read_curve(start, 1) * fps / read_curve(start, first))
    return _until_flat(tuple(sorted(points.items())))


def _until_flat(points: Curve) -> Curve:
    """End a curve before the first point at which another session adds too little, so that the curve never falls."""
    kept = [points[0]]
    for sessions, fps in points[1:]:
        before_sessions, before = kept[-1]
        if (fps - before) / (sessions - before_sessions) < LEAST_GAIN * points[0][1]:
            break
        kept.append((sessions, fps))
    return tuple(kept)


def read_curve(curve: Curve, sessions: float) -> float:
    """Return a curve's value at any number of sessions: proportional below one, constant beyond the last point."""
    before = (0, 0.0)
    for point in curve:
        if sessions <= point[0]:
            part = (sessions - before[0]) / (point[0] - before[0])
            return before[1] + part * (point[1] - before[1])
        before = point
    return before[1]


def _start_curve(hardware: Hardware, device: Device, stage: Stage, engines: float) -> Curve:
    if stage.engine is Engine.CPU:
        core, cores = _software_start(hardware, stage), max(1, int(engines))
        return ((1, core), (cores, core * cores)) if cores > 1 else ((1, core),)
    one = _engine_fps(hardware, device, stage)
    if one <= 0:
        return ()
    parts = hardware.sessions.decoding if stage.engine is Engine.NVDEC else hardware.sessions.encoding
    return tuple((sessions, one * part) for sessions, part in _shape(parts, engines))


@lru_cache
def _shape(parts: tuple[tuple[float, float], ...], engines: float) -> Curve:
    """Return the curve of ``engines`` engines, each of speed 1."""
    points: dict[int, float] = {}
    for each, part in parts:
        # A share of a GPU may contain only part of an engine, which can still run a session.
        sessions = max(ceil(engines) if each == 1 else round(engines * each), len(points) + 1)
        points.setdefault(1, min(1.0, engines) * part)
        points[sessions] = engines * part
    return _until_flat(tuple(sorted(points.items())))


def _engine_fps(hardware: Hardware, device: Device, stage: Stage) -> float:
    """Return the peak rate of one engine for this stage; 0 if the tables have no such engine."""
    architecture = hardware.architectures.get(hardware.architecture_of(device.name, device.architecture))
    if architecture is None:
        return 0.0
    scale = REFERENCE_PIXELS / stage.pixels
    if device.max_video_clock_mhz is not None and architecture.nvdec in hardware.nvdec:
        scale *= device.max_video_clock_mhz / hardware.nvdec[architecture.nvdec].reference_clock_mhz
    if stage.engine is Engine.NVDEC and architecture.nvdec:
        fps = hardware.nvdec[architecture.nvdec].fps
        named = fps.get(f"{stage.case.codec.value} {stage.case.bit_depth}")
        return scale * (named if named is not None else min(fps.values()))
    presets = hardware.nvenc[architecture.nvenc] if stage.engine is Engine.NVENC and architecture.nvenc else {}
    if stage.case.codec not in presets:
        return 0.0
    # Presets 1, 3, 5 and 7 have known rates; the rates between are geometric means.
    known, (index, between) = presets[stage.case.codec], divmod(stage.preset - 1, 2)
    return scale * ((known[index] * known[index + 1]) ** 0.5 if between else known[index])


def _software_start(hardware: Hardware, stage: Stage) -> float:
    tables = hardware.software
    if stage.case.direction is Direction.DECODE:
        fps = tables.decode.get(stage.case.codec, tables.decode[MediaCodec.OTHER])
    else:
        presets = tables.encode.get(stage.implementation)
        fps = 0.0 if presets is None else presets[stage.preset - 1]
    return fps * (tables.ten_bits if stage.case.bit_depth > EIGHT_BITS else 1.0) * REFERENCE_PIXELS / stage.pixels


def _documented(hardware: Hardware) -> dict[str, dict[RateKey, Curve]]:
    """Return the measurements in the tables, under each name of the measured model."""
    curves: dict[str, dict[RateKey, Curve]] = {}
    for entry in hardware.measured:
        codec, depth = entry.case.split()
        case = CodecCase(MediaCodec(codec), entry.direction, bit_depth=int(depth))
        engine = Engine.NVDEC if entry.direction is Direction.DECODE else Engine.NVENC
        stage = Stage(case, entry.width, entry.height, engine, engine.value)
        model = hardware.gpus[entry.model]
        for name in model.names:
            curve = tuple((sessions, fps * stage.pixels) for sessions, fps in entry.curve)
            curves.setdefault(name, {})[_key(float(model.engines[engine]), stage)] = curve
    return curves


_SAMPLES = {"4:0:0": 1.0, "4:2:0": 1.5, "4:2:2": 2.0, "4:4:4": 3.0}


def session_bytes(
    memory: HostMemory, decoded: Stage, encodes: Sequence[Stage], frames: int, *, filters: bool = False
) -> int:
    """Return the most memory that a session takes on its host, for the numbers of pictures in configs/hardware.toml.

    ``decoded`` describes the pictures that a processor's stages get, ``encodes`` the stages that encode in software,
    and ``frames`` is the length of the longest segment; ``filters`` says whether pictures are scaled, converted or
    deinterlaced in between.
    """
    held = min(memory.decode_pictures, frames + 1) + (memory.filter_pictures if filters else 0)
    total = memory.session_mib * MIB + held * frame_bytes(decoded)
    for stage in encodes:
        known = memory.encode.get(stage.implementation) or max(memory.encode.values(), key=lambda each: each.pictures)
        pictures = min(known.pictures[stage.preset - 1], known.first_pictures + frames * memory.pictures_per_frame)
        pictures += memory.filter_pictures if filters else 0
        pictures += memory.pictures_per_thread * max(0, stage.threads - USUAL_THREADS)
        total += known.mib * MIB + pictures * frame_bytes(stage)
    return total


def frame_bytes(stage: Stage) -> int:
    """Return the bytes of one raw picture of a stage."""
    samples = stage.pixels * _SAMPLES.get(stage.case.chroma, 3.0)
    return int(samples * (2 if stage.case.bit_depth > EIGHT_BITS else 1))
