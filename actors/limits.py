"""Limits on the values that a source's headers state: larger values are refused before they take memory or time.

The job's own program checks every limit of a source; a worker only limits the size of the pictures that it decodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Final

from ..errors import InputTooLarge, UsageError

VARIABLE: Final = "CODECFLEET_"
"""The prefix of each environment variable; the name of the limit follows in capitals."""
_NO_END: Final = (1 << 31) - 1
"""The largest value that FFmpeg accepts for ``max_pixels`` and for ``max_streams``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLimits:
    """The largest accepted values of a source. docs/security.md has the reason for each default."""

    max_pixels: int = 16_384 * 8_704  # pixels of a picture: the most at any level of H.264, HEVC (7.2) or AV1 (7.3)
    max_frame_rate: int = 10_000  # nominal pictures a second
    max_duration_s: int = 100 * 3600  # the time from the start of a video track's first picture to the end of the last
    max_tracks: int = 1_000  # tracks of all kinds together
    max_packets: int = 50_000_000  # packets of one track; each packet of video takes 40 bytes of memory
    max_attachment_bytes: int = 64 << 20  # size of an attached file, such as a font
    max_pixels_per_byte: int = 20_000_000  # pixels in a video track, per byte of the source

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "InputLimits":
        """Return the limits that an environment sets; ``UsageError`` if a value is not a whole number above 0."""
        names = {each.name: f"{VARIABLE}{each.name.upper()}" for each in fields(cls)}
        given = {field: environment[name] for field, name in names.items() if environment.get(name)}
        for field, text in given.items():
            if not (text.isascii() and text.isdecimal() and int(text)):
                raise UsageError(f"{names[field]} is not a whole number above 0: {text}", "Correct or unset it.")
        return cls(**{field: int(text) for field, text in given.items()})

    @property
    def options(self) -> dict[str, str]:
        """Return FFmpeg's own limits for opening a source: one extra track is allowed, so that an excess is noticed."""
        return {"max_pixels": str(min(self.max_pixels, _NO_END)), "max_streams": str(min(self.max_tracks + 1, _NO_END))}

    def check_size(self, name: str, width: int, height: int) -> None:
        """Raise ``InputTooLarge`` if pictures of this size are too large."""
        self.check("max_pixels", width * height, f"{name} states pictures of {width}x{height}")

    def check(self, limit: str, found: int | Fraction, message: str) -> None:
        """Raise ``InputTooLarge`` with ``message`` if a value exceeds its limit."""
        most = getattr(self, limit)
        if found > most:
            raise InputTooLarge(f"{message}; {limit} allows {most}", self.advice(limit))

    @staticmethod
    def advice(limit: str) -> str:
        """Return advice for the user of a source that exceeds a limit."""
        return f"If you trust the source, set {VARIABLE}{limit.upper()}, or {limit} in the configuration."


NO_LIMITS: Final = InputLimits(**{each.name: 1 << 62 for each in fields(InputLimits)})
"""The limits for a source that was already checked."""
