"""Compares frames by number, slice and time with those of an iteration, over the shared footage.

``make chosen`` runs it over all files, and exits with 1 if a frame differs or no file has frames.
"""

import argparse
import random
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

import codecfleet
from codecfleet import Frame
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.errors import (
    CodecfleetError,
    EngineFailed,
    EngineUnfit,
    FrameDamaged,
    InputError,
    NoVideoTrack,
    Unsupported,
)

from .damage import FOOTAGE, NOT_FOOTAGE

Facts = tuple[object, ...]
RANDOM_FRAMES: Final = 48
STEP: Final = 7
EVERY: Final = 6


def facts(frame: Frame) -> Facts:
    """Return what identifies a frame."""
    digest = picture_hash(frame.ticks, frame.to_video_frame())
    return digest, frame.source_index, frame.duration_s, frame.is_keyframe


def differences(path: Path, decoder: str, seed: int = 0, memory_bytes: int | None = None) -> list[str]:
    """Return which chosen frames differ from an iteration's. Raises InputError; Unsupported: the file has no frames."""
    with codecfleet.frames(path, decoder=decoder) as film:
        wanted = {frame.index: facts(frame) for frame in film}
    with codecfleet.frames(path, decoder=decoder, memory_bytes=memory_bytes) as film:
        count, times_s = len(film), film.times_s
        drawn = random.Random(seed)  # noqa: S311 - only picks the frames to compare
        some = [drawn.randrange(count) for _ in range(RANDOM_FRAMES)]
        moments = [times_s[0] + Fraction(drawn.random()) * (times_s[-1] - times_s[0]) for _ in range(RANDOM_FRAMES)]
        shown = [bisect_right(times_s, moment) - 1 for moment in moments]
        ways: dict[str, tuple[Iterable[Frame], Sequence[int]]] = {
            "at": (film.at(some), some),
            "slice": (film[1::STEP], range(count)[1::STEP]),
            "backwards": (film[::-STEP], range(count)[::-STEP]),
            "at_times": (film.at_times(moments), shown),
        }
        found = [
            f"{name}: {line}" for name, (frames, numbers) in ways.items() for line in _compared(frames, numbers, wanted)
        ]
    with codecfleet.frames(path, decoder=decoder, memory_bytes=memory_bytes, every=EVERY) as film:
        every = [wanted[number] for number in range(0, count, EVERY) if number in wanted]
        found += ["every: other frames"] if [facts(frame) for frame in film] != every else []
    return found


def _compared(frames: Iterable[Frame], numbers: Sequence[int], wanted: dict[int, Facts]) -> list[str]:
    """Compare frames with an iteration's; a frame that the iteration lacks ends the comparison."""
    left = iter(frames)
    found = []
    for number in numbers:
        try:
            frame = next(left)
        except FrameDamaged as error:
            return found if number not in wanted else [*found, f"frame {number}: {error}"]
        if facts(frame) != wanted.get(number):
            found.append(f"frame {number} differs")
    return found


def main() -> int:
    """Compare all files; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="files with this in their name")
    parser.add_argument("--decoder", default="software", choices=["software", "auto", "nvdec"])
    parser.add_argument("--seed", type=int, default=0, help="which frames are compared (default: %(default)s)")
    parser.add_argument("--memory-bytes", type=int, help="for frames decoded ahead (default: 2 GiB)")
    options = parser.parse_args()
    is_wrong, is_compared = False, False
    for path in sorted(FOOTAGE.iterdir()):
        if path.name in NOT_FOOTAGE or options.only not in path.name:
            continue
        try:
            found = differences(path, options.decoder, options.seed, options.memory_bytes)
            said = "; ".join(found) or "equal"
            is_wrong |= bool(found)
            is_compared = True
        except (InputError, NoVideoTrack, Unsupported) as error:
            said = f"no frames: {type(error).__name__}"
        except CodecfleetError as error:
            is_refused = options.decoder == "nvdec" and isinstance(error, EngineUnfit | EngineFailed)
            said = f"{'refused' if is_refused else 'WRONG'}: {error}"
            is_wrong |= not is_refused
        sys.stdout.write(f"{path.name}: {said}\n")
        sys.stdout.flush()
    return int(is_wrong or not is_compared)


if __name__ == "__main__":
    sys.exit(main())
