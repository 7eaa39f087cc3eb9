"""Packages for tests of manifests: one as a ladder makes it, and random ones from Hypothesis."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from hypothesis import strategies as st

from codecfleet.jobs.package.values import (
    GivenTrack,
    Layout,
    Package,
    PackagedSegment,
    PackagedTrack,
    PlayedKind,
)

VIDEO_CODECS = ("avc1.640028", "hvc1.2.4.L123.B0", "av01.0.08M.08")
SOUND_CODECS = ("mp4a.40.2", "ac-3", "opus")


def given_track(name: str, kind: PlayedKind = PlayedKind.VIDEO, **values: object) -> GivenTrack:
    """Return a track of a proven file."""
    return GivenTrack(name=name, path=Path(f"{name}.mp4"), stream=0, kind=kind, **values)  # type: ignore[arg-type]


def laid_out(
    durations_ticks: list[int], sizes_bytes: list[int], *, first_byte: int = 0, keyframes: bool = False
) -> tuple[PackagedSegment, ...]:
    """Return segments that adjoin in time and in bytes."""
    segments: list[PackagedSegment] = []
    start_ticks, offset_bytes = 0, first_byte
    for duration, size in zip(durations_ticks, sizes_bytes, strict=True):
        keyframe = 1 + size // 3 if keyframes else 0
        segments.append(PackagedSegment(start_ticks, duration, offset_bytes, size, keyframe))
        start_ticks, offset_bytes = start_ticks + duration, offset_bytes + size
    return tuple(segments)


def video_track(name: str, *, sizes_bytes: list[int], frames: list[int], **values: object) -> PackagedTrack:
    """Return a video track of 24000/1001 pictures a second; ``frames`` are the numbers of pictures in its segments."""
    track = PackagedTrack(
        given=given_track(name),
        codec="avc1.640028",
        time_base=Fraction(1, 24000),
        segments=laid_out([1001 * each for each in frames], sizes_bytes, first_byte=1000, keyframes=True),
        header_bytes=800,
        index_bytes=200,
        width=1920,
        height=1080,
        frame_rate=Fraction(24000, 1001),
        video_range="SDR",
    )
    return replace(track, **values)  # type: ignore[arg-type]


def sound_track(name: str, codec: str = "mp4a.40.2", channels: int = 2, **given: object) -> PackagedTrack:
    """Return a sound track of two segments."""
    return PackagedTrack(
        given=given_track(name, PlayedKind.AUDIO, **given),
        codec=codec,
        time_base=Fraction(1, 48000),
        segments=laid_out([96256, 95232], [32000, 32000], first_byte=900),
        header_bytes=700,
        index_bytes=200,
        channels=channels,
        sample_rate_hz=48000,
    )


def text_track(name: str, **given: object) -> PackagedTrack:
    """Return a text track, which is one segment."""
    return PackagedTrack(
        given=given_track(name, PlayedKind.TEXT, **given),
        codec="wvtt",
        time_base=Fraction(1, 1000),
        segments=laid_out([4000], [500]),
    )


def a_ladder(layout: Layout = Layout.RANGES) -> Package:
    """Return two renditions with sound in two encodings and subtitles."""
    frames = [48, 48]
    return Package(
        tracks=(
            video_track("1080p", sizes_bytes=[500_000, 250_000], frames=frames),
            video_track("540p", sizes_bytes=[150_000, 125_000], frames=frames, width=960, height=540),
            sound_track("en", language="en", is_default=True),
            sound_track("de", language="de"),
            sound_track("en-surround", "ac-3", 6, language="en", is_default=True),
            text_track("subtitles-de", language="de"),
        ),
        layout=layout,
        segment_s=Fraction(2),
    )


#: Characters that a file's tags may hold: quotes, line feeds, markup and characters that XML has no way to write.
_TITLES = st.text(st.sampled_from('ab "\n\r\t<&\x0b\x00\u2028\ufeff\ud800é'), max_size=6)


@st.composite
def packages(draw: st.DrawFn) -> Package:
    """Draw a package with any number of tracks and segments, any titles and any layout."""
    layout = draw(st.sampled_from(Layout))
    frames = draw(st.lists(st.integers(1, 400), min_size=1, max_size=8))
    rate = draw(st.sampled_from([Fraction(24000, 1001), Fraction(25), Fraction(60000, 1001), Fraction(3, 7)]))
    sizes = st.lists(st.integers(1, 2**22), min_size=len(frames), max_size=len(frames))
    headers = st.integers(1, 5000)

    def video(number: int) -> PackagedTrack:
        header_bytes, index_bytes = draw(headers), draw(headers)
        video_range = draw(st.sampled_from(["SDR", "HLG", "PQ"]))
        return PackagedTrack(
            given=given_track(f"video {number}"),
            codec=draw(st.sampled_from(VIDEO_CODECS)),
            supplemental_codec=draw(st.sampled_from(["", "dvh1.08.07/db4h"])),
            time_base=Fraction(1, rate.numerator),
            segments=laid_out(
                [rate.denominator * each for each in frames],
                draw(sizes),
                first_byte=header_bytes + index_bytes,
                keyframes=True,
            ),
            header_bytes=header_bytes,
            index_bytes=index_bytes,
            width=draw(st.integers(16, 8192)),
            height=draw(st.integers(16, 8192)),
            frame_rate=rate,
            video_range=video_range,
        )

    def given_values() -> dict[str, object]:
        language = draw(st.sampled_from([None, "en", "de", "pt-BR"]))
        return {"language": language, "title": draw(_TITLES), "is_default": draw(st.booleans())}

    def sound(number: int) -> PackagedTrack:
        codec, channels = draw(st.sampled_from(SOUND_CODECS)), draw(st.sampled_from([1, 2, 6, 8]))
        return sound_track(f"sound:{number}", codec, channels, **given_values())

    def text(number: int) -> PackagedTrack:
        return text_track(f"text#{number}", is_forced=draw(st.booleans()), **given_values())

    tracks = [video(number) for number in range(draw(st.integers(1, 3)))]
    tracks += [sound(number) for number in range(draw(st.integers(0, 5)))]
    tracks += [text(number) for number in range(draw(st.integers(0, 3)))]
    return Package(tracks=tuple(tracks), layout=layout, segment_s=Fraction(2))
