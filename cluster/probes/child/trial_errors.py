"""Translates error messages of NVIDIA's codecs into a reason and a fix.

PyNvVideoCodec raises one exception for all faults; its message contains a CUresult for decoders, an NVENCSTATUS for
encoders. A decoder that cannot create a CUDA context ends the process instead, so the output of a dead child is also
read.
"""

import re
from dataclasses import dataclass
from typing import Final

from ..report.tables import read_tables
from .child import ChildOutcome

_CODE: Final = re.compile(r"(?:error code\s*:|returned error)\s*(\d+)", re.IGNORECASE)
_PRINTED_CODE: Final = re.compile(r"error[^0-9\n]{0,12}(\d{1,3})\b", re.IGNORECASE)
_DETAIL_CHARACTERS: Final = 160

XID_FIX: Final = "look for Xid lines: sudo dmesg | grep Xid"


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an engine failed a case."""

    code: int | None  #: the error code of the library, if the message contains one
    reason: str
    fix: str = ""


_TABLES: Final = read_tables("trials.toml")
_DECODE: Final = {int(code): row for code, row in _TABLES["decode_errors"].items()}
_ENCODE: Final = {int(code): row for code, row in _TABLES["encode_errors"].items()}
_NO_ENCODER_CODES: Final = (1, 2, 5)


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
