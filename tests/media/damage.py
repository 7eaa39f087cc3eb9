"""The damage table: films that are cut short or have broken bits give the same bytes in each encoding.

``make damage`` runs it over the shared footage and exits with 1 if two outputs of one damaged film differ. Every
damaged film is encoded with 1, 2 and 5 segments in flight, by two processes whose new memory holds different bytes. So
memory that a decoder leaves unwritten shows as a difference.
"""

import argparse
import asyncio
import fnmatch
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Final

import av
import av.error

from codecfleet.actors.encode.settings import Codec
from codecfleet.errors import CodecfleetError
from codecfleet.jobs.fleet import Fleet
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool

REPOSITORY = Path(__file__).resolve().parents[2]
FOOTAGE = REPOSITORY.parent / "shared" / "media"
NOT_FOOTAGE = frozenset({"MANIFEST.json", "reserved.bin"})

WORKERS: Final = (1, 2, 5)
FILLINGS: Final = ("85", "170")
"""``MALLOC_PERTURB_`` of the two processes: the bytes with which glibc fills new and freed memory."""
PLACES: Final = 10
SEGMENT_S: Final = Fraction(1, 2)
SMALL_HEIGHT: Final = 180
"""Largest height of outputs: small enough to be fast, large enough to show everything a decoder left out."""
QUALITY: Final = 1
LONG_S, SHORT_S, LARGE_PIXELS = 4, 2, 640 * 480
"""Seconds of film that are damaged and encoded; fewer for large pictures."""
BURST_BYTES: Final = 256
BROKEN_BITS: Final = (1, 8, 64)


class Damage(StrEnum):
    """One kind of damage to a film."""

    CUT = "cut"
    BITS = "bits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Film:
    """A file of the footage; ``first_byte`` to ``end_byte`` holds the video of its first ``seconds``."""

    path: Path
    seconds: int
    height: int
    first_byte: int
    end_byte: int

    def damaged(self, damage: Damage, seed: int) -> bytes:
        """Return the file's bytes, damaged at a place that the seed determines."""
        generator = random.Random(f"{self.path.name} {damage} {seed}")  # noqa: S311 - no secret
        data = bytearray(self.path.read_bytes())
        place = generator.randrange(self.first_byte, self.end_byte)
        if damage is Damage.CUT:
            return bytes(data[:place])
        for _ in range(generator.choice(BROKEN_BITS)):
            broken = min(place + generator.randrange(BURST_BYTES), len(data) - 1)
            data[broken] ^= 1 << generator.randrange(8)
        return bytes(data)


@dataclass(slots=True)
class Counts:
    """The counts of damaged films, and the films of which two outputs were unequal."""

    films: int = 0
    encoded: int = 0
    in_segments: int = 0
    unequal: list[str] = field(default_factory=list)


def opened(path: Path) -> Film | None:
    """Return the facts of a film; None if it has no video that can be decoded."""
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            seconds = LONG_S if stream.width * stream.height <= LARGE_PIXELS else SHORT_S
            places = [
                (packet.pos, packet.size)
                for packet in container.demux(stream)
                if packet.size and packet.pos is not None and _is_within(packet.dts, stream, seconds)
            ]
            height = stream.height
    except (av.error.FFmpegError, IndexError):
        return None
    if not places:
        return None
    end = max(at + size for at, size in places)
    return Film(path=path, seconds=seconds, height=height, first_byte=min(at for at, _ in places), end_byte=end)


def _is_within(dts: int | None, stream: "av.VideoStream", seconds: int) -> bool:
    return dts is None or (dts - (stream.start_time or 0)) * Fraction(stream.time_base or 1) < seconds


