"""Maps the failures of PyNvVideoCodec's encoder to codecfleet's errors.

The package raises one exception for all faults. Its text has ``Error code : N`` or ``returned error N``: N is an
NVENCSTATUS for functions ``nvEnc...``, otherwise a CUresult. Status 10 means one session too many, or too little
memory; the free memory and the number of open encoders decide which. Sources: nvEncodeAPI.h (NVENCSTATUS); CUDA driver
API (CUresult).
"""

import re
from dataclasses import dataclass
from typing import Final

from ....errors import CodecfleetError, DeviceLost, DeviceMemory, EngineFailed, EngineUnfit, SessionLimit
from ..cuda.results import FATAL_RESULTS, kind_of_result, result_named


@dataclass(frozen=True, slots=True)
class EncoderEvidence:
    """Facts about the device and its encoders, taken when an encoder fails."""

    opening: bool  # whether the encoder was being opened
    own_sessions: int  # how many encoders this process has open
    needed_bytes: int  # an estimate of one encoder's memory
    free_bytes: int | None = None  # None if unknown


_CODE: Final = re.compile(r"(?:error code\s*:|returned error|error code)\s*(\d+)", re.IGNORECASE)
_CUDA: Final = re.compile(r"\bcu[A-Z]\w+\s*\(|CUDA(?: driver API)? error", re.ASCII)
_ENCODER: Final = re.compile(r"nvEnc[A-Z]|NvEncoder|NvEncodeAPI|NV_ENC_ERR", re.ASCII)
_DETAIL_CHARACTERS: Final = 200

_OUT_OF_MEMORY, _CLIENT_KEY, _OLD_INTERFACE = 10, 21, 15
_NO_ENGINE: Final = {
    1: "this GPU has no encoder",
    2: "this GPU has no encoder",
    22: "this GPU's encoder lacks a requested feature",
}
_REFUSED: Final = {
    8: "the encoder refuses these settings",
    12: "the encoder lacks these settings or this format",
    _CLIENT_KEY: "the driver refuses this build of PyNvVideoCodec",
}
_GONE: Final = {3: "the device has no encoder", 4: "the device is not valid", 5: "the device is gone"}
_BUSY: Final = {13: "the bitstream is locked", 18: "the encoder is busy"}

_CUDA_NAME: Final = re.compile(r"CUDA_ERROR_([A-Z_]+)")

_NO_ENGINE_STEP: Final = "Use a GPU with NVENC (A100, A30, H100 and H200 have none), or --encoder software."
_FREE_STEP: Final = "Close other encoders on this GPU, or try again when they have finished."


def nvenc_error(error: BaseException, evidence: EncoderEvidence) -> CodecfleetError:
    """Return codecfleet's error for an error that PyNvVideoCodec raised, given the evidence."""
    text = str(error)
    detail = " ".join(text.split())[:_DETAIL_CHARACTERS]
    name = _CUDA_NAME.search(text)
    if name is not None:
        return _cuda_error(result_named(name[1]), detail)
    match = _CODE.search(text)
    if match is None:
        return _without_code(detail, evidence)
    code = int(match[1])
    if _CUDA.search(text) and not _ENCODER.search(text):
        return _cuda_error(code, detail)
    return _encoder_error(code, detail, evidence)


def _without_code(detail: str, evidence: EncoderEvidence) -> CodecfleetError:
    if "version" in detail.lower() and "driver" in detail.lower():
        return _old_driver(detail)
    if evidence.opening:
        return EngineUnfit(f"NVENC does not open: {detail}", "Use other settings, or a software encoder.")
    return EngineFailed(f"NVENC failed: {detail}", "Try again on another device.")


def _old_driver(detail: str) -> CodecfleetError:
    return EngineUnfit(
        f"the driver is too old for this PyNvVideoCodec: {detail}", "Install driver branch 570 or later."
    )


def _cuda_error(code: int | None, detail: str) -> CodecfleetError:
    """Return codecfleet's error for a CUresult; None if the error's name is unknown."""
    kind = EngineFailed if code is None else kind_of_result(code, EngineFailed)
    if kind is DeviceMemory:
        return DeviceMemory(f"the GPU has no memory for the encoder: {detail}", "Run fewer sessions on this GPU.")
    fatal = FATAL_RESULTS.get(code or 0)
    message = f"CUDA failed under NVENC{f', {fatal.why}' if fatal else ''}: {detail}"
    return kind(message, "Look for Xid lines in dmesg.")


def _encoder_error(code: int, detail: str, evidence: EncoderEvidence) -> CodecfleetError:
    if code == _OUT_OF_MEMORY or (code == _CLIENT_KEY and evidence.opening and evidence.own_sessions):
        return _session_or_memory(code, evidence)
    if code == _OLD_INTERFACE:
        return _old_driver(detail)
    if code in _GONE:
        return DeviceLost(f"NVENC: {_GONE[code]} (status {code})", "The worker is renewed.")
    if code in _NO_ENGINE:
        return EngineUnfit(f"{_NO_ENGINE[code]} (NVENC status {code})", _NO_ENGINE_STEP)
    if code in _REFUSED and evidence.opening:
        return EngineUnfit(
            f"{_REFUSED[code]} (NVENC status {code}): {detail}", "Use other settings, or a software encoder."
        )
    reason = _BUSY.get(code, "it failed")
    return EngineFailed(f"NVENC: {reason} (status {code}): {detail}", "Try again on another device.")


def _session_or_memory(code: int, evidence: EncoderEvidence) -> CodecfleetError:
    free, sessions = evidence.free_bytes, evidence.own_sessions
    short = free < evidence.needed_bytes if free is not None else sessions == 0
    counted = f"{sessions} encoders of this process are open, {_mebibytes(free)} are free and one encoder takes about "
    counted += _mebibytes(evidence.needed_bytes)
    # Only opening a session can exceed the limit; memory can run out at any time.
    if short or not evidence.opening:
        return DeviceMemory(f"the GPU has no memory for the encoder (NVENC status {code}): {counted}", _FREE_STEP)
    return SessionLimit(f"the driver opens no further encoder (NVENC status {code}): {counted}", _FREE_STEP)


def _mebibytes(size_bytes: int | None) -> str:
    return "unknown bytes" if size_bytes is None else f"{size_bytes / 2**20:.0f} MiB"
