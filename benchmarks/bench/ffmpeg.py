"""Finds the FFmpeg of imageio-ffmpeg, and runs it for unmeasured steps."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .failures import CommandFailed, command_failed

__all__ = [
    "QUIET",
    "NoFFmpeg",
    "ffmpeg_version",
    "find_ffmpeg",
    "has_encoder",
    "has_filter",
    "look_for_ffmpeg",
    "run_ffmpeg",
]

QUIET = ("-hide_banner", "-nostdin", "-loglevel", "error", "-y")


_NAMED_BY = "IMAGEIO_FFMPEG_EXE"
"""imageio-ffmpeg's variable for the path of an FFmpeg; here it works even if that package is not installed."""


class NoFFmpeg(CommandFailed):
    """There is no FFmpeg to compare with; the message is one line with the next step."""


def find_ffmpeg() -> str:
    """Return the path of the binary; if it is missing, end the program with a message on what to do."""
    try:
        return look_for_ffmpeg()
    except NoFFmpeg as error:
        sys.exit(str(error))


def look_for_ffmpeg(named: str | None = None) -> str:
    """Return the path of the binary: ``named``, or else that of imageio-ffmpeg.

    Raises:
        NoFFmpeg: the binary is missing.
    """
    found = shutil.which(named or os.environ.get(_NAMED_BY, ""))
    if found is not None:
        return found
    if named:
        raise NoFFmpeg(f"there is no program {named}")
    try:
        import imageio_ffmpeg  # noqa: PLC0415 - an optional extra, whose absence is handled
    except ImportError:
        message = "benchmarks compare with the FFmpeg of imageio-ffmpeg: pip install 'codecfleet[quality]'"
        raise NoFFmpeg(message) from None
    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        message = f"imageio-ffmpeg has no FFmpeg for this machine ({error}): set {_NAMED_BY} to the path of an FFmpeg"
        raise NoFFmpeg(message) from None


def run_ffmpeg(ffmpeg: str, arguments: Sequence[str], *, folder: Path | None = None, log_level: str = "error") -> str:
    """Run FFmpeg to its end and return its stderr.

    Raises:
        CommandFailed: FFmpeg failed.
    """
    command = [ffmpeg, *QUIET, "-loglevel", log_level, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace", cwd=folder)
    if done.returncode != 0:
        raise command_failed(command, done.returncode, done.stderr)
    return done.stderr


@cache
def has_filter(ffmpeg: str, name: str) -> bool:
    """Return whether this FFmpeg has a filter."""
    return _lists(ffmpeg, "-filters", name)


@cache
def has_encoder(ffmpeg: str, name: str) -> bool:
    """Return whether this FFmpeg has an encoder."""
    return _lists(ffmpeg, "-encoders", name)


def _lists(ffmpeg: str, option: str, name: str) -> bool:
    listing = subprocess.run([ffmpeg, "-hide_banner", option], check=True, capture_output=True, text=True).stdout
    return any(name in line.split()[1:2] for line in listing.splitlines())


def ffmpeg_version(ffmpeg: str) -> str:
    """Return the version as FFmpeg states it."""
    banner = subprocess.run([ffmpeg, "-version"], check=True, capture_output=True, text=True).stdout
    return banner.splitlines()[0].split()[2]
