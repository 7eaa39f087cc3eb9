"""Sets a session's number of threads when a segment starts, if the bytes do not depend on it (docs/speed.md)."""

import os
import re
from dataclasses import replace
from typing import Final

from .settings import Codec, EncoderSettings

MOST_THREADS: Final = {Codec.HEVC: 3, Codec.AV1: 2, Codec.VP9: 8}
"""With four or more, x265's lookahead changes, and the bytes with it. Each thread of SVT-AV1 takes much more memory
than placement counts for a session. More than eight threads of libvpx hardly help.
"""


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def with_threads(settings: EncoderSettings, threads: int) -> EncoderSettings:
    """Return a software encoder's settings with this number of threads, or the nearest with the same bytes."""
    if not settings.any_threads:
        return settings
    threads = max(1, min(threads, MOST_THREADS[settings.codec]))
    settings = replace(settings, threads=threads)
    if settings.codec is Codec.HEVC:
        return _with_parameter(settings, "x265-params", "pools", threads)
    if settings.codec is Codec.AV1:
        return _with_parameter(settings, "svtav1-params", "lp", threads)
    return settings


def _with_parameter(settings: EncoderSettings, key: str, name: str, value: int) -> EncoderSettings:
    options = dict(settings.options)
    options[key] = re.sub(rf"\b{name}=\d+", f"{name}={value}", options[key])
    return replace(settings, options=tuple(options.items()))
