"""Transcode one file and show its progress.

python examples/progress.py film.mkv film.mp4
"""

import argparse
import asyncio

from codecfleet import CodecfleetError, Fleet, Planned, Progress, TranscodeSpec, Warned


async def convert(source: str, output: str) -> None:
    """Transcode ``source`` and print a line for each event."""
    spec = TranscodeSpec(source=source, output=output, overwrite=True)
    async with Fleet() as fleet:
        job = await fleet.transcode(spec)
        async for event in job.events():
            match event:
                case Planned():
                    print(f"{event.frames} frames in {event.segments} segments, encoded by {event.encoder}")
                case Progress():
                    left = "" if event.eta_s is None else f", {event.eta_s:.0f} s left"
                    print(f"{event.frames_done} of {event.frames_total} frames, {event.fps:.0f} a second{left}")
                case Warned():
                    print(f"warning: {event.message}")
        report = await job
    print(f"{report.output}: {report.frames} frames, {report.proof.seams_equal} of {report.proof.seams} seams agree")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Transcode one file and show its progress.")
    parser.add_argument("source")
    parser.add_argument("output")
    arguments = parser.parse_args()
    try:
        asyncio.run(convert(arguments.source, arguments.output))
    except CodecfleetError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
