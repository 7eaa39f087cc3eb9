"""Oddities of a source (docs/probe.md): they explain cuts, repairs, and differences between players."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from ..source.sound_life import counted_from, in_words
from .packets import PacketTally, SourceTally
from .values import RIDER_WORDS, Oddity, PictureFacts, TimelineFacts, TrackFacts
from .video import ChangeFacts, VideoFindings

_LIE_S = Fraction(1, 4)
_LIE_SHARE = Fraction(1, 50)
_LATE_S = Fraction(1, 10)
_GAP_FACTOR = 3
_NAMED_CHANGES = 4
_DOVI_WITHOUT_BASE_LAYER = 5
_ENCRYPTED_TAGS = frozenset({"encv", "enca", "encs", "enct", "drmi", "drms"})
_ENCRYPTED_SIDE_DATA = frozenset({"encryption_info", "encryption_init_info"})


def find_oddities(
    tally: SourceTally, tracks: tuple[TrackFacts, ...], duration_s: Fraction | None, videos: Mapping[int, VideoFindings]
) -> tuple[Oddity, ...]:
    """Return the oddities of the whole file, then those of each track.

    ``videos`` has the video tracks by track number.
    """
    found = [Oddity(code=code, message=message) for code, message in _of_file(tally, tracks, duration_s)]
    first = next((each.video.timeline for each in tracks if each.video is not None and each.video.timeline), None)
    for track in tracks:
        own = _of_track(track, tally.tracks.get(track.index, PacketTally()), videos.get(track.index), first)
        found += [Oddity(code=code, message=text, track=track.index) for code, text in own]
    return tuple(found)


def _of_file(
    tally: SourceTally, tracks: tuple[TrackFacts, ...], measured: Fraction | None
) -> Iterator[tuple[str, str]]:
    videos = sum(track.video is not None for track in tracks)
    if videos == 0:
        sound = any(track.audio is not None for track in tracks)
        yield "no-video", "there is no video, only sound" if sound else "there is no video"
    if videos > 1:
        message = f"there are {videos} video tracks; transcode takes the first by default (--video-track)"
        yield "several-video-tracks", message
    if tally.broken is not None:
        yield "cut-short", f"reading stops before the end: {tally.broken}"
    elif tally.is_cut_short:
        yield "cut-short", "the file is shorter than its own structure says"
    stated = tally.header_duration_s
    if stated is not None and measured is not None and abs(stated - measured) > max(_LIE_S, measured * _LIE_SHARE):
        message = f"the header says {float(stated):.3f} s, the packets last {float(measured):.3f} s"
        yield "header-duration-lies", message


def _of_track(
    track: TrackFacts, tally: PacketTally, found: VideoFindings | None, first: TimelineFacts | None
) -> Iterator[tuple[str, str]]:
    yield from _of_any_track(track, tally)
    if track.audio is not None:
        yield from _of_sound(track, tally, first)
    if track.video is None:
        return
    if found is not None and found.unreadable is not None:
        yield "no-index", found.unreadable
    if found is not None and found.undecodable is not None:
        yield "undecodable", found.undecodable
    if tally.sequence_changes or "new_extradata" in tally.side_data or "param_change" in tally.side_data:
        yield "parameters-change", "the coding parameters change in mid-stream: the picture size may change too"
    if found is not None:
        yield from _of_changes(found.changes)
    if track.video.picture is not None:
        yield from _of_picture(track.video.picture)
    if track.video.timeline is not None:
        yield from _of_timeline(track.video.timeline)


def _of_changes(changes: tuple[ChangeFacts, ...]) -> Iterator[tuple[str, str]]:
    for what in dict.fromkeys(change.what for change in changes):
        own = [change for change in changes if change.what == what]
        named = [f"{each.before} to {each.after} at {float(each.time_s):.3f} s" for each in own[:_NAMED_CHANGES]]
        more = f" and {len(own) - _NAMED_CHANGES} more times" if len(own) > _NAMED_CHANGES else ""
        yield "picture-changes", f"the {what} changes: {', '.join(named)}{more}"


def _of_any_track(track: TrackFacts, tally: PacketTally) -> Iterator[tuple[str, str]]:
    if track.tag in _ENCRYPTED_TAGS or tally.side_data & _ENCRYPTED_SIDE_DATA:
        yield "encrypted", "the track is encrypted; codecfleet has no keys"
    if not track.decodable and track.kind in ("video", "audio", "subtitle"):
        yield "unknown-codec", f"FFmpeg does not know the codec of the {track.kind}, or its header is missing"
    # The headers of other tracks count samples, or packets that readers skip.
    if track.kind == "video" and tally.header_frames > tally.packets:
        yield "header-frames-lie", f"the header promises {tally.header_frames} packets, the file holds {tally.packets}"
    elif not tally.packets and track.kind in ("video", "audio", "subtitle"):
        yield "empty-track", f"the {track.kind} track has no packets"


def _of_sound(track: TrackFacts, tally: PacketTally, first: TimelineFacts | None) -> Iterator[tuple[str, str]]:
    if tally.formats:
        zero_s = Fraction(0) if first is None else None if first.clock_resets else first.first_s
        words = in_words(counted_from(tally.formats, zero_s))
        yield "audio-format-changes", f"the format of the sound changes: {words}"
    if first is None or track.start_s is None:
        return
    late_s = track.start_s - first.first_s
    if abs(late_s) > _LATE_S:
        word = "after" if late_s > 0 else "before"
        yield "sound-offset", f"the sound starts {abs(float(late_s)):.3f} s {word} the first picture"


def _of_picture(picture: PictureFacts) -> Iterator[tuple[str, str]]:
    subsampled = picture.pix_fmt is not None and any(word in picture.pix_fmt for word in ("420", "nv12", "p010"))
    if subsampled and (picture.width % 2 or picture.height % 2):
        yield "odd-size", f"{picture.width}x{picture.height} is an odd size for subsampled chroma"
    if picture.interlaced:
        yield "interlaced", "the pictures are interlaced"
    if picture.rotation_degrees or picture.mirrored:
        mirrored = " and mirrored" if picture.mirrored else ""
        yield "rotated", f"players show the pictures turned by {picture.rotation_degrees} degrees{mirrored}"
    if picture.dolby_vision_profile == _DOVI_WITHOUT_BASE_LAYER:
        yield "dolby-vision-5", "Dolby Vision profile 5: without its metadata the colours are wrong"
    for rider in picture.riders:
        if rider.first_s:
            words = RIDER_WORDS.get(rider.kind, rider.kind)
            yield "begins-late", f"{words} from {float(rider.first_s):.3f} s on, not from the first picture"
    if picture.crop is not None:
        yield "cropped", "the container hides an edge of the pictures"
    if "ALPHA" in picture.side_data:
        yield "alpha", "the pictures have transparency, which no output has"
    if "VIEW_ID" in picture.side_data:
        yield "second-view", "there is a second view, for stereo; only the first is decoded"


def _of_timeline(timeline: TimelineFacts) -> Iterator[tuple[str, str]]:
    yield from _of_times(timeline)
    yield from _of_access(timeline)
    rate = timeline.rate
    if timeline.missing_pts:
        # Pictures without times leave gaps, in which the steps do not show the rate.
        return
    if not rate.constant:
        spread = f"{_ms(rate.shortest_s)} to {_ms(rate.longest_s)} ms, usually {_ms(rate.typical_s)} ms"
        yield "variable-frame-rate", f"a picture lasts {spread}"
    if rate.longest_s is not None and rate.typical_s is not None and rate.longest_s > _GAP_FACTOR * rate.typical_s:
        yield "gap", f"one picture stays for {_ms(rate.longest_s)} ms; {_ms(rate.typical_s)} ms are usual"


def _of_times(timeline: TimelineFacts) -> Iterator[tuple[str, str]]:
    if timeline.missing_pts == timeline.pictures:
        yield "no-pts", "no packet has a presentation time, so times are derived by counting pictures"
    elif timeline.missing_pts:
        yield "pts-missing", f"{timeline.missing_pts} packets have no presentation time"
    counted = (
        ("dts-missing", timeline.missing_dts, "{} packets have no decoding time"),
        ("pts-repeated", timeline.repeated_pts, "{} packets repeat a presentation time"),
        ("clock-reset", timeline.clock_resets, "the clock was reset {} times"),
        ("dts-backward", timeline.backward_dts, "the decoding time steps back {} times"),
        ("edit-list-discards", timeline.discarded_packets, f"an edit list hides {{}} of {timeline.packets} packets"),
        ("corrupt-packets", timeline.corrupt_packets, "{} packets are marked as damaged"),
    )
    yield from ((code, message.format(count)) for code, count, message in counted if count)
    if timeline.first_s < 0 or timeline.first_s > 1:
        yield "start-not-zero", f"the first picture is at {float(timeline.first_s):.3f} s"


def _of_access(timeline: TimelineFacts) -> Iterator[tuple[str, str]]:
    if timeline.flagged_packets == 0:
        yield "no-keyframe-flags", "no packet is flagged as a keyframe: the track is one segment"
    elif timeline.flagged_packets == timeline.packets > 1:
        yield "all-keyframes", "every packet is flagged as a keyframe"
    if timeline.unusable_keyframes:
        yield "keyframe-flags-lie", f"decoding cannot begin at {timeline.unusable_keyframes} of the flagged packets"
    points = timeline.access_points
    if timeline.gop.structure == "single" and timeline.pictures > 1:
        yield "single-gop", "there is one access point: the track is one segment"
    if timeline.gop.structure == "open":
        leading = sum(point.leading_pictures > 0 for point in points[1:])
        yield "open-gop", f"at {leading} access points, pictures shown before the point need pictures decoded before it"
    if points and points[0].packet > 0:
        yield "starts-without-keyframe", f"the first access point is packet {points[0].packet}"


def _ms(seconds: Fraction | None) -> str:
    return "?" if seconds is None else f"{float(seconds) * 1000:.1f}"
