"""The DASH manifest, read back and compared with the package by the rules of ISO/IEC 23009-1."""

import re
from dataclasses import replace
from fractions import Fraction
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from codecfleet.jobs.package.manifests.dash import manifest
from codecfleet.jobs.package.values import Layout, Package, PackagedTrack, PlayedKind

from .packages import a_ladder, packages, sound_track, text_track, video_track

_MPD = "{urn:mpeg:dash:schema:mpd:2011}"
_SCTE = "{urn:scte:dash:scte214-extensions}"
_MICROSECOND = Fraction(1, 1_000_000)


def _seconds(duration: str) -> Fraction:
    match = re.fullmatch(r"PT(\d+(?:\.\d+)?)S", duration)
    assert match
    return Fraction(match[1])


def _root(package: Package) -> ET.Element:
    text = manifest(package)
    assert text.startswith("<?xml version='1.0' encoding='utf-8'?>\n")
    return ET.fromstring(text.encode())  # noqa: S314 - the text was made above


def _with_tracks(package: Package) -> list[tuple[ET.Element, ET.Element, PackagedTrack]]:
    """Return each representation with its adaptation set and its track."""
    named = {track.given.name: track for track in package.tracks}
    sets = _root(package).findall(f"./{_MPD}Period/{_MPD}AdaptationSet")
    found = [
        (each, one, named[unquote(one.attrib["id"])]) for each in sets for one in each.iter(f"{_MPD}Representation")
    ]
    assert sorted(track.given.name for _, _, track in found) == sorted(named)
    assert len({one.attrib["id"] for _, one, _ in found}) == len(named)
    assert all(re.fullmatch(r"\S+", one.attrib["id"]) for _, one, _ in found)
    assert len({each.attrib["id"] for each in sets}) == len(sets)
    return found


def _values(element: ET.Element, name: str) -> list[str]:
    return [each.attrib["value"] for each in element.findall(f"{_MPD}{name}")]


def test_one_ladder_of_ranges() -> None:
    """Each track is one file, of which a player reads the header and the index."""
    package = a_ladder()
    root = _root(package)
    assert root.attrib["profiles"] == "urn:mpeg:dash:profile:isoff-on-demand:2011"
    assert root.attrib["type"] == "static"
    assert root.attrib["mediaPresentationDuration"] == "PT4.004S"
    large, small = (one for _, one, track in _with_tracks(package) if track.given.kind is PlayedKind.VIDEO)
    assert large.attrib == {
        "id": "1080p",
        "bandwidth": "1998002",
        "codecs": "avc1.640028",
        "width": "1920",
        "height": "1080",
        "sar": "1:1",
        "frameRate": "24000/1001",
    }
    assert small.findtext(f"{_MPD}BaseURL") == "540p.mp4"
    (base,) = small.findall(f"{_MPD}SegmentBase")
    assert base.attrib == {"timescale": "24000", "indexRange": "800-999"}
    (header,) = base
    assert header.attrib == {"range": "0-799"}


def test_one_ladder_of_files() -> None:
    """Each segment is a file, whose number and time a player computes."""
    _, large, _ = _with_tracks(a_ladder(Layout.FILES))[0]
    (template,) = large.findall(f"{_MPD}SegmentTemplate")
    assert template.attrib == {
        "timescale": "24000",
        "initialization": "1080p/init.mp4",
        "media": "1080p/$Number%05d$.m4s",
        "startNumber": "1",
    }
    assert [each.attrib for each in template.iter(f"{_MPD}S")] == [{"t": "0", "d": "48048", "r": "1"}]


@given(packages())
def test_times_and_ranges_are_those_of_the_tracks(package: Package) -> None:
    """A timeline has each segment with its exact ticks, and ranges end where the segments begin."""
    for adaptation, one, track in _with_tracks(package):
        if track.given.kind is PlayedKind.TEXT:
            assert one.findtext(f"{_MPD}BaseURL") == f"{track.given.name}.vtt".replace("#", "%23")
            continue
        (description,) = (each for each in one if each.tag != f"{_MPD}BaseURL")
        assert Fraction(1, int(description.attrib["timescale"])) == track.time_base
        if package.layout is Layout.RANGES:
            begin, end = map(int, description.attrib["indexRange"].split("-"))
            assert (begin, end + 1) == (track.header_bytes, track.segments[0].offset_bytes)
            assert description[0].attrib["range"] == f"0-{begin - 1}"
            assert adaptation.attrib["subsegmentStartsWithSAP"] == "1"
            continue
        times: list[tuple[int, int]] = []
        at = 0
        for each in description.iter(f"{_MPD}S"):
            at = int(each.attrib.get("t", at))
            for _ in range(1 + int(each.attrib.get("r", 0))):
                times.append((at, int(each.attrib["d"])))
                at += int(each.attrib["d"])
        assert times == [(each.start_ticks, each.duration_ticks) for each in track.segments]
        assert adaptation.attrib["startWithSAP"] == adaptation.attrib["segmentAlignment"].replace("true", "1")


