"""Parses values from the command line and TOML files, exactly and never through a float.

Every parser takes the option's name, for the UsageError about a wrong value. Numbers have only ASCII digits: ``nan``,
``inf`` and ``1e9`` are refused.
"""

import os
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, Literal, TypeAlias, cast, get_args

from ...actors.encode.target import QualityMetric, QualityTarget
from ...errors import UsageError

Corner: TypeAlias = Literal["top-left", "top-right", "bottom-left", "bottom-right", "center"]  #: Places by name
_DECIMAL = r"[0-9]{1,18}(?:\.[0-9]{1,18})?"
_RATE = re.compile(rf"({_DECIMAL})([kKMG]?)")
_RATE_FACTORS: Final = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_RATE_MIN: Final = 1_000
_RATE_MAX: Final = 100_000_000_000
_SECONDS = re.compile(rf"({_DECIMAL}|[0-9]{{1,18}}/[1-9][0-9]{{0,17}})s?")
_CLOCK = re.compile(r"(?:([0-9]{1,6}):)?([0-9]{1,6}):([0-9]{1,2}(?:\.[0-9]{1,18})?)")
_SIXTY: Final = 60
_TIME_MAX_S: Final = 10_000 * 3600
_SIZE = re.compile(r"([0-9]{1,6})[xX]([0-9]{1,6})")
_RATIO = re.compile(r"([0-9]{1,6})[:/]([0-9]{1,6})")
_REGION = re.compile(r"([0-9]{1,6}):([0-9]{1,6}):([0-9]{1,6}):([0-9]{1,6})")
_PLACE = re.compile(r"([0-9]{1,5}),([0-9]{1,5})")
_HEIGHT = re.compile(r"([0-9]{1,6})p")
SIDE_MAX: Final = 65_536  #: The longest side of a picture
TERM_MAX: Final = (1 << 31) - 1  #: FFmpeg's rationals have terms of 32 bits (libavutil, rational.h)
_GRID_MAX: Final = 1_000
_COUNT = re.compile(r"[0-9]{1,18}")
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:-[A-Za-z0-9]{1,8}){0,3}")  #: The part of BCP 47's syntax that is accepted
_TRACK_MAX: Final = 65_535
_LOUDNESS = re.compile(r"-[0-9]{1,2}(?:\.[0-9])?")
LOUDNESS_MIN, LOUDNESS_MAX = -36, -5  #: The limits of a loudness in LUFS, far beyond the usual targets
_FRAME_RATE = re.compile(r"([0-9]{1,6})(?:/([0-9]{1,6}))?")
FPS_MIN, FPS_MAX = 1, 300  #: The limits of a frame rate; the maximum is also the limit for sources
_NUMBER = re.compile(r"-?[0-9]{1,9}(?:\.[0-9]{1,18})?")
_CHANNELS: Final = 3
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_SHOWN_CHARACTERS: Final = 60


def parse_rate(name: str, text: str) -> int:
    """Return the bits of ``4M`` (4,000,000), ``800k`` or ``2.5M``: a whole number from 1,000 to 100 G."""
    return _amount(name, text, "rate in bits", "bits")


def parse_bytes(name: str, text: str) -> int:
    """Return the bytes of ``700M`` (700,000,000), ``4G`` or ``1.5G``: a whole number from 1,000 to 100 G."""
    return _amount(name, text, "size in bytes", "bytes")


def _amount(name: str, text: str, what: str, unit: str) -> int:
    match, how = _RATE.fullmatch(text), f"Write 4M, 800k, 2.5M or a plain number of {unit}."
    if match is None:
        raise refusal(name, text, f"not a {what}", how)
    amount = Fraction(match[1]) * _RATE_FACTORS[match[2]]
    if amount.denominator != 1:
        raise refusal(name, text, f"not a whole number of {unit}", how)
    if not _RATE_MIN <= amount <= _RATE_MAX:
        raise refusal(name, text, f"out of range ({_RATE_MIN} to 100G)", f"4M means 4,000,000 {unit}.")
    return int(amount)


def parse_target(name: str, text: str) -> str:
    """Return a target quality as ``QualityTarget`` writes it: ``xpsnr:42``, ``ssim:0.98:p5``, ``psnr:40:crf18-35``."""
    try:
        return str(QualityTarget.parse(text))
    except UsageError as error:
        raise UsageError(f"{name} {error.message}", error.next_step) from None


def parse_title(name: str, text: str) -> str:
    """Return the metric, with its value if one is given, by which a ladder is chosen: ``xpsnr``, ``vmaf:94``."""
    if text in set(QualityMetric):
        return text
    if text.count(":") != 1:
        raise UsageError(f"{name} takes a metric and at most one value, not {text[:60]!r}", "Write xpsnr or vmaf:94.")
    return parse_target(name, text)


