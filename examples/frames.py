"""Find where a film's scenes change, and make a film of the first frame of each scene.

python examples/frames.py film.mkv scenes.mp4
"""

import argparse
import asyncio
from collections.abc import AsyncIterator

import numpy as np

import codecfleet
from codecfleet import CodecfleetError, Frame

STEP = 30.0
"""How much the mean brightness of a cell must differ, on average, between the frames of two scenes."""


async def first_of_scenes(frames: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
    """Yield the frames that look different from the previous frame."""
    last = None
    async for frame in frames:
        picture = frame.to_ndarray()[: frame.height].astype(np.int32)
        if last is None or np.abs(picture - last).mean() > STEP:
            print(f"{float(frame.time_s):8.2f} s  frame {frame.index}")
            yield frame
        last = picture


async def summarize(source: str, output: str) -> None:
    """Write the first frame of each scene, two per second."""
    async with codecfleet.frames(source, pix_fmt="yuv420p", size=(320, 180)) as frames:
        report = await codecfleet.encode(first_of_scenes(frames), output, fps=2, overwrite=True)
    print(f"{report.output}: {report.frames_out} of {frames.report.frames} frames, encoded by {report.encoder}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Make a film of the first frame of each scene.")
    parser.add_argument("source")
    parser.add_argument("output")
    arguments = parser.parse_args()
    try:
        asyncio.run(summarize(arguments.source, arguments.output))
    except CodecfleetError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
