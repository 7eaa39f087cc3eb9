"""The NVDEC table: every file of a folder, decoded segment by segment on the GPU and in software, picture by picture.

Run on a machine with an NVIDIA GPU: ``python tests/media/nvdec_table.py FOLDER [--save FILE]``. It exits with 1 if a
picture, its time or its number differs. docs/nvdec.md has the results from a real GPU.
"""

import argparse
import json
import platform
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path

from av.video.frame import VideoFrame
from rich.console import Console
from rich.markup import escape

from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, PictureDecoder, decode_range
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.nvidia.gpu import open_gpu
from codecfleet.errors import CodecfleetError, DeviceError
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec

NOT_FOOTAGE = frozenset({"MANIFEST.json", "reserved.bin"})
SEGMENT_S = Fraction(1)


@dataclass(slots=True, kw_only=True)
class Row:
    """One file: its segments by decoder, and the first difference."""

    file: str
    codec: str = ""
    pix_fmt: str = ""
    size: str = ""
    segments: int = 0
    by_nvdec: int = 0
    pictures: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    difference: str = ""
    refused: str = ""


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--save", type=Path, help="write the table as JSON")
    parser.add_argument("--threads", type=int, default=4)
    options = parser.parse_args()
    decoder = open_gpu().pictures
    console = Console(highlight=False, width=200)
    began_s = time.perf_counter()
    files = sorted(path for path in options.folder.iterdir() if path.name not in NOT_FOOTAGE)
    rows = []
    with ThreadPoolExecutor(options.threads) as threads:
        for row in threads.map(lambda path: compare(path, decoder), files):
            console.print(escape(line(row)))
            rows.append(row)
    wall_s = time.perf_counter() - began_s
    counts = decoder.pool.counts
    console.print(f"{wall_s:.1f} s; sessions: {counts.made} made, {counts.in_use} in use, {counts.closed} closed")
    if options.save is not None:
        document = {
            "command": " ".join(sys.argv),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "sessions": asdict(counts),
            "wall_s": round(wall_s, 1),
            "rows": [asdict(row) for row in rows],
        }
        options.save.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(row.difference for row in rows))


def machine() -> dict[str, str]:
    """Return this machine's GPU and driver."""
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    return {
        "gpu": pynvml.nvmlDeviceGetName(gpu),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "python": platform.python_version(),
    }


def compare(path: Path, decoder: PictureDecoder[VideoFrame]) -> Row:
    """Decode every segment of a file twice, and compare."""
    row = Row(file=path.name)
    spec = TranscodeSpec(source=str(path), output="out.mkv", segment_s=SEGMENT_S, force=True)
    try:
        plan = plan_transcode(spec)
    except CodecfleetError as error:
        row.refused = error.message
        return row
    video, picture = plan.carry.video, plan.source_format
    row.codec = "" if video is None else video.codec or ""
    row.pix_fmt, row.size = picture.pix_fmt, f"{picture.width}x{picture.height}"
    row.segments = len(plan.segments)
    reasons: Counter[str] = Counter()
    for segment in range(row.segments):
        compare_segment(plan, segment, decoder, row, reasons)
    row.fallbacks = dict(reasons)
    return row


def compare_segment(
    plan: Plan, segment: int, decoder: PictureDecoder[VideoFrame], row: Row, reasons: Counter[str]
) -> None:
    """Compare one segment's pictures, and note the result in ``row``."""
    work = plan.work("table", segment, segment, 0)
    try:
        given = [picture_hash(*entry) for entry in decode_range(work.decode, DecodeTally(), decoder)]
    except DeviceError as error:
        reasons[error.message] += 1
        return
    row.by_nvdec += 1
    wanted = [picture_hash(*entry) for entry in decode_range(work.decode, DecodeTally(), SOFTWARE)]
    inside = [one for one in wanted if work.start_ticks is None or one.ticks >= work.start_ticks]
    row.pictures += len(inside)
    given = [one for one in given if work.start_ticks is None or one.ticks >= work.start_ticks]
    for place, (ours, theirs) in enumerate(zip_longest(given, inside)):
        if ours != theirs and not row.difference:
            what = "time" if ours is None or theirs is None or ours.ticks != theirs.ticks else "samples"
            row.difference = f"segment {segment}, picture {place} of {len(inside)}: {what} ({len(given)} came)"


def line(row: Row) -> str:
    """Return a row as text."""
    if row.refused:
        return f"{row.file:55} refused: {row.refused}"
    verdict = row.difference or "equal"
    told = "; ".join(f"{count} x {reason}" for reason, count in row.fallbacks.items())
    counts = f"{row.by_nvdec}/{row.segments} segments, {row.pictures} pictures"
    return f"{row.file:55} {row.codec} {row.pix_fmt} {row.size}: {counts}, {verdict}{f' [{told}]' if told else ''}"


if __name__ == "__main__":
    sys.exit(main())
