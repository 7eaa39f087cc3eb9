"""Tries PyAV's encoders and decoders with one picture for each case. The bitstreams are also used to try NVDEC."""

import time
from base64 import b85decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....actors.encode.scheduling import ordinary_scheduling
from ..child.child import RunChild, run_in_child, try_cases
from ..report.engines import Direction, Engine, How, Trial
from ..report.tables import read_tables
from .cases import BY_NAME, SOFTWARE_DECODERS, SOFTWARE_ENCODERS, TRIAL_HEIGHT, TRIAL_WIDTH, Sample, offered_by_software

Luma: TypeAlias = NDArray[np.uint16]

BYTE_BITS: Final = 8
_DIFFERENCE_MAX: Final = 4.0
"""The largest allowed mean difference of a lossy picture, in 8-bit steps. The largest measured difference was 1.3."""
_DARK, _RANGE = 16, 219
_TRY_UNTIL: Final = 0.8
"""The fraction of the time after which a child begins no further case."""
_FAST: Final = {
    "libx264": {"preset": "veryfast", "x264-params": "threads=1"},
    "libx265": {"preset": "ultrafast", "x265-params": "pools=1:frame-threads=1:log-level=none"},
    "libsvtav1": {"preset": "10", "svtav1-params": "lp=1"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8"},
    "libvpx": {"deadline": "realtime", "cpu-used": "8"},
}


@dataclass(frozen=True, slots=True)
class TrialStream:
    """A one-frame bitstream."""

    packets: tuple[bytes, ...]
    luma: bytes  #: the luma of the picture as software decodes it: row by row, 16 bits for each sample


@dataclass(frozen=True, slots=True)
class SoftwareTrials:
    """The results of the trials of software codecs."""

    trials: tuple[Trial, ...]
    streams: Mapping[str, TrialStream]  #: bitstreams by the name of the sample
    problems: tuple[str, ...]  #: the cases that could not be tried, each with the reason


def probe_software(limit_s: float = 30.0, *, run: RunChild = run_in_child) -> SoftwareTrials:
    """Try every software codec within ``limit_s``; never raises."""
    outcome = try_cases(
        try_software,
        tuple(BY_NAME),
        lambda left: {"names": left},
        limit_s,
        environment={"SVT_LOG": "1", "CUDA_VISIBLE_DEVICES": ""},
        run=run,
    )
    trials: list[Trial] = []
    streams: dict[str, TrialStream] = {}
    for name, sample in BY_NAME.items():
        tried, stream = outcome.results.get(name, ((), None))
        trials += tried
        if stream is not None:
            streams[name] = stream
        if name in outcome.deaths:
            reason = f"the trial's process ended: {outcome.deaths[name].detail}"
            trials += _trials(sample, reason, reason)
    problems = (f"{len(outcome.untried)} software trials were not run: {outcome.problem}",) if outcome.untried else ()
    return SoftwareTrials(tuple(trials), streams, problems)


def _trials(sample: Sample, encode_fault: str, decode_fault: str | None) -> Iterator[Trial]:
    """Yield a sample's trials; ``decode_fault`` is None if there was no bitstream to decode."""
    if offered_by_software(sample):
        yield _trial(sample, Direction.ENCODE, SOFTWARE_ENCODERS[sample.codec], encode_fault)
    if decode_fault is not None:
        yield _trial(sample, Direction.DECODE, SOFTWARE_DECODERS[sample.codec], decode_fault)


def _trial(sample: Sample, direction: Direction, implementation: str, fault: str) -> Trial:
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
    )


def try_software(names: Sequence[str], limit_s: float) -> Iterator[Any]:
    """Try the named samples: encode one frame or, if there is no encoder, take a stored bitstream; then decode it.

    Runs in a child process. The result of a sample is its trials, and its ``TrialStream``: None if there was no
    bitstream, or if decoding failed.
    """
    ends_s = time.monotonic() + _TRY_UNTIL * limit_s
    for name in names:
        if time.monotonic() > ends_s:
            return
        yield name
        yield name, _tried(BY_NAME[name])


def _tried(sample: Sample) -> tuple[list[Trial], TrialStream | None]:
    packets, encode_fault = _attempt(lambda: _stream(sample))
    if packets is None:
        return list(_trials(sample, encode_fault, None)), None
    luma, decode_fault = _attempt(lambda: decode_luma(sample, packets))
    if luma is not None:
        decode_fault = difference_fault(luma, sample)
    trials = list(_trials(sample, encode_fault or decode_fault, decode_fault))
    return trials, None if decode_fault else TrialStream(tuple(packets), luma.tobytes())


