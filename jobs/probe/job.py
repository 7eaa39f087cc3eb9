"""``probe``: describes a file from all of its packets, including its oddities."""

from fractions import Fraction
from os import PathLike

from av.stream import Disposition

from ...actors.media.shared_blocks import blocks_held
from ..request.values import location
from ..source.tracks import Track, TrackKind, describe_tracks, tag_value
from .lines import ProbeReport
from .oddities import find_oddities
from .packets import PacketTally, SourceTally, tally_packets
from .values import AudioFacts, ChapterFacts, TrackFacts
from .video import VideoFindings, probe_video


def probe(source: str | PathLike[str]) -> ProbeReport:
    """Probe the source at a path or URL. A source without video is not an error.

    Raises:
        InputError: the source does not exist, or is not a readable media file.
        UsageError: ``source`` is not a path.
    """
    source = location("source", source)
    with blocks_held(source):
        return _probed(source)


def _probed(source: str) -> ProbeReport:
    described = describe_tracks(source)
    tally = tally_packets(source)
    videos = {
        track.index: probe_video(source, number) for number, track in enumerate(described.of_kind(TrackKind.VIDEO))
    }
    tracks = tuple(
        _track(track, tally.tracks.get(track.index, PacketTally()), videos.get(track.index))
        for track in described.tracks
    )
    duration_s = _duration(tracks, tally)
    return ProbeReport(
        source=source,
        container=described.format,
        size_bytes=tally.size_bytes,
        duration_s=duration_s,
        header_duration_s=tally.header_duration_s,
        tags=dict(described.tags),
        timecode=described.timecode,
        chapters=tuple(
            ChapterFacts(start_s=chapter.start_s, end_s=chapter.end_s, title=tag_value(chapter.tags, "title") or "")
            for chapter in sorted(described.chapters, key=lambda each: each.start_s)
        ),
        tracks=tracks,
        oddities=find_oddities(tally, tracks, duration_s, videos),
    )


def _track(track: Track, tally: PacketTally, video: VideoFindings | None) -> TrackFacts:
    timeline = None if video is None else video.facts.timeline
    attachment = track.attachment
    return TrackFacts(
        index=track.index,
        kind=track.kind.value,
        codec=track.codec,
        tag=track.tag,
        language=track.language,
        language_tag=track.language_tag,
        title=next((value for key in ("title", "name") if (value := tag_value(track.tags, key)) is not None), None),
        dispositions=tuple(f.name for f in Disposition if f.name is not None and f.value & track.disposition),
        decodable=track.decodable,
        start_s=track.start_s if timeline is None else timeline.first_s,
        duration_s=tally.duration_s if timeline is None else timeline.duration_s,
        packets=tally.packets,
        size_bytes=tally.size_bytes,
        audio=None if track.audio is None else AudioFacts.model_validate(track.audio, from_attributes=True),
        video=None if video is None else video.facts,
        attachment=None if attachment is None else f"{attachment.name} ({attachment.mime})",
    )


def _duration(tracks: tuple[TrackFacts, ...], tally: SourceTally) -> Fraction | None:
    spans = [_span(track, tally) for track in tracks if track.kind in ("video", "audio")]
    known = [span for span in spans if span is not None]
    return max(end for _, end in known) - min(start for start, _ in known) if known else None


def _span(track: TrackFacts, tally: SourceTally) -> tuple[Fraction, Fraction] | None:
    if track.video is not None and track.video.timeline is not None:
        timeline = track.video.timeline
        return timeline.first_s, timeline.first_s + timeline.duration_s
    found = tally.tracks.get(track.index)
    return None if found is None or found.first_s is None or found.end_s is None else (found.first_s, found.end_s)
