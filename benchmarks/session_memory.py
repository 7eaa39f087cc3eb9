"""Measure the memory of one segment's session, by encoder, preset and size.

``python benchmarks/session_memory.py --save session-memory``; README.md beside this file says what each number means.
"""

import argparse
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from bench.machine import describe_run, described_lines
from bench.program import run_in_folder
from bench.table import number, save_results, table_lines

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec

_MIB = 2**20
_SIZES = ((854, 480), (1920, 1080), (3840, 2160))
_CONTAINERS = {Codec.VP9: "webm"}
_IN_CHILD = "--in-child"


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    if sys.argv[1:2] == [_IN_CHILD]:
        print(_peak_of(Path(sys.argv[2])))
        return 0
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _measure_all(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--codecs", nargs="+", type=Codec, choices=list(Codec), default=list(Codec), help="which (default: all)")
    add("--presets", nargs="+", type=int, choices=range(1, 8), default=[1, 4, 7], help="at 480p and 1080p (1 4 7)")
    add("--presets-4k", nargs="*", type=int, choices=range(1, 8), default=[4], help="at 2160p (4)")
    add("--frames", type=int, default=120, metavar="N", help="pictures in the segment (default: 120)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _measure_all(options: argparse.Namespace, folder: Path) -> None:
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    cases = [
        (size, codec, preset)
        for size in _SIZES
        for codec in options.codecs
        for preset in (options.presets_4k if size == _SIZES[-1] else options.presets)
    ]
    records = [_record(size, codec, preset, options.frames, folder) for size, codec, preset in cases]
    print("\nPeak memory of a process with one session, less its memory before; 8-bit 4:2:0 pictures.\n")
    print("\n".join(table_lines(("encoder", "preset", "size", "MiB", "in pictures"), [_row(each) for each in records])))
    if options.save:
        document |= {"frames": options.frames, "sessions": records}
        print(f"\nsaved: {save_results(options.save, document)}")


def _record(size: tuple[int, int], codec: Codec, preset: int, frames: int, folder: Path) -> dict[str, Any]:
    clip = folder / f"{size[1]}p.mkv"
    if not clip.exists():
        _make_clip(clip, size, frames)
    output = folder / f"planned.{_CONTAINERS.get(codec, 'mp4')}"
    spec = TranscodeSpec(source=str(clip), output=str(output), codec=codec, preset=preset, segment_s=Fraction(1000))
    order = folder / "order.pickle"
    order.write_bytes(pickle.dumps(plan_transcode(spec).work("job", 0, 0, 0)))
    # A separate process, so that its peak is that of one session.
    told = subprocess.run([sys.executable, __file__, _IN_CHILD, str(order)], check=True, capture_output=True, text=True)
    encoder = PROFILES[codec].implementation
    record = {"encoder": encoder, "preset": preset, "width": size[0], "height": size[1], "bytes": int(told.stdout)}
    print(f"  {' '.join(_row(record))}", flush=True)
    return record


def _row(record: dict[str, Any]) -> list[str]:
    pictures = record["bytes"] / (record["width"] * record["height"] * 1.5)
    size = f"{record['width']}x{record['height']}"
    return [record["encoder"], str(record["preset"]), size, number(record["bytes"] / _MIB, 0), number(pictures, 1)]


def _make_clip(path: Path, size: tuple[int, int], frames: int) -> None:
    """Encode a moving gradient that makes a decoder keep as many reference pictures as the size allows."""
    width, height = size
    row = np.arange(width, dtype=np.uint16)
    column = np.arange(height, dtype=np.uint16)[:, None]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options={"preset": "veryfast", "refs": "4", "bf": "3"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for count in range(frames):
            picture = np.full((height * 3 // 2, width), 128, dtype=np.uint8)
            picture[:height] = (row + column + 3 * count) // 8 % 256
            frame = av.VideoFrame.from_ndarray(picture, "yuv420p")
            frame.pts = count
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _peak_of(order: Path) -> int:
    """Run a pickled work order; return by how many bytes the process's peak memory grew."""
    work = pickle.loads(order.read_bytes())
    before = _status_bytes("VmRSS")
    work.run(WorkContext())
    return _status_bytes("VmHWM") - before


def _status_bytes(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    sys.exit(main())
