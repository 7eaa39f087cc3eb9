"""What NVIDIA's codecs say when they refuse, as a reason and a fix in a sentence each.

PyNvVideoCodec raises one exception for all faults; its message holds ``Error code : N`` or ``returned error N``, where
N is a CUresult for decoders and an NVENCSTATUS for encoders. A decoder whose CUDA context cannot be made does not
raise: it logs a FATAL line and ends the process, so the same reading serves what a dead child printed.
"""

import re
from dataclasses import dataclass
from typing import Final

from .child import ChildOutcome

_CODE: Final = re.compile(r"(?:error code\s*:|returned error)\s*(\d+)", re.IGNORECASE)
_PRINTED_CODE: Final = re.compile(r"error[^0-9\n]{0,12}(\d{1,3})\b", re.IGNORECASE)
_DETAIL_CHARACTERS: Final = 160

CONTAINER_FIX: Final = (
    "start the container with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility, "
    "and let CUDA_VISIBLE_DEVICES choose"
)
VIDEO_FIX: Final = (
    "install the driver's codec libraries; in a container: -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"
)
XID_FIX: Final = "look for Xid lines: sudo dmesg | grep Xid"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an engine did not do a case. ``code`` is the library's own number, None where it gave none."""

    code: int | None
    reason: str
    fix: str = ""


_DECODE: Final = {
    2: ("the GPU's memory does not hold one more decoder", "free GPU memory: end other processes on this device"),
    3: ("the decoder was never made: an earlier fault on this device", ""),
    100: ("no CUDA device answers, although NVML shows one", CONTAINER_FIX),
    201: ("the CUDA context is not usable", "end processes that hang on this device, then codecfleet doctor --fresh"),
    222: ("the driver is too old for this build of PyNvVideoCodec", "install a driver from R570 on"),
    304: ("the operating system refused a call of the driver", CONTAINER_FIX),
    801: ("this GPU has no decoder for it", ""),
    803: (
        "the CUDA library and the kernel driver do not belong together",
        "restart the machine after a driver upgrade, or take the compat folder out of LD_LIBRARY_PATH",
    ),
    804: (
        "forward compatibility was tried on hardware that does not have it",
        "take the compat folder out of LD_LIBRARY_PATH and ld.so.conf, and install a newer driver instead",
    ),
    999: ("the driver gave up with an unknown error", XID_FIX),
}
"""By CUresult (CUDA driver API, "CUresult")."""

_ENCODE: Final = {
    1: ("this GPU has no encoder", ""),
    2: ("this GPU has no encoder", ""),
    5: ("the encoder does not know this device", ""),
    8: ("the encoder does not take these parameters", ""),
    10: (
        "no more encoder sessions, or no memory for one: the driver says the same for both",
        "close other encoder sessions on this machine, or free GPU memory",
    ),
    12: ("the encoder does not have this sample format", ""),
    15: (
        "the driver's encoder interface is older than this build of PyNvVideoCodec",
        "install a driver from R570 on, which has interface 13.0",
    ),
    21: ("the driver refused the client key", 'reinstall PyNvVideoCodec: pip install "codecfleet[nvidia]"'),
}
"""By NVENCSTATUS (Video Codec SDK, nvEncodeAPI.h)."""

_NO_ENCODER_CODES: Final = (1, 2, 5)
_NO_LIBRARY: Final = (
    ("libnvcuvid", "libnvcuvid.so.1 is not there", VIDEO_FIX),
    ("libnvidia-encode", "libnvidia-encode.so.1 is not there", VIDEO_FIX),
    ("driver version is too old", "the driver is too old for PyNvVideoCodec", "install a driver from R570 on"),
    ("no module named", "PyNvVideoCodec is not installed", 'pip install "codecfleet[nvidia]"'),
)


def decode_fault(message: str) -> Fault:
    """Read what a decoder's exception says."""
    return _read(message, _DECODE)


def encode_fault(message: str) -> Fault:
    """Read what an encoder's exception says."""
    return _read(message, _ENCODE)


def fault_of_death(death: ChildOutcome) -> Fault:
    """Read what a child printed before it ended: the codec library ends the process when CUDA does not start."""
    found = _PRINTED_CODE.findall(death.said)
    code = next((int(text) for text in reversed(found) if int(text) in _DECODE), None)
    if code is None:
        return Fault(None, f"trying it ended its process: {death.detail}", XID_FIX)
    reason, fix = _DECODE[code]
    return Fault(code, f"{reason} (error {code} ended the process)", fix)


def is_whole_device(fault: Fault) -> bool:
    """Return whether an encoder's fault says that the device has no encoder at all."""
    return fault.code in _NO_ENCODER_CODES


def _read(message: str, table: dict[int, tuple[str, str]]) -> Fault:
    plain = " ".join(message.split())
    for sign, reason, fix in _NO_LIBRARY:
        if sign in plain.lower():
            return Fault(None, reason, fix)
    found = _CODE.search(plain)
    code = int(found[1]) if found else None
    if code in table:
        reason, fix = table[code]
        return Fault(code, f"{reason} (error {code})", fix)
    return Fault(code, plain[:_DETAIL_CHARACTERS] or "it failed without a word")
