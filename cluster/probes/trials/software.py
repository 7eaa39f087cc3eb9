"""Tries PyAV's encoders and decoders with one grey ramp per case, in a child process; NVDEC gets the bitstreams."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....actors.encode.scheduling import ordinary_scheduling
from ..child.child import run_in_child
from ..child.trials import CaseResult, RunChild, try_cases
from ..report.engines import Direction, Engine, How, Trial
from .cases import (
    SAMPLES,
    SOFTWARE_DECODERS,
    SOFTWARE_ENCODERS,
    TRIAL_HEIGHT,
    TRIAL_WIDTH,
    Sample,
    offered_by_software,
)
from .streams import READY_STREAMS

Luma = NDArray[np.uint16]

DIFFERENCE_MAX: Final = 4.0
"""How far, on average and in 8-bit steps, a lossy picture may be from the ramp: measured at most 1.3."""
_DARK, _RANGE = 16, 219
_FAST: Final[dict[str, dict[str, str]]] = {
    "libx264": {"preset": "veryfast", "x264-params": "threads=1"},
    "libx265": {"preset": "ultrafast", "x265-params": "pools=1:frame-threads=1:log-level=none"},
    "libsvtav1": {"preset": "10", "svtav1-params": "lp=1"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8"},
    "libvpx": {"deadline": "realtime", "cpu-used": "8"},
}


@dataclass(frozen=True, slots=True)
class TrialStream:
    """A one-frame bitstream and the luma samples that software decodes from it, row by row, 16 bits each."""

    sample: Sample
    packets: tuple[bytes, ...]
    luma: bytes


@dataclass(frozen=True, slots=True)
class SoftwareTrials:
    """What the software codecs do. ``problems`` says what could not be tried; ``streams`` is by the sample's name."""

    trials: tuple[Trial, ...]
    streams: Mapping[str, TrialStream]
    problems: tuple[str, ...]


def probe_software(limit_s: float = 30.0, *, run: RunChild = run_in_child) -> SoftwareTrials:
    """Try every software codec within ``limit_s``; never raises."""
    samples = {sample.name: sample for sample in SAMPLES}
    outcome = try_cases(
        try_software,
        tuple(samples),
        lambda left, remaining_s: {"names": list(left), "limit_s": remaining_s},
        limit_s,
        environment={"SVT_LOG": "1", "CUDA_VISIBLE_DEVICES": ""},
        run=run,
    )
    trials: list[Trial] = []
    streams: dict[str, TrialStream] = {}
    for result in outcome.results:
        sample = samples[result.case]
        trials += _trials_of(sample, result)
        if result.values is not None and "luma" in result.values:
            streams[sample.name] = TrialStream(sample, tuple(result.values["packets"]), result.values["luma"])
    problems = (f"{len(outcome.untried)} software cases were not tried: {outcome.problem}",) if outcome.untried else ()
    return SoftwareTrials(tuple(trials), streams, problems)


def _trials_of(sample: Sample, result: CaseResult) -> Iterator[Trial]:
    values = result.values or {}
    reason = "" if result.death is None else f"the trial did not survive it: {result.death.detail}"
    if offered_by_software(sample):
        fault, took_s = reason or values["encode_fault"], values.get("encode_s", 0.0)
        yield _trial(sample, Direction.ENCODE, SOFTWARE_ENCODERS[sample.codec], fault, took_s)
    fault = reason or values["decode_fault"]
    if fault is not None:  # no bitstream says nothing about the decoder
        took_s = values.get("decode_s", 0.0)
        yield _trial(sample, Direction.DECODE, SOFTWARE_DECODERS[sample.codec], fault, took_s)


def _trial(sample: Sample, direction: Direction, implementation: str, fault: str, took_s: float) -> Trial:
    wheel = f"install PyAV from its own wheel: pip install --force-reinstall av (it carries {implementation})"
    return Trial(
        case=sample.case(direction),
        engine=Engine.CPU,
        implementation=implementation,
        works=not fault,
        how=How.TRIED,
        profile=sample.profile,
        reason=fault,
        fix=wheel if fault else "",
        took_s=took_s,
    )


def try_software(names: list[str], limit_s: float) -> Iterator[dict[str, Any]]:
    """Try samples by name, in a child process: encode one frame where an encoder is known, then decode it.

    Yields ``{"case"}``, then for each ``encode_fault`` ("" when it worked), ``decode_fault`` (None when there was no
    bitstream to try it with), the seconds each took, and ``packets`` and ``luma`` when both went well.
    """
    ends_s = time.monotonic() + 0.8 * limit_s
    samples = {sample.name: sample for sample in SAMPLES}
    for name in names:
        if time.monotonic() > ends_s:
            return
        yield {"case": name}
        yield {"case": name, **_tried(samples[name])}


def _tried(sample: Sample) -> dict[str, Any]:
    packets, encode_fault, encode_s = _timed(lambda: _stream(sample))
    if packets is None:
        return {"encode_fault": encode_fault, "encode_s": encode_s, "decode_fault": None}
    luma, decode_fault, decode_s = _timed(lambda: decode_luma(sample, packets))
    if luma is not None and (far := mean_difference(luma, trial_luma(sample.bit_depth), sample)) > DIFFERENCE_MAX:
        decode_fault = f"the picture came out wrong: {far:.1f} steps off on average"
    answer = {"encode_fault": encode_fault or decode_fault, "encode_s": encode_s}
    answer |= {"decode_fault": decode_fault, "decode_s": decode_s}
    return answer if decode_fault or luma is None else answer | {"packets": packets, "luma": luma.tobytes()}