def parse_time(name: str, text: str) -> Fraction:
    """Return the seconds of ``text``, exactly; at most 10,000 hours.

    ``text`` is a decimal number or a fraction of seconds (``90``, ``90.25s``, ``1001/30``), or a clock time (``1:30``,
    ``00:01:30.5``).
    """
    how = "Write seconds (90, 90.25s, 1001/30) or a clock time (1:30, 00:01:30.5)."
    seconds = _clock_s(text)
    if seconds is None:
        raise refusal(name, text, "not a time", how)
    if seconds > _TIME_MAX_S:
        raise refusal(name, text, "over 10,000 hours", how)
    return seconds


def _clock_s(text: str) -> Fraction | None:
    if (plain := _SECONDS.fullmatch(text)) is not None:
        return Fraction(plain[1])
    clock = _CLOCK.fullmatch(text)
    if clock is None:
        return None
    hours, minutes, seconds = int(clock[1] or 0), int(clock[2]), Fraction(clock[3])
    if seconds >= _SIXTY or (clock[1] is not None and minutes >= _SIXTY):
        return None
    return hours * 3600 + minutes * 60 + seconds


def parse_size(name: str, text: str) -> tuple[int | None, int]:
    """Return (width, height) of ``1280x720``, or (None, height) of ``720p``; a side is 1 to 65,536."""
    if (height := _HEIGHT.fullmatch(text)) is not None:
        sides: tuple[int | None, int] = (None, int(height[1]))
    elif (both := _SIZE.fullmatch(text)) is not None:
        sides = (int(both[1]), int(both[2]))
    else:
        raise refusal(name, text, "not a picture size", "Write WIDTHxHEIGHT (1280x720) or a height (720p).")
    if not all(side is None or 0 < side <= SIDE_MAX for side in sides):
        raise refusal(name, text, f"out of range (1 to {SIDE_MAX} a side)", "Write 1280x720 or 720p.")
    return sides


def parse_track(name: str, text: str) -> int | str:
    """Return a track's number, counted from 0, or its language, such as ``eng``."""
    if _COUNT.fullmatch(text) is not None and int(text) <= _TRACK_MAX:
        return int(text)
    if _LANGUAGE.fullmatch(text) is None:
        how = "Write the track's number, counted from 0, or its language as the file states it: eng."
        raise refusal(name, text, "neither a track's number nor a language", how)
    return text.lower()


def parse_crop(name: str, text: str) -> tuple[int, int, int, int] | Literal["auto"]:
    """Return (width, height, x, y) of ``1920:800:0:140``, or "auto"; a side is 1 to 65,536."""
    if text == "auto":
        return "auto"
    how = "Write WIDTH:HEIGHT:X:Y (1920:800:0:140), or auto."
    if (match := _REGION.fullmatch(text)) is None:
        raise refusal(name, text, "not a part of a picture", how)
    width, height, x, y = (int(each) for each in match.groups())
    if not (0 < width <= SIDE_MAX and 0 < height <= SIDE_MAX and max(x, y) <= SIDE_MAX):
        raise refusal(name, text, f"out of range (sides 1 to {SIDE_MAX}, X and Y at most {SIDE_MAX})", how)
    return width, height, x, y


def parse_pad(name: str, text: str) -> tuple[int, int] | Fraction:
    """Return (width, height) of ``1920x1080``, or the display shape ``16:9``; a side is 1 to 65,536."""
    how = "Write WIDTHxHEIGHT (1920x1080) or a display shape (16:9)."
    size = _SIZE.fullmatch(text)
    if (match := size or _RATIO.fullmatch(text)) is None:
        raise refusal(name, text, "not a picture size or shape", how)
    first, second = (int(each) for each in match.groups())
    if not (0 < first <= SIDE_MAX and 0 < second <= SIDE_MAX):
        raise refusal(name, text, f"out of range (1 to {SIDE_MAX} a side)", how)
    return (first, second) if size else Fraction(first, second)


def parse_place(name: str, text: str) -> tuple[int, int] | Corner:
    """Return (x, y) of ``20,30``, or the name of a corner or of the middle."""
    corners = get_args(Corner)
    if text in corners:
        return cast("Corner", text)
    if (match := _PLACE.fullmatch(text)) is None:
        raise refusal(name, text, "not a place in a picture", f"Write X,Y (20,30), {', '.join(corners)}.")
    return int(match[1]), int(match[2])


def parse_grid(name: str, text: str) -> tuple[int, int]:
    """Return (columns, rows) of ``10x8``, 1 to 1,000 each."""
    how = f"Write COLUMNSxROWS (10x10), 1 to {_GRID_MAX} each."
    match = _SIZE.fullmatch(text)
    if match is None:
        raise refusal(name, text, "not a grid", how)
    columns, rows = int(match[1]), int(match[2])
    if not (0 < columns <= _GRID_MAX and 0 < rows <= _GRID_MAX):
        raise refusal(name, text, "out of range", how)
    return columns, rows


