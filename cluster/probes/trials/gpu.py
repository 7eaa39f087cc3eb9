"""Tries NVDEC and NVENC with one real frame per case, through PyNvVideoCodec, in child processes.

A case is decoded from a bitstream that software made in the same run, and works only if the picture is software's own.
The child sees one device: PyNvVideoCodec's capability calls always ask CUDA's device 0, whatever device they are told.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..child.trial_errors import Fault, decode_fault, encode_fault, fault_of_death, is_whole_device
from ..child.trials import CaseResult, RunChild, try_cases
from ..report.engines import Direction, Engine, How, MediaCodec, Trial
from .cases import NVDEC_CASES, NVENC_CASES, TRIAL_HEIGHT, TRIAL_WIDTH, NvencCase, Sample
from .software import DIFFERENCE_MAX, TrialStream, decode_luma, mean_difference, trial_luma

_CUDA_CODEC: Final = {
    MediaCodec.MPEG2: 1,
    MediaCodec.MPEG4: 2,
    MediaCodec.VC1: 3,
    MediaCodec.H264: 4,
    MediaCodec.JPEG: 5,
    MediaCodec.HEVC: 8,
    MediaCodec.VP8: 9,
    MediaCodec.VP9: 10,
    MediaCodec.AV1: 11,
}
"""cudaVideoCodec's values (Video Codec SDK, cuviddec.h)."""
_CUDA_CHROMA: Final = {"4:0:0": 0, "4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
_INEXACT: Final = {MediaCodec.MPEG2: 2, MediaCodec.MPEG4: 2, MediaCodec.JPEG: 2}
"""Where the standard leaves the inverse transform's rounding open: by how many steps one sample may differ."""
_CONTAINER_BITS: Final = 16
_DECODE_SHARE: Final = 0.7
_DIRECTION: Final = {Engine.NVDEC: Direction.DECODE, Engine.NVENC: Direction.ENCODE}
_TRY_UNTIL: Final = 0.75
"""The part of a child's time after which it only asks, and tries no more."""


def trials_of_device(
    visible: str, streams: Mapping[str, TrialStream], limit_s: float, *, run: RunChild
) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """Try the whole matrix on one device within ``limit_s``; return the trials and what could not be tried.

    ``visible`` is what CUDA_VISIBLE_DEVICES takes; ``streams`` are software's bitstreams by the sample's name.
    """
    decode_s = limit_s * _DECODE_SHARE
    began_s = time.monotonic()
    decoded, decode_problem = _decode(NVDEC_CASES, visible, streams, decode_s, run)
    if not decoded:
        return (), (decode_problem,) if decode_problem else ()  # what stops one of them stops both
    left_s = max(limit_s - decode_s, limit_s - (time.monotonic() - began_s))
    encoded, encode_problem = _encode([case.sample for case in NVENC_CASES], visible, left_s, run)
    return (*decoded, *encoded), tuple(problem for problem in (decode_problem, encode_problem) if problem)


def smoke_decode(
    visible: str,
    trials: Sequence[Trial],
    streams: Mapping[str, TrialStream],
    limit_s: float,
    *,
    run: RunChild,
) -> Trial | None:
    """Decode one frame on a device whose kind is known by ``trials``; None where its kind decodes nothing."""
    sample = _first_known(Engine.NVDEC, (each for each in NVDEC_CASES if each.name in streams), trials)
    if sample is None:
        return None
    return _only(Engine.NVDEC, sample, _decode((sample,), visible, streams, limit_s, run))


def smoke_encode(visible: str, trials: Sequence[Trial], limit_s: float, *, run: RunChild) -> Trial | None:
    """Encode one frame on a device whose kind is known by ``trials``; None where its kind encodes nothing."""
    sample = _first_known(Engine.NVENC, (case.sample for case in NVENC_CASES), trials)
    if sample is None:
        return None
    return _only(Engine.NVENC, sample, _encode((sample,), visible, limit_s, run))


def _first_known(engine: Engine, samples: Iterable[Sample], trials: Sequence[Trial]) -> Sample | None:
    """Return the most important sample that an engine of this kind of device does."""
    known = {trial.case for trial in trials if trial.engine is engine and trial.works}
    return next((sample for sample in samples if sample.case(_DIRECTION[engine]) in known), None)


def _only(engine: Engine, sample: Sample, tried: tuple[list[Trial], str]) -> Trial:
    found, problem = tried
    return found[0] if found else _trial(engine, sample, {}, Fault(None, problem or "no answer"))


def _encode(samples: Sequence[Sample], visible: str, limit_s: float, run: RunChild) -> tuple[list[Trial], str]:
    by_name = {sample.name: sample for sample in samples}

    def arguments(left: tuple[str, ...], remaining_s: float) -> dict[str, Any]:
        return {"names": list(left), "limit_s": remaining_s}

    return _tried(Engine.NVENC, by_name, arguments, visible, limit_s, run=run)


def _decode(
    samples: Sequence[Sample], visible: str, streams: Mapping[str, TrialStream], limit_s: float, run: RunChild
) -> tuple[list[Trial], str]:
    by_name = {sample.name: sample for sample in samples}

    def arguments(left: tuple[str, ...], remaining_s: float) -> dict[str, Any]:
        return {"cases": [_decode_case(by_name[name], streams.get(name)) for name in left], "limit_s": remaining_s}

    return _tried(Engine.NVDEC, by_name, arguments, visible, limit_s, run=run)


def _tried(
    engine: Engine,
    samples: Mapping[str, Sample],
    arguments: Callable[[tuple[str, ...], float], Mapping[str, Any]],
    visible: str,
    limit_s: float,
    *,
    run: RunChild,
) -> tuple[list[Trial], str]:
    """Try samples by name on one device; return the trials and what could not be tried."""
    environment = {"CUDA_VISIBLE_DEVICES": visible}
    outcome = try_cases(
        try_nvdec if engine is Engine.NVDEC else try_nvenc,
        tuple(samples),
        arguments,
        limit_s,
        environment=environment,
        run=run,
    )
    untried = len(outcome.untried)
    problem = f"{untried} cases of {engine.name} were not tried: {decode_fault(outcome.problem).reason}"
    trials = [
        _trial(engine, samples[result.case], result.values or {}, _fault(engine, result)) for result in outcome.results
    ]
    return trials, problem if untried else ""


def _decode_case(sample: Sample, stream: TrialStream | None) -> dict[str, Any]:
    return {
        "case": sample.name,
        "codec": _CUDA_CODEC[sample.codec],
        "chroma": _CUDA_CHROMA[sample.chroma],
        "bit_depth": sample.bit_depth,
        "difference_max": _INEXACT.get(sample.codec, 0),
        "packets": [] if stream is None else list(stream.packets),
        "luma": b"" if stream is None else stream.luma,
    }


def _trial(engine: Engine, sample: Sample, values: Mapping[str, Any], fault: Fault | None) -> Trial:
    return Trial(
        case=sample.case(_DIRECTION[engine]),
        engine=engine,
        implementation=engine.value,
        works=fault is None,
        how=How.TRIED if values.get("tried", True) else How.ASKED,
        profile=sample.profile,
        max_width=values.get("width_max") or None,
        max_height=values.get("height_max") or None,
        engines=values.get("engines"),
        reason="" if fault is None else fault.reason,
        fix="" if fault is None else fault.fix,
        took_s=values.get("took_s", 0.0),
    )


def _fault(engine: Engine, result: CaseResult) -> Fault | None:
    if result.death is not None:
        return fault_of_death(result.death)
    values, decodes = dict(result.values or {}), engine is Engine.NVDEC
    if values["fault"]:
        return decode_fault(values["fault"]) if decodes else encode_fault(values["fault"])
    if not values["supported"]:
        lacks = "this GPU has no decoder for it" if decodes else "this encoder does not have this sample format"
        return Fault(None, f"the driver says that {lacks}")
    if values.get("wrong"):
        return Fault(None, values["wrong"], "do not use this decoder; look for a newer driver")
    return None


def try_nvdec(cases: list[dict[str, Any]], limit_s: float) -> Iterator[dict[str, Any]]:
    """Ask for and try cases on CUDA's device 0, in a child process.

    Yields ``{"case"}``, then for each what ``_trial`` reads. Towards the end of its time it only asks.
    """
    import PyNvVideoCodec as nvc  # noqa: N813, PLC0415 - in the child: its import needs a driver

    return nvdec_answers(nvc, cases, limit_s)


def nvdec_answers(
    nvc: Any,
    cases: list[dict[str, Any]],
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[dict[str, Any]]:
    """Yield what ``try_nvdec`` does, of ``nvc``: PyNvVideoCodec, or what answers like it."""
    ends_s = clock() + limit_s * _TRY_UNTIL
    for case in cases:
        yield {"case": case["case"]}
        began_s = clock()
        answer: dict[str, Any] = {"case": case["case"], "tried": False, "fault": "", "wrong": ""}
        answer |= _decoder_caps(nvc, case)
        if answer["supported"] and case["packets"] and began_s < ends_s:
            answer |= {"tried": True, **_decoded(nvc, case)}
        yield answer | {"took_s": clock() - began_s}


def _decoder_caps(nvc: Any, case: dict[str, Any]) -> dict[str, Any]:
    try:
        caps = nvc.GetDecoderCaps(
            gpuid=0,
            codec=nvc.cudaVideoCodec(case["codec"]),
            chromaformat=nvc.cudaVideoChromaFormat(case["chroma"]),
            bitdepth=case["bit_depth"],
        )
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        fault = str(error) or type(error).__name__
        return {"supported": False, "engines": None, "width_max": 0, "height_max": 0, "fault": fault}
    return {
        "supported": bool(caps.get("supported")),
        "engines": caps.get("num_decoder_engines"),
        "width_max": caps.get("width_max", 0),
        "height_max": caps.get("height_max", 0),
    }


def _decoded(nvc: Any, case: dict[str, Any]) -> dict[str, Any]:
    try:
        decoder = nvc.CreateDecoder(gpuid=0, codec=nvc.cudaVideoCodec(case["codec"]), usedevicememory=False)
        pictures = []
        for data in [*case["packets"], b""]:  # an empty packet is the flush
            held = np.frombuffer(data or b"\0", np.uint8)
            packet = nvc.PacketData()
            packet.bsl, packet.bsl_data = len(data), held.ctypes.data if data else 0
            # The next call overwrites a frame's memory.
            pictures += [_luma(frame, case["bit_depth"]) for frame in decoder.Decode(packet)]
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"fault": str(error) or type(error).__name__}
    return {"wrong": _wrong(pictures, case)}


def _luma(frame: Any, bit_depth: int) -> NDArray[np.uint16]:
    """Copy a frame's luma; above 8 bits the samples lie in the high bits of 16."""
    samples = np.from_dlpack(frame).reshape(-1)
    luma = samples[: TRIAL_WIDTH * TRIAL_HEIGHT].reshape(TRIAL_HEIGHT, TRIAL_WIDTH).astype(np.uint16)
    return luma >> np.uint16(_CONTAINER_BITS - bit_depth) if bit_depth > 8 else luma  # noqa: PLR2004 - a byte


def _wrong(pictures: list[NDArray[np.uint16]], case: dict[str, Any]) -> str:
    if len(pictures) != 1:
        return f"{len(pictures)} pictures came out instead of one"
    expected = np.frombuffer(case["luma"], np.uint16).reshape(TRIAL_HEIGHT, TRIAL_WIDTH)
    furthest = int(np.abs(pictures[0].astype(np.int32) - expected.astype(np.int32)).max())
    if furthest > case["difference_max"]:
        return f"its picture is not software's: samples differ by up to {furthest}"
    return ""


def try_nvenc(names: list[str], limit_s: float) -> Iterator[dict[str, Any]]:
    """Ask for and try encoder cases on CUDA's device 0, in a child process; software reads what comes out.

    Yields ``{"case"}``, then for each what ``_trial`` reads. A device without an encoder is asked once.
    """
    import PyNvVideoCodec as nvc  # noqa: N813, PLC0415 - in the child: its import needs a driver

    return nvenc_answers(nvc, names, limit_s)


def nvenc_answers(
    nvc: Any,
    names: list[str],
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[dict[str, Any]]:
    """Yield what ``try_nvenc`` does, of ``nvc``: PyNvVideoCodec, or what answers like it."""
    ends_s = clock() + limit_s * _TRY_UNTIL
    by_name = {case.sample.name: case for case in NVENC_CASES}
    caps: dict[MediaCodec, dict[str, Any]] = {}
    none_at_all = ""
    for name in names:
        case, began_s = by_name[name], clock()
        yield {"case": name}
        answer: dict[str, Any] = {"case": name, "tried": False, "fault": none_at_all}
        if case.sample.codec not in caps:
            caps[case.sample.codec] = {"fault": none_at_all} if none_at_all else _encoder_caps(nvc, case.sample.codec)
        answer |= _asked(caps[case.sample.codec], case)
        if answer["supported"] and began_s < ends_s:
            answer |= {"tried": True, "fault": _encoded(nvc, case)}
        if is_whole_device(encode_fault(answer["fault"])):
            none_at_all = answer["fault"]
        yield answer | {"took_s": clock() - began_s}


def _encoder_caps(nvc: Any, codec: MediaCodec) -> dict[str, Any]:
    try:
        return dict(nvc.GetEncoderCaps(gpuid=0, codec=codec.value))
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"fault": str(error) or type(error).__name__}


def _asked(caps: dict[str, Any], case: NvencCase) -> dict[str, Any]:
    fault = caps.get("fault", "")
    supported = bool(caps) and not fault and (not case.capability or bool(caps.get(case.capability)))
    return {
        "fault": fault,
        "supported": supported,
        "engines": caps.get("num_encoder_engines"),
        "width_max": caps.get("width_max", 0),
        "height_max": caps.get("height_max", 0),
    }


def _encoded(nvc: Any, case: NvencCase) -> str:
    """Encode the ramp and decode it in software; return what was wrong, "" when nothing was."""
    sample = case.sample
    try:
        encoder = nvc.CreateEncoder(
            TRIAL_WIDTH,
            TRIAL_HEIGHT,
            case.surface,
            True,  # noqa: FBT003 - the package's own order
            codec=sample.codec.value,
            gpu_id=0,
            bf=0,
        )
        pieces = [*encoder.Encode(surface(case)), *encoder.EndEncode()]
        packets = [bytes(piece["data"]) for piece in pieces]
        far = mean_difference(decode_luma(sample, packets), trial_luma(sample.bit_depth), sample)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return str(error) or type(error).__name__
    return f"the picture came out wrong: {far:.1f} steps off on average" if far > DIFFERENCE_MAX else ""


def surface(case: NvencCase) -> NDArray[np.uint8]:
    """Return the trial picture as bytes in NVENC's input format: the package takes host memory unchecked."""
    sample = case.sample
    shift = _CONTAINER_BITS - sample.bit_depth if sample.bit_depth > 8 else 0  # noqa: PLR2004 - a byte
    rows = {"4:2:0": TRIAL_HEIGHT // 2, "4:2:2": TRIAL_HEIGHT, "4:4:4": 2 * TRIAL_HEIGHT}[sample.chroma]
    grey = np.full((rows, TRIAL_WIDTH), 1 << (sample.bit_depth - 1), np.uint16)
    samples = np.concatenate([trial_luma(sample.bit_depth), grey]) << np.uint16(shift)
    kind = np.dtype("<u2") if sample.bit_depth > 8 else np.dtype(np.uint8)  # noqa: PLR2004 - a byte
    return np.frombuffer(samples.astype(kind).tobytes(), np.uint8)