def _attempt(action: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of ``action`` and ""; after an error, None and the error in one line."""
    try:
        return action(), ""
    except Exception as error:  # noqa: BLE001 - the exception is the trial's result
        return None, " ".join(f"{type(error).__name__}: {error}".split())


def _stream(sample: Sample) -> list[bytes] | None:
    if sample.encoder:
        return _encoded(sample)
    return [ready_streams()[sample.name]] if sample.name in ready_streams() else None


@cache
def ready_streams() -> dict[str, bytes]:
    """Return one-frame bitstreams of formats that PyAV cannot encode, by the name of the sample."""
    return {name: b85decode(packet) for name, packet in read_tables("trial_streams.toml").items()}


def trial_luma(bit_depth: int) -> Luma:
    """Return the luma of the trial picture: a diagonal ramp from 16 to 235, scaled to the bit depth."""
    y, x = np.mgrid[0:TRIAL_HEIGHT, 0:TRIAL_WIDTH]
    ramp = _DARK + (x + y) * _RANGE // (TRIAL_WIDTH + TRIAL_HEIGHT - 2)
    scaled: Luma = (ramp << (bit_depth - BYTE_BITS)).astype(np.uint16)
    return scaled


def mean_difference(left: Luma, right: Luma, sample: Sample) -> float:
    """Return the average difference of two pictures, in 8-bit steps."""
    return float(np.abs(left.astype(np.int32) - right.astype(np.int32)).mean()) / (1 << (sample.bit_depth - BYTE_BITS))


def difference_fault(luma: Luma, sample: Sample) -> str:
    """Return how a decoded picture differs from the trial picture; "" if it is similar enough."""
    far = mean_difference(luma, trial_luma(sample.bit_depth), sample)
    return f"the picture came out wrong: {far:.1f} steps off on average" if far > _DIFFERENCE_MAX else ""


def sample_type(bit_depth: int) -> "np.dtype[Any]":
    """Return the NumPy type of samples: bytes, or little-endian 16-bit integers."""
    return np.dtype("<u2" if bit_depth > BYTE_BITS else np.uint8)


def _av() -> Any:
    import av

    return av


def _encoded(sample: Sample) -> list[bytes]:
    encoder = _av().CodecContext.create(sample.encoder, "w")
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
    frame = _av().VideoFrame(TRIAL_WIDTH, TRIAL_HEIGHT, sample.pix_fmt)
    grey = np.uint16(1 << (sample.bit_depth - 1))
    for number, plane in enumerate(frame.planes):
        rows = trial_luma(sample.bit_depth) if number == 0 else np.full((plane.height, plane.width), grey)
        padded = np.zeros((plane.height, plane.line_size), np.uint8)
        samples = rows.astype(sample_type(sample.bit_depth)).tobytes()
        packed = np.frombuffer(samples, np.uint8).reshape(plane.height, -1)
        padded[:, : packed.shape[1]] = packed
        plane.update(padded.tobytes())
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    return frame


def decode_luma(sample: Sample, packets: list[bytes]) -> Luma:
    """Return the luma of a one-frame bitstream, decoded in software.

    Raises ValueError if the bitstream does not contain exactly one trial picture.
    """
    av = _av()
    decoder = av.CodecContext.create(SOFTWARE_DECODERS[sample.codec], "r")
    decoder.thread_count = 1
    frames = []
    for data in packets:
        packet = av.Packet(len(data))  # FFmpeg would read past the end of a packet that was made from ``bytes``
        packet.update(data)
        frames += decoder.decode(packet)
    frames += decoder.decode(None)
    if len(frames) != 1:
        raise ValueError(f"{len(frames)} pictures came out instead of one")
    (frame,) = frames
    shown = (frame.width, frame.height, frame.format.components[0].bits)
    if shown != (TRIAL_WIDTH, TRIAL_HEIGHT, sample.bit_depth):
        raise ValueError(f"the picture is {frame.width}x{frame.height} in {frame.format.name}")
    plane = frame.planes[0]
    rows = np.frombuffer(bytes(plane), sample_type(sample.bit_depth)).reshape(plane.height, -1)
    return rows[:, :TRIAL_WIDTH].astype(np.uint16)