def parse_loudness(name: str, text: str) -> Fraction:
    """Return the LUFS of ``-23`` or ``-16.5``, from -36 to -5."""
    how = "Write LUFS from -36 to -5, such as -23 (EBU R 128) or -16."
    if _LOUDNESS.fullmatch(text) is None:
        raise refusal(name, text, "not a loudness", how)
    if not LOUDNESS_MIN <= Fraction(text) <= LOUDNESS_MAX:
        raise refusal(name, text, "out of range", how)
    return Fraction(text)


def parse_frame_rate(name: str, text: str) -> Fraction:
    """Return an exact frame rate, such as ``25`` or ``30000/1001``; it must be from 1 to 300."""
    how = "Write a whole number or a fraction: 25, 24000/1001 (23.976), 30000/1001 (29.97), 60000/1001 (59.94)."
    match = _FRAME_RATE.fullmatch(text)
    if match is None or int(match[2] or 1) == 0:
        raise refusal(name, text, "not an exact frame rate", how)
    fps = Fraction(int(match[1]), int(match[2] or 1))
    if not FPS_MIN <= fps <= FPS_MAX:
        raise refusal(name, text, f"out of range ({FPS_MIN} to {FPS_MAX})", how)
    return fps


def parse_count(name: str, text: str, *, least: int = 0, most: int = 1_000_000) -> int:
    """Return the whole number in ``text``, from ``least`` to ``most``."""
    how = f"Write a whole number from {least} to {most}."
    if _COUNT.fullmatch(text) is None:
        raise refusal(name, text, "not a whole number", how)
    if not least <= int(text) <= most:
        raise refusal(name, text, "out of range", how)
    return int(text)


def parse_counts(name: str, texts: Sequence[str]) -> tuple[int, ...]:
    """Return the whole numbers in ``texts``, in the order given; no number may be repeated."""
    counts = tuple(parse_count(name, text, most=1_000) for text in texts)
    _refuse_repeats(name, [str(count) for count in counts])
    return counts


def parse_choice(name: str, text: str, choices: Sequence[str]) -> str:
    """Return ``text`` if it is one of ``choices``."""
    if text not in choices:
        raise refusal(name, text, "not an allowed value", f"Choose {', '.join(choices[:-1])} or {choices[-1]}.")
    return text


def parse_numbers(name: str, text: str) -> tuple[float, ...]:
    """Return the number in ``text``, or three numbers separated by commas: one for each channel of a picture."""
    parts = text.split(",")
    if len(parts) not in (1, _CHANNELS) or not all(_NUMBER.fullmatch(part) for part in parts):
        how = "Write for example 0.017 or 123.7,116.3,103.5."
        raise refusal(name, text, "not one number, or three separated by commas", how)
    return tuple(float(part) for part in parts)


def parse_pairs(name: str, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return (key, value) for each ``key=value``, in order; a key may occur once, and values may hold ``=`` signs."""
    pairs = []
    for text in texts:
        key, _, value = text.partition("=")
        if not value or _KEY.fullmatch(key) is None:
            raise refusal(name, text, "not of the form KEY=VALUE", "Write for example tune=film.")
        pairs.append((key, value))
    _refuse_repeats(name, [key for key, _ in pairs])
    return tuple(pairs)


def parse_path(name: str, text: str) -> str:
    """Return ``text`` if it can name a file, address or pixel format: not empty, no NUL, and not an option."""
    if not text.strip():
        raise UsageError(f"{name} is empty", "Write its name.")
    if "\0" in text:
        raise refusal(name, text, "not a name", "Leave the NUL character out.")
    if text.startswith("-") and name.startswith("-"):
        raise refusal(name, text, "an option, not a name", f"Write ./{text} if a file has that name.")
    return text


def _refuse_repeats(name: str, keys: Sequence[str]) -> None:
    for position, key in enumerate(keys):
        if key in keys[:position]:
            raise refusal(name, key, "given twice", "Give it once.")


def refusal(name: str, text: str, reason: str, how: str) -> UsageError:
    """Return the error for a wrong value ``text`` of ``name``, with the reason and how to write a value."""
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return UsageError(f"{name} {shown!r} is {reason}", how)


def is_ffmpeg_ratio(value: Fraction) -> bool:
    """Return whether FFmpeg can hold a positive ratio exactly."""
    return max(value.numerator, value.denominator) <= TERM_MAX


def location(name: str, value: object) -> str:
    """Return a path or URL as text. A program may pass a path object."""
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        raise UsageError(f"{name} is not a path: {value!r}", "Give a str or a pathlib.Path.")
    return path
