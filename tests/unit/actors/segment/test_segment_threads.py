"""A segment's encoder has the threads that its work names, as far as its process has cores; its bytes stay the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.encode.settings import EncoderSettings
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.segment import encoding
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip


@pytest.mark.parametrize(
    ("codec", "with_two", "with_many"), [("hevc", 2, 3), ("av1", 2, 2), ("vp9", 2, 4), ("h264", 2, 2)]
)
def test_the_cores_of_a_segment_change_no_byte(
    codec: str, with_two: int, with_many: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One core, two or many: the payload and what describes it are equal, also where the machine has fewer cores."""
    threads: list[int] = []

    class Recorder(SoftwareEncoder):
        def __init__(self, settings: EncoderSettings) -> None:
            super().__init__(settings)
            threads.append(settings.threads)

    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(24), width=192, height=144))
    output = tmp_path / ("out.webm" if codec == "vp9" else "out.mp4")
    spec = TranscodeSpec.model_validate({"source": str(clip), "output": str(output), "codec": codec, "preset": 1})
    work = plan_transcode(spec).work("job", 0, 0, 0)
    monkeypatch.setattr(encoding, "SoftwareEncoder", Recorder)
    monkeypatch.setattr(encoding, "usable_cores", lambda: 4)
    results = [replace(work, cores=cores).run(WorkContext()) for cores in (1, 2, 16)]
    assert threads == [2 if codec == "h264" else 1, with_two, with_many]
    assert len({(each.payload.tobytes(), each.pts_ticks.tobytes(), each.extradata) for each in results}) == 1
