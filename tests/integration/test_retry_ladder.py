"""Segments that fail on several steps of the ladder: the output is the same, and the report has all attempts."""

import hashlib
import json
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.errors import CodecfleetError, DeviceLost, ProcessKilled, SegmentFailed, WorkerBroken, WorkerLost
from codecfleet.jobs.report.report import Report
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import spec_of, transcode

SEGMENTS = 4


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small film of four segments."""
    keyframes = frozenset(range(0, 24 * SEGMENTS, 24))
    made = Clip(times=constant_times(24 * SEGMENTS), keyframes=keyframes, options=(("x264-params", "scenecut=0"),))
    return make_clip(tmp_path_factory.mktemp("clips") / "clip.mp4", made)


def transcoded(clip: Path, output: Path, errors: dict[tuple[str, int], CodecfleetError], **options: Any) -> Report:
    """Transcode the clip while attempts fail, and return the report."""
    spec = spec_of(clip, output, codec="h264", preset=1, segment_s=1, **options)
    return transcode(spec, pool=FaultyPool(LocalPool(2), errors=errors))


def test_a_segment_climbs_its_ladder_and_the_output_is_the_same(clip: Path, tmp_path: Path) -> None:
    """A file that breaks its device ends in software with the reason; each attempt is in the report."""
    transcoded(clip, tmp_path / "plain.mp4", {})
    errors: dict[tuple[str, int], CodecfleetError] = {
        ("segment 0", 1): DeviceLost("CUDA error 999"),
        ("segment 1", 1): WorkerBroken("the worker ends itself"),
        ("segment 0", 2): DeviceLost("CUDA error 999 again"),
    }
    report = transcoded(clip, tmp_path / "climbed.mp4", errors)
    digests = [hashlib.sha256((tmp_path / name).read_bytes()).digest() for name in ("plain.mp4", "climbed.mp4")]
    assert digests[0] == digests[1]
    assert len(report.segments) == SEGMENTS
    assert [(each.attempt, each.step, each.fault) for each in report.segments[0].failures] == [
        (1, "beside other work", "suspect"),
        (2, "in a separate process", "guilty"),
    ]
    assert report.segments[0].failures[1].cause == "DeviceLost: CUDA error 999 again"
    assert [each.fault for each in report.segments[1].failures] == ["suspect"]
    (warning,) = [warning for warning in report.warnings if warning.code == "fallback"]
    assert warning.message == "software decoded 4 of 4 segments: the device failed: CUDA error 999 again"


def test_a_segment_that_kills_everything_leaves_its_packets(clip: Path, tmp_path: Path) -> None:
    """The job's error names the segment; its input packets are saved unchanged, with all attempts."""
    errors: dict[tuple[str, int], CodecfleetError] = {
        ("segment 2", 1): WorkerLost("signal 11"),
        ("segment 2", 2): WorkerLost("signal 11"),
        ("segment 2", 3): ProcessKilled("signal 11"),
        ("segment 2", 4): ProcessKilled("signal 11 at last"),
    }
    kept = tmp_path / "kept"
    with pytest.raises(SegmentFailed, match="segment 2 killed every process that ran it, 4 in all") as caught:
        transcoded(clip, tmp_path / "out.mp4", errors, keep_evidence=str(kept))
    assert caught.value.segment == 2
    assert str(kept / "segment-000002.bin") in caught.value.next_step
    assert not (tmp_path / "out.mp4").exists()
    described = json.loads((kept / "segment-000002.json").read_text(encoding="utf-8"))
    assert [attempt["fault"] for attempt in described["attempts"]] == ["lost", "lost", "killed", "killed"]
    with av.open(str(clip)) as source:
        packets = [bytes(packet) for packet in source.demux(source.streams.video[0]) if packet.size]
    numbers = [packet["packet"] for packet in described["packets"]]
    assert set(range(48, 72)) <= set(numbers)
    assert (kept / "segment-000002.bin").read_bytes() == b"".join(packets[number] for number in numbers)


def test_evidence_that_cannot_be_saved_hides_no_error(clip: Path, tmp_path: Path) -> None:
    """The segment's failure is still reported, with the reason why nothing was saved."""
    errors: dict[tuple[str, int], CodecfleetError] = {
        ("segment 0", attempt): ProcessKilled("signal 11") for attempt in (1, 2)
    }
    (tmp_path / "kept").write_text("a file")
    with pytest.raises(SegmentFailed, match="The segment's packets were not saved: ") as caught:
        transcoded(clip, tmp_path / "out.mp4", errors, keep_evidence=str(tmp_path / "kept"))
    assert caught.value.segment == 0