def _timed(action: Callable[[], Any]) -> tuple[Any, str, float]:
    """Return what ``action`` returns (None when it failed), its error in one line, and how long it took."""
    began_s = time.monotonic()
    try:
        value, fault = action(), ""
    except Exception as error:  # noqa: BLE001 - whatever a codec raises is the answer of its trial
        value, fault = None, " ".join(f"{type(error).__name__}: {error}".split())
    return value, fault, time.monotonic() - began_s


def _stream(sample: Sample) -> list[bytes] | None:
    if sample.encoder:
        return _encoded(sample)
    return [READY_STREAMS[sample.name]] if sample.name in READY_STREAMS else None


def trial_luma(bit_depth: int) -> Luma:
    """Return the luma of the picture that every trial codes: a diagonal ramp from 16 to 235, scaled to the depth."""
    y, x = np.mgrid[0:TRIAL_HEIGHT, 0:TRIAL_WIDTH]
    ramp = _DARK + (x + y) * _RANGE // (TRIAL_WIDTH + TRIAL_HEIGHT - 2)
    scaled: Luma = (ramp << (bit_depth - 8)).astype(np.uint16)
    return scaled


def mean_difference(left: Luma, right: Luma, sample: Sample) -> float:
    """Return how far two pictures are from each other, on average, in 8-bit steps."""
    return float(np.abs(left.astype(np.int32) - right.astype(np.int32)).mean()) / (1 << (sample.bit_depth - 8))


def _encoded(sample: Sample) -> list[bytes]:
    import av  # noqa: PLC0415 - in the child: a broken FFmpeg must not end its parent

    encoder = av.CodecContext.create(sample.encoder, "w")
    if not isinstance(encoder, av.VideoCodecContext):
        raise TypeError(sample.encoder)
    encoder.width, encoder.height, encoder.pix_fmt = TRIAL_WIDTH, TRIAL_HEIGHT, sample.pix_fmt
    encoder.time_base, encoder.framerate = Fraction(1, 25), Fraction(25)
    encoder.thread_count = 1
    encoder.bit_rate = 1_000_000
    encoder.options = dict(_FAST.get(sample.encoder, {}))
    with ordinary_scheduling():
        encoder.open()
    packets = [*encoder.encode(_frame(sample)), *encoder.encode(None)]
    found = [bytes(packet) for packet in packets if packet.size]
    if len(found) != 1:
        raise ValueError(f"one frame became {len(found)} packets")
    return found


def _frame(sample: Sample) -> Any:
    import av  # noqa: PLC0415

    frame = av.VideoFrame(TRIAL_WIDTH, TRIAL_HEIGHT, sample.pix_fmt)
    grey = np.uint16(1 << (sample.bit_depth - 1))
    for number, plane in enumerate(frame.planes):
        rows = trial_luma(sample.bit_depth) if number == 0 else np.full((plane.height, plane.width), grey)
        _fill(plane, rows, sample.bit_depth)
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    return frame


def _fill(plane: Any, rows: NDArray[np.uint16], bit_depth: int) -> None:
    padded = np.zeros((plane.height, plane.line_size), np.uint8)
    samples = rows.astype("<u2" if bit_depth > 8 else np.uint8)  # noqa: PLR2004 - a byte
    packed = np.frombuffer(samples.tobytes(), np.uint8).reshape(plane.height, -1)
    padded[:, : packed.shape[1]] = packed
    plane.update(padded.tobytes())


def decode_luma(sample: Sample, packets: list[bytes]) -> Luma:
    """Return the luma that software decodes from a one-frame bitstream.

    Raises:
        ValueError: it is not one frame of the trial's size and depth.
    """
    import av  # noqa: PLC0415

    decoder = av.CodecContext.create(SOFTWARE_DECODERS[sample.codec], "r")
    if not isinstance(decoder, av.VideoCodecContext):
        raise TypeError(decoder.name)
    decoder.thread_count = 1
    frames = []
    for data in packets:
        packet = av.Packet(len(data))  # FFmpeg reads past the end of a packet that is made of bytes
        packet.update(data)
        frames += decoder.decode(packet)
    frames += decoder.decode(None)
    if len(frames) != 1:
        raise ValueError(f"{len(frames)} pictures came out instead of one")
    return luma_of(frames[0], sample)


def luma_of(frame: Any, sample: Sample) -> Luma:
    """Return a decoded frame's luma.

    Raises:
        ValueError: it has not the trial's size or sample format.
    """
    shown = (frame.width, frame.height, frame.format.components[0].bits)
    if shown != (TRIAL_WIDTH, TRIAL_HEIGHT, sample.bit_depth):
        raise ValueError(f"the picture is {frame.width}x{frame.height} in {frame.format.name}")
    plane = frame.planes[0]
    kind = np.dtype("<u2") if sample.bit_depth > 8 else np.dtype(np.uint8)  # noqa: PLR2004 - a byte
    rows = np.frombuffer(bytes(plane), kind).reshape(plane.height, -1)
    return rows[:, :TRIAL_WIDTH].astype(np.uint16)
