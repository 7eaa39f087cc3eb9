"""The HLS playlists of a package, after draft-pantos-hls-rfc8216bis."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..names import (
    has_one_file,
    header_file,
    keyframes_file,
    one_line,
    playlist_file,
    reference,
    segment_file,
    track_file,
)
from ..values import IDENTITY, MICROSECONDS, Layout, Package, PackagedTrack, PackageStage, PlayedKind, Scheme, TrackKey
from .alternatives import Alternative, Alternatives, AlternativeType, sound_groups, text_groups

#: EXT-X-MAP in a playlist of whole segments needs version 6, which players have known since 2013.
_BEGIN = ("#EXTM3U", "#EXT-X-VERSION:6")


def master_playlist(package: Package) -> str:
    """Return the playlist of all tracks. The package has at least one video track.

    Variants are sorted by sound group, then by rising bandwidth. So a player that begins with the first variant, before
    it has measured its bandwidth, starts soonest.
    """
    sounds, texts = sound_groups(package), text_groups(package)
    videos = sorted(package.of(PlayedKind.VIDEO), key=package.peak_bps)
    lines = [*_BEGIN, "#EXT-X-INDEPENDENT-SEGMENTS"]
    # Shaka Player takes an identity key in this playlist for the key of an unknown KID, and stops at a later switch.
    keys = dict.fromkeys(track.key for track in package.tracks if track.key is not None)
    lines += (_tag("EXT-X-SESSION-KEY", _key(each)) for each in keys if each.format != IDENTITY)
    lines += (_alternative(group, each) for group in (*sounds, *texts) for each in group.members)
    for groups in [(sound, *texts) for sound in sounds] or [texts]:
        for video in videos:
            lines += (_variant(package, video, groups), reference(playlist_file(video.given)))
    lines += (_keyframe_variant(package, video) for video in videos)
    return _text(lines)


def media_playlist(package: Package, track: PackagedTrack) -> str:
    """Return the playlist of one track.

    The playlists of all video and sound state the same target duration, so that players may switch between them.
    """
    lines = [*_begin(package, track), "#EXT-X-INDEPENDENT-SEGMENTS"]
    return _text([*lines, *_segments(package.layout, track), *_end(package)])


def keyframe_playlist(package: Package, track: PackagedTrack) -> str:
    """Return the playlist of a video track's keyframes for fast seeking: the first keyframe of each segment."""
    lines = [*_begin(package, track), "#EXT-X-I-FRAMES-ONLY"]
    return _text([*lines, *_segments(package.layout, _keyframes_of(track), are_parts=True), *_end(package)])


def _begin(package: Package, track: PackagedTrack) -> tuple[str, ...]:
    kind = "VOD" if package.stage is PackageStage.WHOLE else "EVENT"
    return (*_BEGIN, f"#EXT-X-TARGETDURATION:{package.target_s(track)}", f"#EXT-X-PLAYLIST-TYPE:{kind}")


def _end(package: Package) -> tuple[str, ...]:
    return () if package.stage is PackageStage.GROWING else ("#EXT-X-ENDLIST",)


def _keyframes_of(track: PackagedTrack) -> PackagedTrack:
    """Return the track as if its segments held no more than their keyframes."""
    return replace(track, segments=tuple(replace(each, size_bytes=each.keyframe_bytes) for each in track.segments))


def _segments(layout: Layout, track: PackagedTrack, *, are_parts: bool = False) -> Iterator[str]:
    is_one_file, is_text = has_one_file(track.given, layout), track.given.kind is PlayedKind.TEXT
    if not is_text:
        header = {"URI": _quoted(reference(track_file(track.given) if is_one_file else header_file(track.given)))}
        yield _tag("EXT-X-MAP", header | ({"BYTERANGE": _quoted(f"{track.header_bytes}@0")} if is_one_file else {}))
    if track.key is not None:
        yield _tag("EXT-X-KEY", _key(track.key))
    for number, (segment, duration_us) in enumerate(zip(track.segments, track.durations_us, strict=True), start=1):
        yield f"#EXTINF:{duration_us // MICROSECONDS}.{duration_us % MICROSECONDS:06d},"
        if are_parts or (is_one_file and not is_text):
            yield f"#EXT-X-BYTERANGE:{segment.size_bytes}@{segment.offset_bytes if is_one_file else 0}"
        yield reference(track_file(track.given) if is_one_file else segment_file(track.given, number))


