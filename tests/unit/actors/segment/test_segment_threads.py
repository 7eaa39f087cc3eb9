"""A segment's encoder uses the threads of its work, which change no byte, and its work counts as progress."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.encode.libraries import library_version
from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.segment import rendition
from codecfleet.errors import EngineUnfit
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_what_an_encoder_holds_to_the_end_is_progress_when_it_comes(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoders with look-ahead take dozens of pictures before they return one, and then stay busy for long."""
    seen: list[int] = []
    before_the_end: list[int] = []

    class Watched(WorkContext):
        def advance(self, frames: int = 1) -> None:
            super().advance(frames)
            seen.append(self.frames_done)

    class Holding(SoftwareEncoder):
        def remaining(self) -> Iterator[EncodedPacket]:
            before_the_end.extend(seen)
            yield from super().remaining()

    monkeypatch.setattr(rendition, "SoftwareEncoder", Holding)
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(24), width=192, height=144))
    options = {"source": str(clip), "output": str(tmp_path / "out.mp4"), "codec": codec, "preset": 3}
    work = plan_transcode(TranscodeSpec.model_validate(options)).work("job", 0, 0, 0)
    work.run(Watched())
    assert seen == sorted(seen)
    assert set(seen) == set(range(25)), "no step is longer than a picture"
    assert before_the_end[-1] < 18, "most of the last pictures count once they have come"


def test_another_version_of_the_encoder_does_not_help(tmp_path: Path) -> None:
    """A segment is not encoded by a library whose bytes may differ from the rest of the track."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(2), width=64, height=48))
    spec = TranscodeSpec(source=str(clip), output=str(tmp_path / "out.mp4"), codec=Codec.H264)
    work = plan_transcode(spec).work("job", 0, 0, 0)
    assert work.library == library_version("libx264")
    with pytest.raises(EngineUnfit, match="the track is encoded with core 1 r1"):
        replace(work, library="core 1 r1").run(WorkContext())
