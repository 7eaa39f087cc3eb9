"""Ladders of real footage are the renditions that separate transcodes give, or are rightly refused."""

import asyncio
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import av
import pytest

from codecfleet import Fleet, LadderReport, LadderSpec, TranscodeSpec
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.errors import CodecfleetError
from codecfleet.jobs.package.names import playlist_file
from codecfleet.jobs.package.values import Layout, PlayedKind
from codecfleet.testing import LocalPool

from .cases import REFUSALS
from .table import footage_names

pytestmark = [pytest.mark.media, pytest.mark.slow, pytest.mark.timeout(900)]

AT_ONCE = 2
END_S = Fraction(2)
RUNGS = {"h264": {"scale": "64p", "quality": 30}, "hevc": {"scale": "48p", "quality": 34}}
"""Each rendition has the name of its codec."""
SHARED = {"preset": 1, "keyframe_interval": 1, "audio": "aac"}
SHORT = [
    "audio_only_opus_frag.mp4",
    "cam_pancake_240p_opus_negstart.mkv",
    "corrupt_invalid_nalu.mp4",
    "h264_fragmented_aac.mp4",
    "h264_mp4_aac_priming.mp4",
    "h264_odd_321x241_444.mp4",
    "hevc_dovi_p5_1080p.mp4",
    "hevc_hdr10_mastering_rot_attach.mkv",
    "mp4_editlist_positive_shift.mp4",
    "phone_slowmo_gap_vfr_h264.mp4",
    "rot_and_reflect.mp4",
    "subs_ass_ac3.mkv",
]
"""Sound before and after the first picture; turned, odd, HDR, damaged and unevenly timed pictures; two refusals."""

Coded = tuple[Fraction, object]  # a time in seconds, and a digest


def _preset(folder: Path) -> Path:
    """Write the file of renditions into a new folder."""
    folder.mkdir()
    tables = [{**SHARED}, *({"name": name, "codec": name, **rung} for name, rung in RUNGS.items())]
    lines = [[f'{key} = "{value}"' for key, value in table.items()] for table in tables]
    path = folder / "tiny.toml"
    path.write_text("\n[[rendition]]\n".join("\n".join(each) for each in lines) + "\n")
    return path


def _shown(path: Path) -> list[Coded]:
    """Decode all pictures of a file or playlist."""
    with av.open(str(path)) as opened:
        return [
            ((each.pts or 0) * Fraction(each.time_base or 1), picture_hash(0, each)) for each in opened.decode(video=0)
        ]


def _sound(path: Path, number: int = 0) -> list[Coded]:
    """Return the packets of a sound track; priming is before time 0."""
    with av.open(str(path)) as opened:
        packets = list(opened.demux(opened.streams.audio[number]))
    return [
        (each.pts * Fraction(each.time_base or 1), sha256(bytes(each)).hexdigest())
        for each in packets
        if each.pts is not None and each.size
    ]


async def _compared(fleet: Fleet, source: Path, folder: Path, report: LadderReport) -> list[str]:
    """Return how each track of a package differs from a transcode of its own."""
    found, output = [], Path(report.output)
    sizes = {track.given.name: (track.width, track.height) for track in report.package.of(PlayedKind.VIDEO)}
    for name, _ in report.renditions:
        playlist = output / playlist_file(next(each.given for each in report.package.tracks if each.given.name == name))
        with av.open(str(playlist)) as opened:
            scale = (opened.streams.video[0].width, opened.streams.video[0].height)
        shared = {"codec": name, "quality": RUNGS[name]["quality"], "preset": SHARED["preset"], "audio": "aac"}
        path = folder / f"{name}.mp4"
        spec = TranscodeSpec(
            source=source, output=path, scale=scale, keyframe_interval_s=Fraction(1), end_s=END_S, **shared
        )
        await (await fleet.transcode(spec))
        if await asyncio.to_thread(_shown, playlist) != await asyncio.to_thread(_shown, path):
            found.append(f"{name} of {sizes[name]} shows other pictures, or at other times")
    for number, track in enumerate(report.package.of(PlayedKind.AUDIO)):
        packaged, alone = (
            _sound(output / playlist_file(track.given)),
            _sound(folder / f"{report.renditions[0][0]}.mp4", number),
        )
        if packaged != alone:
            found.append(f"{track.given.name} has other sound, or at other times")
    return found


def _left(folder: Path) -> list[str]:
    return [f"{each.name} is left" for each in folder.iterdir() if each.name != "tiny.toml"]


async def _case(fleet: Fleet, source: Path, folder: Path, layout: Layout) -> list[str]:
    """Return what is wrong with the ladder of a film."""
    spec = LadderSpec(
        source=source, output=folder / "ladder", preset=_preset(folder), packaged_s=1, end_s=END_S, layout=layout
    )
    expected = REFUSALS.get(source.name)
    try:
        report = await fleet.ladder(spec)
    except CodecfleetError as error:
        is_right = expected is not None and expected.error == type(error).__name__
        return [*([] if is_right else [f"{type(error).__name__}: {error}"]), *_left(folder)]
    return [f"not refused, although {expected.why}"] if expected else await _compared(fleet, source, folder, report)


async def _faults(footage: Path, folder: Path, names: list[str]) -> list[str]:
    at_once = asyncio.Semaphore(AT_ONCE)
    layouts = dict(zip(names, [Layout.RANGES, Layout.FILES] * len(names), strict=False))
    async with Fleet(pool=LocalPool(AT_ONCE), jobs_at_once=AT_ONCE) as fleet:

        async def one(name: str) -> list[str]:
            async with at_once:
                return [f"{name}: {each}" for each in await _case(fleet, footage / name, folder / name, layouts[name])]

        return [each for found in await asyncio.gather(*map(one, names)) for each in found]


@pytest.mark.ci
def test_a_ladder_is_what_separate_transcodes_are(shared_media: Path, tmp_path: Path) -> None:
    """Each track of each package has the pictures, sound and times of a transcode; other sources are refused."""
    assert asyncio.run(_faults(shared_media, tmp_path, SHORT)) == []


def test_a_ladder_of_every_file_is_what_separate_transcodes_are(shared_media: Path, tmp_path: Path) -> None:
    """The same for the other footage."""
    names = [name for name in footage_names() if name not in SHORT]
    assert asyncio.run(_faults(shared_media, tmp_path, names)) == []
