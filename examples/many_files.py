"""Transcode every film of a folder; a failure does not stop the others.

python examples/many_files.py inbox outbox
"""

import argparse
import asyncio
from pathlib import Path

from codecfleet import CodecfleetError, Fleet, Report, TranscodeSpec

FILMS = {".avi", ".m4v", ".mkv", ".mov", ".mp4", ".ts", ".webm"}


async def convert(fleet: Fleet, source: Path, folder: Path) -> Report:
    """Transcode one film into ``folder``."""
    output = folder / f"{source.stem}.mp4"
    return await (await fleet.transcode(TranscodeSpec(source=str(source), output=str(output), overwrite=True)))


async def convert_all(films: list[Path], outbox: Path) -> int:
    """Transcode all films, three at a time; return how many failed."""
    async with Fleet(jobs_at_once=3) as fleet:
        endings = await asyncio.gather(*(convert(fleet, film, outbox) for film in films), return_exceptions=True)
    for film, ending in zip(films, endings, strict=True):
        if isinstance(ending, Report):
            print(f"{film.name}: {ending.frames} frames, {ending.output_bytes} bytes")
        elif isinstance(ending, CodecfleetError):
            print(f"{film.name}: {ending}")
        else:
            raise ending
    return sum(not isinstance(ending, Report) for ending in endings)


def main() -> None:
    """Read the command line; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(description="Transcode every film of a folder.")
    parser.add_argument("inbox", type=Path)
    parser.add_argument("outbox", type=Path)
    arguments = parser.parse_args()
    arguments.outbox.mkdir(exist_ok=True)
    films = sorted(path for path in arguments.inbox.iterdir() if path.suffix.lower() in FILMS)
    raise SystemExit(min(1, asyncio.run(convert_all(films, arguments.outbox))))


if __name__ == "__main__":
    main()