@given(packages())
def test_a_player_at_the_stated_bandwidth_never_waits(package: Package) -> None:
    """A player that loads for the buffer's time at the stated bandwidth gets every later segment in time."""
    root = _root(package)
    buffer_s = _seconds(root.attrib["minBufferTime"])
    for _, one, track in _with_tracks(package):
        if track.given.kind is PlayedKind.TEXT:
            continue
        bandwidth_bps = int(one.attrib["bandwidth"])
        for first in range(len(track.segments)):
            loaded_bits, played_s = 0, Fraction(0)
            for segment in track.segments[first:]:
                loaded_bits += segment.size_bytes * 8
                # Segments' times are stated to a microsecond.
                assert loaded_bits <= bandwidth_bps * (buffer_s + played_s + 2 * _MICROSECOND)
                played_s += segment.duration_ticks * track.time_base
    ends = [track.duration_s for track in package.tracks if track.given.kind is not PlayedKind.TEXT]
    assert abs(_seconds(root.attrib["mediaPresentationDuration"]) - max(ends)) <= _MICROSECOND


@given(packages())
def test_sets_hold_what_a_player_switches_between(package: Package) -> None:
    """Video of one codec and range is one set; each track of sound or text is a set with language, title and role."""
    keys: dict[str, set[tuple[str, str]]] = {}
    has_sdr = any(track.video_range == "SDR" for track in package.of(PlayedKind.VIDEO))
    for adaptation, one, track in _with_tracks(package):
        key = track.given.name
        if track.given.kind is PlayedKind.VIDEO:
            key = track.codec.split(".")[0] + track.video_range
            transfer = {"SDR": [], "PQ": ["16"], "HLG": ["18"]}[track.video_range]
            assert _values(adaptation, "EssentialProperty") == (transfer if has_sdr else [])
            assert _values(adaptation, "SupplementalProperty") == ([] if has_sdr else transfer)
            assert int(adaptation.attrib["maxWidth"]) >= track.width
            assert (one.get(f"{_SCTE}supplementalCodecs"), one.get(f"{_SCTE}supplementalProfiles")) in {
                (None, None),
                tuple(track.supplemental_codec.split("/")),
            }
        else:
            assert adaptation.get("lang") == track.given.language
        keys.setdefault(adaptation.attrib["id"], set()).add((track.given.kind.value, key))
        assert adaptation.attrib["contentType"] == track.given.kind.value
        assert one.get("codecs") == (None if track.given.kind is PlayedKind.TEXT else track.codec)
    assert all(len(each) == 1 for each in keys.values())
    assert len({next(iter(each)) for each in keys.values()}) == len(keys)


def test_dolby_has_its_own_scheme_of_channels() -> None:
    """Players know AC-3's speakers by Dolby's channel map (ETSI TS 102 366, I.1.2)."""
    tracks = (
        video_track("v", sizes_bytes=[9], frames=[48]),
        replace(sound_track("dolby", "ac-3", 6), dolby_channels="F801"),
        sound_track("aac", channels=6),
    )
    package = Package(tracks=tracks, layout=Layout.RANGES, segment_s=Fraction(2))
    stated = {
        track.given.name: [(each.attrib["schemeIdUri"][:3], each.attrib["value"]) for each in found]
        for adaptation, _, track in _with_tracks(package)
        if (found := adaptation.findall(f"{_MPD}AudioChannelConfiguration"))
    }
    assert stated == {"dolby": [("tag", "F801")], "aac": [("urn", "6")]}


@pytest.mark.parametrize(("channels", "configuration"), [(1, ["1"]), (2, ["2"]), (6, ["6"]), (8, ["12"]), (16, [])])
def test_channels_and_roles(channels: int, configuration: list[str]) -> None:
    """Channel layouts are code points; the default sound has the role main, forced text the role forced-subtitle."""
    package = Package(
        tracks=(
            video_track("v", sizes_bytes=[9], frames=[48]),
            sound_track("one", channels=channels, title='<The "first">\x00'),
            sound_track("two", channels=channels, is_default=True),
            text_track("three", is_forced=True),
            text_track("four"),
        ),
        layout=Layout.RANGES,
        segment_s=Fraction(2),
    )
    sets = {track.given.name: adaptation for adaptation, _, track in _with_tracks(package)}
    assert _values(sets["one"], "AudioChannelConfiguration") == configuration
    assert sets["one"].findtext(f"{_MPD}Label") == '<The "first">'
    assert {name: _values(each, "Role") for name, each in sets.items()} == {
        "v": ["main"],
        "one": ["alternate"],
        "two": ["main"],
        "three": ["forced-subtitle"],
        "four": ["subtitle"],
    }
