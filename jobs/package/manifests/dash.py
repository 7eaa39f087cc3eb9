"""The DASH manifest of a package, after ISO/IEC 23009-1 and the guidelines of DASH-IF."""

from base64 import b64encode
from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from math import ceil
from uuid import UUID
from xml.etree import ElementTree as ET

from ..names import has_one_file, header_file, one_line, reference, segment_template, track_file
from ..values import MICROSECONDS, Layout, Package, PackagedTrack, PlayedKind
from .alternatives import sound_groups, text_groups

_NAMESPACES = {"xmlns": "urn:mpeg:dash:schema:mpd:2011", "xmlns:scte214": "urn:scte:dash:scte214-extensions"}
_PROFILES = {
    Layout.RANGES: "urn:mpeg:dash:profile:isoff-on-demand:2011",
    Layout.FILES: "urn:mpeg:dash:profile:isoff-live:2011",
}
_ALIGNED = {
    Layout.RANGES: {"subsegmentAlignment": "true", "subsegmentStartsWithSAP": "1"},
    Layout.FILES: {"segmentAlignment": "true", "startWithSAP": "1"},
}
_ROLES = "urn:mpeg:dash:role:2011"
#: The transfer characteristics of HDR, as code points of ISO/IEC 23091-2. SDR needs none.
_TRANSFERS = {"PQ": "16", "HLG": "18"}
_DOLBY_CHANNELS = "tag:dolby.com,2014:dash:audio_channel_configuration:2011"
#: Code points of ISO/IEC 23091-3 for the usual layout of each number of channels.
_CHANNEL_CONFIGURATIONS = {1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 6: "6", 7: "11", 8: "12"}

_Set = tuple[ET.Element, Sequence[PackagedTrack]]  # an adaptation set and its tracks


def manifest(package: Package) -> str:
    """Return the manifest. The package must have time bases of 1/n s, no negative times, and segments in each track.

    Video tracks of one codec and dynamic range are one adaptation set, in which players switch. Each track of sound or
    text is a set of its own.
    """
    root = ET.Element(
        "MPD",
        _NAMESPACES
        | {
            "profiles": _PROFILES[package.layout],
            "type": "static",
            "mediaPresentationDuration": _duration(_end_s(package)),
            "minBufferTime": _duration(Fraction(ceil(_buffer_s(package) * 1000), 1000)),
        },
    )
    period = ET.SubElement(root, "Period", {"id": "0", "start": "PT0S"})
    if any(track.key for track in package.tracks):
        root.set("xmlns:cenc", "urn:mpeg:cenc:2013")
    sets = _video_sets(package)
    groups = (*sound_groups(package), *text_groups(package))
    defaults = {each.track.given.name for group in groups for each in group.members if each.is_default}
    for track in (*package.of(PlayedKind.AUDIO), *package.of(PlayedKind.TEXT)):
        sets.append((_chosen_set(track, is_default=track.given.name in defaults), (track,)))
    for number, (element, tracks) in enumerate(sets):
        element.set("id", str(number))
        if element.get("contentType") != "text":
            element.attrib |= _ALIGNED[package.layout]
        element.extend(_representation(package, track) for track in tracks)
        _protect(element, tracks)
        period.append(element)
    ET.indent(root)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document.decode() + "\n"


def _end_s(package: Package) -> Fraction:
    """Return the time at which the last picture or sound ends."""
    tracks = (*package.of(PlayedKind.VIDEO), *package.of(PlayedKind.AUDIO))
    return max(track.segments[0].start_ticks * track.time_base + track.duration_s for track in tracks)


def _buffer_s(package: Package) -> Fraction:
    """Return the time that a player must load ahead so that playback never waits if it loads at the stated bitrates."""
    return max(
        _ahead_s(track, package.peak_bps(track))
        for track in (*package.of(PlayedKind.VIDEO), *package.of(PlayedKind.AUDIO))
    )


def _ahead_s(track: PackagedTrack, bandwidth_bps: int) -> Fraction:
    """Return the longest delay: the time to load a run of segments, less the time to play all but the last."""
    most = behind = played = 0  # in bits times microseconds
    for segment, duration_us in zip(track.segments, track.durations_us, strict=True):
        behind = max(0, behind - played) + segment.size_bytes * 8 * MICROSECONDS
        most, played = max(most, behind), duration_us * bandwidth_bps
    return Fraction(most, bandwidth_bps * MICROSECONDS)


def _video_sets(package: Package) -> list[_Set]:
    alike: dict[tuple[str, str], list[PackagedTrack]] = {}
    for track in package.of(PlayedKind.VIDEO):
        alike.setdefault((track.codec.split(".")[0], track.video_range), []).append(track)
    ranges = {video_range for _, video_range in alike}
    # A player must skip a set with an essential property that it does not know. So the property is essential only if an
    # SDR set remains.
    kind = "SupplementalProperty" if ranges <= _TRANSFERS.keys() else "EssentialProperty"
    return [(_video_set(tracks, kind), tracks) for tracks in alike.values()]


def _video_set(tracks: Sequence[PackagedTrack], range_property: str) -> ET.Element:
    largest = max(tracks, key=lambda track: track.width * track.height)
    shape = Fraction(largest.width, largest.height)
    attributes = {
        "contentType": "video",
        "mimeType": "video/mp4",
        "par": f"{shape.numerator}:{shape.denominator}",
        "maxWidth": str(max(track.width for track in tracks)),
        "maxHeight": str(max(track.height for track in tracks)),
    }
    rates = [track.frame_rate for track in tracks if track.frame_rate is not None]
    if rates:
        attributes["maxFrameRate"] = str(max(rates))
    element = ET.Element("AdaptationSet", attributes)
    if transfer := _TRANSFERS.get(largest.video_range):
        _described(element, range_property, "urn:mpeg:mpegB:cicp:TransferCharacteristics", transfer)
    _described(element, "Role", _ROLES, "main")
    return element


