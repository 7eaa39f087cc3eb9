"""Tries NVDEC and NVENC with one real frame for each case, through PyNvVideoCodec, in child processes.

NVDEC decodes a bitstream that software encoded in the same run, or a stored one, and must return the same picture as
software decoding. The child process sees only one device, because capability calls of PyNvVideoCodec always query
CUDA's device 0.

PyNvVideoCodec raises one exception for all faults; its message contains a CUresult for decoders, an NVENCSTATUS for
encoders. A decoder that cannot create a CUDA context ends the process instead, so the output of a dead child is also
read.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..child.child import ChildOutcome, RunChild, try_cases
from ..report.engines import Direction, Engine, How, MediaCodec, Trial
from ..report.tables import read_tables
from .cases import BY_NAME, NVDEC_CASES, NVENC_CASES, NVENC_SURFACES, TRIAL_HEIGHT, TRIAL_WIDTH, Sample
from .software import (
    BYTE_BITS,
    Luma,
    TrialStream,
    decode_luma,
    difference_fault,
    sample_type,
    trial_luma,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an engine failed a case."""

    code: int | None  #: the error code of the library, if the message contains one
    reason: str
    fix: str = ""


_CODE: Final = re.compile(r"(?:error code\s*:|returned error)\s*(\d+)", re.IGNORECASE)
_PRINTED_CODE: Final = re.compile(r"error[^0-9\n]{0,12}(\d{1,3})\b", re.IGNORECASE)
_DETAIL_CHARACTERS: Final = 160
XID_FIX: Final = "look for Xid lines: sudo dmesg | grep Xid"
_TABLES: Final = read_tables("trials.toml")
_DECODE: Final = {int(code): row for code, row in _TABLES["decode_errors"].items()}
_ENCODE: Final = {int(code): row for code, row in _TABLES["encode_errors"].items()}
_NO_ENCODER_CODES: Final = (1, 2, 5)
_CUDA_CODEC: Final = {MediaCodec(codec): value for codec, value in _TABLES["cuda_codecs"].items()}
_CUDA_CHROMA: Final = {"4:0:0": 0, "4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
_CHROMA_ROWS: Final = {"4:2:0": TRIAL_HEIGHT // 2, "4:2:2": TRIAL_HEIGHT, "4:4:4": 2 * TRIAL_HEIGHT}
_INEXACT: Final = {MediaCodec.MPEG2: 2, MediaCodec.MPEG4: 2, MediaCodec.JPEG: 2}
"""How far a sample may differ, for codecs whose standard does not fix the rounding of the inverse transform."""
_CONTAINER_BITS: Final = 16
_DECODE_SHARE: Final = 0.7
_DIRECTION: Final = {Engine.NVDEC: Direction.DECODE, Engine.NVENC: Direction.ENCODE}
_NO_DECODER: Final = Fault(None, "the driver reports no decoder for it on this GPU")
_NO_FORMAT: Final = Fault(None, "the driver reports that this encoder lacks this sample format")
_WRONG_FIX: Final = "update the driver; until then, do not use this decoder"
_TRY_UNTIL: Final = 0.75
"""The fraction of the time after which a child tries no more frames, and only queries capabilities."""


def trials_of_device(
    visible: str, streams: Mapping[str, TrialStream], limit_s: float, *, run: RunChild
) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """Try every case on one device within ``limit_s``; return the trials, and which cases could not be tried.

    ``visible`` is the device's name in CUDA_VISIBLE_DEVICES; ``streams`` are bitstreams by sample name.
    """
    decode_s = limit_s * _DECODE_SHARE
    began_s = time.monotonic()
    decoded, decode_problem = _tried(Engine.NVDEC, NVDEC_CASES, visible, streams, decode_s, run=run)
    if not decoded:
        return (), (decode_problem,) if decode_problem else ()  # what stops every case of NVDEC stops NVENC too
    left_s = max(limit_s - decode_s, limit_s - (time.monotonic() - began_s))
    encoded, encode_problem = _tried(Engine.NVENC, NVENC_CASES, visible, streams, left_s, run=run)
    return (*decoded, *encoded), tuple(problem for problem in (decode_problem, encode_problem) if problem)


def smoke(
    engine: Engine,
    visible: str,
    trials: Sequence[Trial],
    streams: Mapping[str, TrialStream],
    limit_s: float,
    *,
    run: RunChild,
) -> Trial | None:
    """Try one frame on a device, with a case that works in the kind's ``trials``; return None if no case works."""
    known = {trial.case for trial in trials if trial.engine is engine and trial.works}
    cases = NVENC_CASES if engine is Engine.NVENC else [each for each in NVDEC_CASES if each.name in streams]
    sample = next((each for each in cases if each.case(_DIRECTION[engine]) in known), None)
    if sample is None:
        return None
    found, problem = _tried(engine, (sample,), visible, streams, limit_s, run=run)
    return found[0] if found else _trial(engine, sample, Fault(None, problem or "no answer"))


def _tried(
    engine: Engine,
    samples: Sequence[Sample],
    visible: str,
    streams: Mapping[str, TrialStream],
    limit_s: float,
    *,
    run: RunChild,
) -> tuple[list[Trial], str]:
    decodes = engine is Engine.NVDEC

    def arguments(left: tuple[str, ...]) -> dict[str, Any]:
        sent = {"streams": {name: streams[name] for name in left if name in streams}} if decodes else {}
        return {"names": left, **sent}

    outcome = try_cases(
        try_nvdec if decodes else try_nvenc,
        [sample.name for sample in samples],
        arguments,
        limit_s,
        environment={"CUDA_VISIBLE_DEVICES": visible},
        run=run,
    )
    died = {case: _trial(engine, BY_NAME[case], fault_of_death(death)) for case, death in outcome.deaths.items()}
    trials = outcome.results | died
    untried = len(outcome.untried)
    problem = f"{untried} cases of {engine.name} were not tried: {decode_fault(outcome.problem).reason}"
    return [trials[each.name] for each in samples if each.name in trials], problem if untried else ""


def _trial(
    engine: Engine,
    sample: Sample,
    fault: Fault | None,
    how: How = How.TRIED,
    *,
    caps: Mapping[str, Any] = MappingProxyType({}),
) -> Trial:
    return Trial(
        case=sample.case(_DIRECTION[engine]),
        engine=engine,
        implementation=engine.value,
        works=fault is None,
        how=how,
        profile=sample.profile,
        max_width=caps.get("width_max") or None,
        max_height=caps.get("height_max") or None,
        engines=caps.get("num_decoder_engines" if engine is Engine.NVDEC else "num_encoder_engines"),
        reason="" if fault is None else fault.reason,
        fix="" if fault is None else fault.fix,
    )


def try_nvdec(
    names: Sequence[str],
    streams: Mapping[str, TrialStream],
    limit_s: float,
    *,
    nvc: Any = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[str | tuple[str, Trial]]:
    """Query and try decoder cases on CUDA's device 0; runs in a child process.

    ``nvc`` is the PyNvVideoCodec module, or a substitute.
    """
    nvc = nvc or _package()
    ends_s = clock() + limit_s * _TRY_UNTIL
    for name in names:
        yield name
        sample, stream, how = BY_NAME[name], streams.get(name), How.ASKED
        caps, error = _attempt(partial(_decoder_caps, nvc, sample))
        fault = decode_fault(error) if error else None if caps.get("supported") else _NO_DECODER
        if fault is None and stream is not None and clock() < ends_s:
            how = How.TRIED
            wrong, error = _attempt(partial(_wrong, nvc, sample, stream))
            fault = decode_fault(error) if error else wrong
        yield name, _trial(Engine.NVDEC, sample, fault, how, caps=caps)


def _package() -> Any:
    import PyNvVideoCodec

    return PyNvVideoCodec


def _attempt(action: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of ``action`` and ""; after an error, an empty map and the error as text."""
    try:
        return action(), ""
    except Exception as error:  # noqa: BLE001 - the exception is the trial's result
        return {}, str(error) or type(error).__name__


def _decoder_caps(nvc: Any, sample: Sample) -> Any:
    return nvc.GetDecoderCaps(
        gpuid=0,
        codec=nvc.cudaVideoCodec(_CUDA_CODEC[sample.codec]),
        chromaformat=nvc.cudaVideoChromaFormat(_CUDA_CHROMA[sample.chroma]),
        bitdepth=sample.bit_depth,
    )


def _wrong(nvc: Any, sample: Sample, stream: TrialStream) -> Fault | None:
    decoder = nvc.CreateDecoder(gpuid=0, codec=nvc.cudaVideoCodec(_CUDA_CODEC[sample.codec]), usedevicememory=False)
    pictures: list[Luma] = []
    for data in [*stream.packets, b""]:  # an empty packet flushes the decoder
        held = np.frombuffer(data or b"\0", np.uint8)
        packet = nvc.PacketData()
        packet.bsl, packet.bsl_data = len(data), held.ctypes.data if data else 0
        # Copy the frames, because the next call overwrites the decoder's memory.
        pictures += [_luma(frame, sample.bit_depth) for frame in decoder.Decode(packet)]
    if len(pictures) != 1:
        return Fault(None, f"{len(pictures)} pictures came out instead of one", _WRONG_FIX)
    expected = np.frombuffer(stream.luma, np.uint16).reshape(TRIAL_HEIGHT, TRIAL_WIDTH)
    furthest = int(np.abs(pictures[0].astype(np.int32) - expected.astype(np.int32)).max())
    if furthest <= _INEXACT.get(sample.codec, 0):
        return None
    return Fault(
        None, f"its picture differs from the software decoder's picture by up to {furthest} per sample", _WRONG_FIX
    )


def _luma(frame: Any, bit_depth: int) -> Luma:
    """Copy the luma of a frame. Samples of more than 8 bits are in the high bits of 16-bit words."""
    samples = np.from_dlpack(frame).reshape(-1)
    luma = samples[: TRIAL_WIDTH * TRIAL_HEIGHT].reshape(TRIAL_HEIGHT, TRIAL_WIDTH).astype(np.uint16)
    return luma >> np.uint16(_CONTAINER_BITS - bit_depth) if bit_depth > BYTE_BITS else luma


def try_nvenc(
    names: Sequence[str], limit_s: float, *, nvc: Any = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[str | tuple[str, Trial]]:
    """Query and try encoder cases as ``try_nvdec`` does with decoder cases; software decodes the output.

    A device without an encoder is queried only once.
    """
    nvc = nvc or _package()
    ends_s = clock() + limit_s * _TRY_UNTIL
    asked: dict[MediaCodec, tuple[dict[str, Any], str]] = {}
    none_at_all = ""
    for name in names:
        sample, how = BY_NAME[name], How.ASKED
        yield name
        if sample.codec not in asked:
            ask = partial(nvc.GetEncoderCaps, gpuid=0, codec=sample.codec.value)
            asked[sample.codec] = ({}, none_at_all) if none_at_all else _attempt(ask)
        caps, error = asked[sample.codec]
        surface, capability = NVENC_SURFACES[sample.chroma, sample.bit_depth]
        supported = caps.get(capability) if capability else caps
        if not error and supported and clock() < ends_s:
            how = How.TRIED
            wrong, raised = _attempt(partial(_encoded, nvc, sample, surface))
            error = raised or wrong
        fault = encode_fault(error) if error else None if supported else _NO_FORMAT
        if fault is not None and is_whole_device(fault):
            none_at_all = error
        yield name, _trial(Engine.NVENC, sample, fault, how, caps=caps)


def _encoded(nvc: Any, sample: Sample, surface: str) -> str:
    """Encode the trial picture and decode it in software; return the fault, or ""."""
    usecpuinputbuffer = True
    encoder = nvc.CreateEncoder(
        TRIAL_WIDTH, TRIAL_HEIGHT, surface, usecpuinputbuffer, codec=sample.codec.value, gpu_id=0, bf=0
    )
    pieces = [*encoder.Encode(trial_surface(sample)), *encoder.EndEncode()]
    return difference_fault(decode_luma(sample, [bytes(piece["data"]) for piece in pieces]), sample)


def trial_surface(sample: Sample) -> NDArray[np.uint8]:
    """Return the trial picture in the input format of NVENC. PyNvVideoCodec does not check the picture's size."""
    shift = _CONTAINER_BITS - sample.bit_depth if sample.bit_depth > BYTE_BITS else 0
    grey = np.full((_CHROMA_ROWS[sample.chroma], TRIAL_WIDTH), 1 << (sample.bit_depth - 1), np.uint16)
    samples = np.concatenate([trial_luma(sample.bit_depth), grey]) << np.uint16(shift)
    return np.frombuffer(samples.astype(sample_type(sample.bit_depth)).tobytes(), np.uint8)


def decode_fault(message: str) -> Fault:
    """Translate a decoder's error message."""
    return _read(message, _DECODE)


def encode_fault(message: str) -> Fault:
    """Translate an encoder's error message."""
    return _read(message, _ENCODE)


def fault_of_death(death: ChildOutcome) -> Fault:
    """Translate the last output of a child process that ended during a trial."""
    found = _PRINTED_CODE.findall(death.said)
    code = next((int(text) for text in reversed(found) if int(text) in _DECODE), None)
    if code is None:
        return Fault(None, f"the trial crashed: {death.detail}", XID_FIX)
    reason, fix = _DECODE[code]
    return Fault(code, f"{reason} (error {code} ended the process)", fix)


def is_whole_device(fault: Fault) -> bool:
    """Whether an encoder's fault means that the device has no encoder."""
    return fault.code in _NO_ENCODER_CODES


def _read(message: str, table: dict[int, list[str]]) -> Fault:
    plain = " ".join(message.split())
    for sign, (reason, fix) in _TABLES["missing"].items():
        if sign in plain.lower():
            return Fault(None, reason, fix)
    found = _CODE.search(plain)
    code = int(found[1]) if found else None
    if code in table:
        reason, fix = table[code]
        return Fault(code, f"{reason} (error {code})", fix)
    return Fault(code, plain[:_DETAIL_CHARACTERS] or "it failed without a message")