def _key(key: TrackKey) -> dict[str, str]:
    uri = key.uri or f"data:text/plain;base64,{b64encode(key.kid).decode()}"
    return {
        "METHOD": "SAMPLE-AES" if key.scheme is Scheme.CBCS else "SAMPLE-AES-CTR",
        "URI": f'"{uri}"',  # not redacted: a player needs the query
        "KEYID": f"0x{key.kid.hex()}",  # not in the draft; for players that ask for the key before they have the header
        "KEYFORMAT": _quoted(key.format),
        "KEYFORMATVERSIONS": _quoted("1"),
    }


def _alternative(group: Alternatives, alternative: Alternative) -> str:
    given, channels = alternative.track.given, alternative.track.channels
    attributes = {"TYPE": group.type, "GROUP-ID": _quoted(group.name), "NAME": _quoted(alternative.name)}
    if given.language:
        attributes["LANGUAGE"] = _quoted(given.language)
    attributes |= {"DEFAULT": _yes(alternative.is_default), "AUTOSELECT": _yes(alternative.is_automatic)}
    if group.type is AlternativeType.SUBTITLES:
        attributes["FORCED"] = _yes(given.is_forced)
    if channels:
        attributes["CHANNELS"] = _quoted(str(channels))
    return _tag("EXT-X-MEDIA", attributes | {"URI": _quoted(reference(playlist_file(alternative.track.given)))})


def _variant(package: Package, video: PackagedTrack, groups: tuple[Alternatives, ...]) -> str:
    """Return a variant's tag, with the sum of the video's bitrate and the largest bitrate in each group."""
    tracks = [(video,), *(group.tracks for group in groups)]
    sound = (track.codec for group in groups if group.type is AlternativeType.SOUND for track in group.tracks)
    attributes = _rates(
        peak_bps=sum(max(map(package.peak_bps, each)) for each in tracks),
        mean_bps=sum(max(track.mean_bps for track in each) for each in tracks),
    )
    attributes |= _picture(video, [video.codec, *sound])
    if video.frame_rate is not None:
        thousandths = round(video.frame_rate * 1000)
        attributes["FRAME-RATE"] = f"{thousandths // 1000}.{thousandths % 1000:03d}"
    attributes |= {group.type: _quoted(group.name) for group in groups}
    return _tag("EXT-X-STREAM-INF", attributes)


def _keyframe_variant(package: Package, video: PackagedTrack) -> str:
    keyframes = _keyframes_of(video)
    attributes = _rates(peak_bps=package.peak_bps(keyframes), mean_bps=keyframes.mean_bps)
    attributes |= _picture(video, [video.codec]) | {"URI": _quoted(reference(keyframes_file(video.given)))}
    return _tag("EXT-X-I-FRAME-STREAM-INF", attributes)


def _rates(*, peak_bps: int, mean_bps: int) -> dict[str, str]:
    return {"BANDWIDTH": str(peak_bps), "AVERAGE-BANDWIDTH": str(mean_bps)}


def _picture(video: PackagedTrack, codecs: Iterable[str]) -> dict[str, str]:
    return (
        {"CODECS": _quoted(",".join(dict.fromkeys(codecs)))}
        | ({"SUPPLEMENTAL-CODECS": _quoted(video.supplemental_codec)} if video.supplemental_codec else {})
        | {"RESOLUTION": f"{video.width}x{video.height}"}
        | ({"VIDEO-RANGE": video.video_range} if video.video_range else {})
    )


def _tag(name: str, attributes: Mapping[str, str]) -> str:
    return f"#{name}:{','.join(f'{key}={value}' for key, value in attributes.items())}"


def _quoted(text: str) -> str:
    """Return a quoted string. HLS allows no quotes in it, so they become apostrophes."""
    return '"' + one_line(text).replace('"', "'") + '"'


def _yes(value: bool) -> str:  # noqa: FBT001 - the value that is written
    return "YES" if value else "NO"


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
