"""Decoding with too little memory gives an error that says so, and never pictures that count as damaged."""

import subprocess
import sys
from pathlib import Path

from codecfleet.testing.clips import Clip, constant_times, make_clip

PROGRAM = """
import os, resource, sys
from codecfleet.actors.decode.decoding import SOFTWARE, DecodeRange, DecodeTally, decode_range
from codecfleet.actors.media.kept_sources import KEPT
from codecfleet.jobs.source.source import read_source

index = read_source(sys.argv[1]).index
ranges = DecodeRange(source=sys.argv[1], stream_index=0, time_base=index.time_base, nominal_ticks=index.nominal_ticks)

def decoded(room_bytes):
    used_bytes = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + room_bytes,) * 2)
    tally = DecodeTally()
    try:
        kept = [picture for _, picture in decode_range(ranges, tally, SOFTWARE)]
    except MemoryError:
        return "short"
    return f"{len(kept)} pictures, {tally.failed_packets} failed"

for room_mib in (8, 30, 60, 90, 120, 4000):
    if os.fork() == 0:
        print(decoded(room_mib << 20), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_lack_of_memory_is_no_damage(tmp_path: Path) -> None:
    """With any amount of memory, either all pictures come, or an error that names memory."""
    clip = Clip(times=constant_times(40), width=1280, height=720, options=(("preset", "ultrafast"),))
    source = make_clip(tmp_path / "film.mp4", clip)
    command = [sys.executable, "-c", PROGRAM, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert set(lines) == {"short", "40 pictures, 0 failed"}
    assert lines[-1] == "40 pictures, 0 failed"