def _chosen_set(track: PackagedTrack, *, is_default: bool) -> ET.Element:
    """Return the adaptation set of one track of sound or text."""
    is_sound = track.given.kind is PlayedKind.AUDIO
    attributes = {"contentType": track.given.kind.value, "mimeType": "audio/mp4" if is_sound else "text/vtt"}
    if track.given.language:
        attributes["lang"] = track.given.language
    element = ET.Element("AdaptationSet", attributes)
    if track.dolby_channels:
        _described(element, "AudioChannelConfiguration", _DOLBY_CHANNELS, track.dolby_channels)
    elif layout := _CHANNEL_CONFIGURATIONS.get(track.channels):
        _described(element, "AudioChannelConfiguration", "urn:mpeg:mpegB:cicp:ChannelConfiguration", layout)
    if title := one_line(track.given.title):
        ET.SubElement(element, "Label").text = title
    if is_sound:
        _described(element, "Role", _ROLES, "main" if is_default else "alternate")
    else:
        _described(element, "Role", _ROLES, "forced-subtitle" if track.given.is_forced else "subtitle")
    return element


def _representation(package: Package, track: PackagedTrack) -> ET.Element:
    is_text = track.given.kind is PlayedKind.TEXT
    attributes = {
        "id": reference(track.given.name),
        "bandwidth": str(track.mean_bps if is_text else package.peak_bps(track)),
    }
    if not is_text:
        attributes["codecs"] = track.codec
    if track.supplemental_codec:
        codec, _, brands = track.supplemental_codec.partition("/")
        attributes |= {"scte214:supplementalCodecs": codec, "scte214:supplementalProfiles": brands}
    if track.given.kind is PlayedKind.VIDEO:
        attributes |= {"width": str(track.width), "height": str(track.height), "sar": "1:1"}
    if track.frame_rate is not None:
        attributes["frameRate"] = str(track.frame_rate)
    if track.sample_rate_hz:
        attributes["audioSamplingRate"] = str(track.sample_rate_hz)
    element = ET.Element("Representation", attributes)
    if has_one_file(track.given, package.layout):
        ET.SubElement(element, "BaseURL").text = reference(track_file(track.given))
    if not is_text:
        element.append(_index(track) if package.layout is Layout.RANGES else _timeline(track))
    return element


def _protect(element: ET.Element, tracks: Sequence[PackagedTrack]) -> None:
    """State the keys of the tracks: in their adaptation set if it has one, else in each representation."""
    parents = element.findall("Representation")
    if len({track.key for track in tracks}) == 1:
        parents, tracks = [element], tracks[:1]
    for parent, track in zip(parents, tracks, strict=True):
        if track.key is not None:
            scheme = {"schemeIdUri": "urn:mpeg:dash:mp4protection:2011", "value": track.key.scheme}
            described = [ET.Element("ContentProtection", scheme | {"cenc:default_KID": str(UUID(bytes=track.key.kid))})]
            for each in track.pssh:
                system = {"schemeIdUri": f"urn:uuid:{UUID(bytes=each[12:28])}"}
                described.append(ET.Element("ContentProtection", system))
                ET.SubElement(described[-1], "cenc:pssh").text = b64encode(each).decode()
            # The schema wants these elements after AudioChannelConfiguration, and before all others.
            place = sum(each.tag == "AudioChannelConfiguration" for each in parent)
            parent[place:place] = described


def _index(track: PackagedTrack) -> ET.Element:
    """Return the byte ranges of the header and of the segment index in the track's file."""
    header_bytes, end_bytes = track.header_bytes, track.header_bytes + track.index_bytes
    attributes = {"timescale": str(track.time_base.denominator), "indexRange": f"{header_bytes}-{end_bytes - 1}"}
    element = ET.Element("SegmentBase", attributes)
    ET.SubElement(element, "Initialization", {"range": f"0-{header_bytes - 1}"})
    return element


def _timeline(track: PackagedTrack) -> ET.Element:
    """Return the names of the header's and the segments' files, and the times of the segments."""
    attributes = {
        "timescale": str(track.time_base.denominator),
        "initialization": reference(header_file(track.given)),
        "media": segment_template(track.given),
        "startNumber": "1",
    }
    element = ET.Element("SegmentTemplate", attributes)
    timeline = ET.SubElement(element, "SegmentTimeline")
    start_ticks = {"t": str(track.segments[0].start_ticks)}
    for duration, run in groupby(each.duration_ticks for each in track.segments):
        repeats = sum(1 for _ in run) - 1
        ET.SubElement(timeline, "S", start_ticks | {"d": str(duration)} | ({"r": str(repeats)} if repeats else {}))
        start_ticks = {}
    return element


def _described(parent: ET.Element, name: str, scheme: str, value: str) -> None:
    ET.SubElement(parent, name, {"schemeIdUri": scheme, "value": value})


def _duration(time_s: Fraction) -> str:
    """Return a time as an ``xs:duration``, to the nearest microsecond."""
    whole, part = divmod(round(time_s * MICROSECONDS), MICROSECONDS)
    return f"PT{whole}{f'.{part:06d}'.rstrip('0') if part else ''}S"
