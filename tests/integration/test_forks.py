"""A fork of a program with an open fleet: nothing in the child disturbs the parent's work or its end."""

import subprocess
import sys
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

PROGRAM = """
import asyncio, os, sys
from codecfleet import Fleet, TranscodeSpec

async def main():
    how, is_begun, source = sys.argv[1], sys.argv[2] == "True", sys.argv[3]
    async with Fleet(workers=1) as fleet:
        if is_begun:
            await (await fleet.transcode(TranscodeSpec(source=source, output="first.mkv", preset=1)))
        if (child := os.fork()) == 0:
            if how == "exit":
                sys.exit(7)
            if how == "raise":
                raise ValueError("the child's own")
            return
        report = await (await fleet.transcode(TranscodeSpec(source=source, output="second.mkv", preset=1)))
        assert report.frames == 6
        assert await asyncio.to_thread(os.waitpid, child, 0) == (child, {"exit": 7, "raise": 1, "return": 0}[how] << 8)
    print("the parent has ended")

asyncio.run(main())
"""


@pytest.mark.parametrize("is_begun", swept([True, False]))
@pytest.mark.parametrize("how", swept(["exit", "return", "raise"]))
def test_a_childs_end_is_not_the_parents(how: str, tmp_path: Path, *, is_begun: bool) -> None:
    """Parent and child end, with or without earlier jobs; the child's cleanup touches neither workers nor loop."""
    clip = make_clip(tmp_path / "a.mkv", Clip(times=constant_times(6), keyframes=frozenset({0, 4})))
    run = [sys.executable, "-P", "-c", PROGRAM, how, str(is_begun), str(clip)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the parent has ended\n"
