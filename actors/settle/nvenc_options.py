"""Converts NVENC settings to text and back; explains refused keys."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from difflib import get_close_matches
from enum import Enum
from fractions import Fraction
from typing import Final, TypeAlias, get_args

from ...errors import Unsupported
from ..encode.nvenc_settings import Multipass, NvencSettings, Preset, Qp, RateMode, Tier, TimingInfo, TuningInfo
from ..encode.settings import Codec

NvencValue: TypeAlias = Enum | Fraction | Qp | TimingInfo | bool | int | str
"""A setting's value in Python, as ``read_option`` returns it."""

_AUTOMATIC: Final = "auto"
_OURS: Final = "codecfleet chooses the value for each session."
_DROPPED: Final = "PyNvVideoCodec silently drops it"
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(
        ("slice", "slice::mode", "slice::data", "sliceMode", "sliceModeData"),
        (_DROPPED, "There is no way to set slices; a software encoder has them."),
    ),
    "qmin": ("PyNvVideoCodec sets initqp instead", "Use qmax, initqp or cq."),
    "temporalAQ": (_DROPPED, "Write temporalaq."),
    **dict.fromkeys(
        ("timingInfo", "timingInfo::num_unit_in_ticks", "timingInfo::timescale"),
        (_DROPPED, "Write timinginfo=num_unit_in_ticks/timescale."),
    ),
    **dict.fromkeys(
        ("num_unit_in_ticks", "timescale"),
        ("the key is half of timinginfo", "Write timinginfo=num_unit_in_ticks/timescale."),
    ),
    "gpuid": (_DROPPED, "Leave the key out: a worker sees one GPU, which is number 0."),
    "gpu_id": ("a worker sees one GPU, which is number 0", "Set CUDA_VISIBLE_DEVICES to choose the GPU."),
    "cudacontext": ("the worker has its own context", _OURS),
    "cudastream": ("the worker has its own stream", _OURS),
    "max_res": ("PyNvVideoCodec cannot change the size of an open encoder", "Leave the key out."),
    "colorspace": (
        "the range to which the GPU converts RGB is not documented",
        "Give RGB frames and a matrix to codecfleet.encode, which converts them exactly.",
    ),
    "s": ("the key overrides the size of the pictures", "Use --scale."),
    "use_ivf_container": ("codecfleet chooses the layout of packets", "Leave the key out."),
    "global_header": ("the key is the package's name for repeatspspps=0", "Write repeatspspps=0."),
    "source_av_format_context": ("the key is the address of another library's structure", "Leave the key out."),
    "profile": (_DROPPED, "The driver chooses the profile by the surface format."),
    **dict.fromkeys(
        ("intrarefresh", "intra_refresh", "ltr", "split_encode", "bref_mode", "weighted_pred", "filler"),
        (_DROPPED, "There is no way to set this; leave the key out."),
    ),
    "targetquality": (_DROPPED, "Write cq."),
    "max_bitrate": (_DROPPED, "Write maxbitrate."),
    "tuning": (_DROPPED, "Write tuning_info."),
}
"""Refused keys: the reason, and what to do instead."""


def read_option(key: str, text: str) -> NvencValue:
    """Return the value that ``text`` states for the setting ``key``.

    Numbers are decimal, rates in bit/s and buffers in bits; three quantizers are ``P,B,I``; ``fps`` may be
    ``30000/1001``, ``timinginfo`` is ``1001/60000``, ``aq`` may be ``auto``, switches are 0 or 1.

    Raises:
        Unsupported: the key is refused or unknown, or the value is invalid; the message says which.
    """
    if key not in SETTINGS:
        raise _refusal(key)
    try:
        return SETTINGS[key](text)
    except (ValueError, ZeroDivisionError) as error:
        advice = "docs/nvenc.md lists each setting's values."
        for word in (text.upper(), text.lower()):
            with suppress(ValueError, ZeroDivisionError):
                SETTINGS[key](word)
                advice = f"Write {key}={word}."
        raise Unsupported(f"NVENC setting {key}={text}: {error}", advice) from None


def settings_to_options(settings: NvencSettings) -> tuple[tuple[str, str], ...]:
    """Return the sorted pairs that read back as ``settings``, without settings that are left to the preset."""
    found = [(name, getattr(settings, name)) for name in SETTINGS]
    return tuple(sorted((name, write_option(name, value)) for name, value in found if value is not None))


def write_option(key: str, value: NvencValue) -> str:
    """Return the text that reads back as ``value``."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Qp):
        return ",".join(map(str, value.values))
    if isinstance(value, TimingInfo):
        return f"{value.num_unit_in_ticks}/{value.timescale}"
    return _AUTOMATIC if (key, value) == ("aq", 0) else str(value)


def _refusal(key: str) -> Unsupported:
    if key in REFUSED:
        reason, step = REFUSED[key]
        return Unsupported(f"NVENC setting {key}: {reason}", step)
    near = key.lower() if key.lower() in SETTINGS else next(iter(get_close_matches(key, SETTINGS, n=1)), "")
    message = f"NVENC has no setting {key}: PyNvVideoCodec would silently drop it"
    return Unsupported(message, f"Write {near}." if near else f"It has {', '.join(SETTINGS)}.")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        hint = " (the package would read K and M as 1024 and 1024 x 1024)" if text[:-1].isdigit() else ""
        raise ValueError(f"not a whole number{hint}")
    return int(text)


def _strength(text: str) -> int:
    if text == "0":
        raise ValueError(f"the package takes 0 as automatic; write {_AUTOMATIC} instead")
    return 0 if text == _AUTOMATIC else _number(text)


def _quantizers(text: str) -> Qp:
    values = [_number(part.strip()) for part in text.split(",")]
    match values:
        case [every]:
            return Qp.same(every)
        case [predicted, bidirectional, intra]:
            return Qp(predicted, bidirectional, intra)
    raise ValueError("not one number or three")


def _timing(text: str) -> TimingInfo:
    units, slash, timescale = text.partition("/")
    if not slash:
        raise ValueError("not two numbers with / between them")
    return TimingInfo(_number(units), _number(timescale))


def _choice(kind: type[Enum]) -> Callable[[str], Enum]:
    def parse(text: str) -> Enum:
        found = next((member for member in kind if str(member.value) == text), None)
        if found is None:
            raise ValueError(f"not one of {', '.join(str(member.value) for member in kind)}")
        return found

    return parse


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("not 0 or 1")
    return text == "1"


def _rate(text: str) -> Fraction:
    head, _, tail = text.partition("/")
    return Fraction(_number(head), _number(tail) if tail else 1)


_PARSERS: Final[Mapping[object, Callable[[str], NvencValue]]] = {
    int: _number,
    bool: _switch,
    str: str,
    Fraction: _rate,
    Qp: _quantizers,
    TimingInfo: _timing,
    **{kind: _choice(kind) for kind in (Codec, Multipass, Preset, RateMode, Tier, TuningInfo)},
}


SETTINGS: Final = {
    # An optional field has a union type; its first member is the type other than None.
    **{entry.name: _PARSERS[next(iter(get_args(entry.type)), entry.type)] for entry in fields(NvencSettings)},
    "aq": _strength,
}
"""Every setting's name, and the parser of its text."""