async def outcome(film: Film, source: Path, output: Path, workers: int) -> tuple[str, int]:
    """Encode a damaged film; return the output's SHA-256 or the error, and the number of segments."""
    spec = TranscodeSpec(
        source=str(source),
        output=str(output),
        codec=Codec.H264,
        quality=QUALITY,
        preset=1,
        pix_fmt="yuv420p",
        scale=(None, min(SMALL_HEIGHT, film.height) // 2 * 2 or 2),
        end_s=Fraction(film.seconds),
        segment_s=SEGMENT_S,
        workers=workers,
        force=True,
        overwrite=True,
    )
    try:
        async with Fleet(pool=LocalPool(workers), workers=workers) as fleet:
            report = await (await fleet.transcode(spec))
    except CodecfleetError as error:
        return f"{type(error).__name__}: {error.message}", 0
    digest = hashlib.sha256(await asyncio.to_thread(output.read_bytes)).hexdigest()
    told = hashlib.sha256(repr(sorted(str(warning) for warning in report.warnings)).encode()).hexdigest()
    return f"{digest} {told}", len(report.segments)


def cuttable(film: Film, folder: Path) -> Film:
    """Return a film that can be read after a cut; if its index is at the end, a copy of its video."""
    cut = folder / f"cut{film.path.suffix}"
    cut.write_bytes(film.damaged(Damage.CUT, 0))
    if opened(cut) is not None:
        return film
    # A transport stream keeps a part of the last picture; Matroska leaves it out.
    copies = (copied(film, folder / f"{film.path.stem}{suffix}") for suffix in (".ts", ".mkv"))
    return next((copy for copy in copies if copy is not None), film)


def copied(film: Film, copy: Path) -> Film | None:
    """Copy a film's video into another container; None if that cannot hold it."""
    try:
        with av.open(str(film.path)) as source, av.open(str(copy), "w") as target:
            stream = target.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    target.mux(packet)
    except (av.error.FFmpegError, ValueError):
        return None
    return opened(copy)


async def outcomes(film: Film, folder: Path, places: int) -> dict[str, list[tuple[str, int]]]:
    """Encode a film with each damage, with each number of workers."""
    found: dict[str, list[tuple[str, int]]] = {}
    output = folder / "output.mkv"
    films = {Damage.CUT: await asyncio.to_thread(cuttable, film, folder), Damage.BITS: film}
    for damage in Damage:
        for seed in range(places):
            chosen = films[damage]
            source = folder / f"{damage}{seed}{chosen.path.suffix}"
            await asyncio.to_thread(source.write_bytes, chosen.damaged(damage, seed))
            found[f"{damage} {seed}"] = [await outcome(chosen, source, output, workers) for workers in WORKERS]
            source.unlink()
    return found


def run_in_process(path: Path, filling: str, folder: Path, places: int) -> dict[str, list[tuple[str, int]]]:
    """Run ``outcomes`` in a separate process, whose memory is filled with ``filling``."""
    command = [sys.executable, __file__, "--film", str(path), "--folder", str(folder), "--places", str(places)]
    environment = os.environ | {"MALLOC_PERTURB_": filling}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, list[tuple[str, int]]] = json.loads(done.stdout)
    return found


def compare(path: Path, places: int, counts: Counts) -> str:
    """Encode one film in every way, count the differences, and return a line about it."""
    began_s = time.monotonic()
    found: dict[str, list[tuple[str, int]]] = {}
    with tempfile.TemporaryDirectory(prefix="codecfleet-damage-") as folder:
        # The same folder is used in turn, because paths are in error messages.
        for filling in FILLINGS:
            for name, outputs in run_in_process(path, filling, Path(folder), places).items():
                found.setdefault(name, []).extend(outputs)
    unequal = [f"{path.name} {name}" for name, outputs in found.items() if len({told for told, _ in outputs}) > 1]
    counts.films += len(found)
    counts.encoded += sum(outputs[0][1] > 0 for outputs in found.values())
    counts.in_segments += sum(outputs[0][1] > 1 for outputs in found.values())
    counts.unequal += unequal
    return f"{path.name:50} {len(unequal):2} of {len(found):2} unequal {time.monotonic() - began_s:6.1f} s {unequal}"


def films(pattern: str) -> Iterator[Path]:
    """Yield the footage that can be decoded and whose name contains the pattern."""
    for path in sorted(FOOTAGE.iterdir()):
        if path.name not in NOT_FOOTAGE and fnmatch.fnmatch(path.name, f"*{pattern}*") and opened(path) is not None:
            yield path


def run_all(paths: Sequence[Path], *, places: int, jobs: int) -> Counts:
    """Compare every film, several at a time, printing a line for each."""
    counts = Counts()
    with ThreadPoolExecutor(jobs) as pool:
        for line in pool.map(lambda path: compare(path, places, counts), paths):
            print(line, flush=True)  # noqa: T201
    print(  # noqa: T201
        f"{counts.films} damaged films: {counts.encoded} encoded, {counts.in_segments} of them in several segments, "
        f"{counts.films - counts.encoded} refused"
    )
    print(f"{len(counts.unequal)} of {counts.films} unequal")  # noqa: T201
    return counts


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Encode damaged footage again and again, and compare the bytes.")
    parser.add_argument("--only", metavar="GLOB", default="", help="only files whose name has this in it")
    places_help = f"how many places to damage in each way (default: {PLACES})"
    parser.add_argument("--places", type=int, default=PLACES, metavar="N", help=places_help)
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="films at a time (2)")
    parser.add_argument("--film", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run the table, or one film of it."""
    options = _arguments()
    if options.film is not None:
        film = opened(options.film)
        print(json.dumps({} if film is None else asyncio.run(outcomes(film, options.folder, options.places))))  # noqa: T201
        return 0
    counts = run_all(list(films(options.only)), places=options.places, jobs=options.jobs)
    return 0 if counts.films and not counts.unequal else 1


if __name__ == "__main__":
    sys.exit(main())
