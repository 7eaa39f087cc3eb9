"""HLS playlists, read back and compared with the package by the rules of draft-pantos-hls-rfc8216bis."""

from fractions import Fraction
from itertools import groupby, pairwise

import pytest
from hypothesis import given

from codecfleet.jobs.package.manifests.hls import keyframe_playlist, master_playlist, media_playlist
from codecfleet.jobs.package.manifests.manifests import manifests
from codecfleet.jobs.package.values import Layout, Package, PackagedTrack, PlayedKind

from .packages import a_ladder, packages, sound_track, text_track, video_track
from .playlists import ReadPlaylist, ReadSegment, attributes, file_of, read_master, read_playlist, unquoted

_MICROSECOND = Fraction(1, 1_000_000)


def _peak_bps(playlist: ReadPlaylist, sizes_bytes: list[int]) -> Fraction:
    """Return the peak segment bitrate by its definition, from the playlist's durations."""
    target_s = int(playlist.tags["EXT-X-TARGETDURATION"])
    rates = []
    for first in range(len(sizes_bytes)):
        for last in range(first, len(sizes_bytes)):
            duration_s = sum(each.duration_s for each in playlist.segments[first : last + 1])
            if target_s / Fraction(2) <= duration_s <= target_s * Fraction(3, 2):
                rates.append(Fraction(sum(sizes_bytes[first : last + 1]) * 8) / duration_s)
    return max(rates, default=Fraction(sum(sizes_bytes) * 8) / playlist.duration_s)


def _track_of(package: Package, file: str) -> PackagedTrack:
    (found,) = (track for track in package.tracks if f"{track.given.name}.m3u8" == file)
    return found


def test_one_ladder_in_full() -> None:
    """A ladder's master playlist has each variant once for each encoding of the sound."""
    master = read_master(master_playlist(a_ladder()))
    assert [file for _, file in master.variants] == ["540p.m3u8", "1080p.m3u8"] * 2
    sound_bps, text_bps = 129_033, 1000  # the second segment is shorter
    first, _ = master.variants[0]
    assert first == {
        "BANDWIDTH": str(599_401 + sound_bps + text_bps),
        "AVERAGE-BANDWIDTH": str(549_451 + 128_343 + text_bps),
        "CODECS": '"avc1.640028,mp4a.40.2"',
        "RESOLUTION": "960x540",
        "VIDEO-RANGE": "SDR",
        "FRAME-RATE": "23.976",
        "AUDIO": '"mp4a.40.2-2"',
        "SUBTITLES": '"text"',
    }
    assert [(each["TYPE"], each["GROUP-ID"], each["URI"]) for each in master.media] == [
        ("AUDIO", '"mp4a.40.2-2"', '"en.m3u8"'),
        ("AUDIO", '"mp4a.40.2-2"', '"de.m3u8"'),
        ("AUDIO", '"ac-3-6"', '"en-surround.m3u8"'),
        ("AUDIO", '"ac-3-6"', '"de.m3u8"'),
        ("SUBTITLES", '"text"', '"subtitles-de.m3u8"'),
    ]
    surround, _ = master.variants[2]
    assert unquoted(surround["CODECS"]) == "avc1.640028,ac-3,mp4a.40.2"
    assert [unquoted(each["URI"]) for each in master.keyframes] == ["540p-keyframes.m3u8", "1080p-keyframes.m3u8"]


def test_segments_of_one_file_and_of_many() -> None:
    """Byte ranges begin after the header and the index; single files have none."""
    ranges, files = a_ladder(Layout.RANGES), a_ladder(Layout.FILES)
    duration_s = Fraction(48 * 1001, 24000)
    one = read_playlist(media_playlist(ranges, ranges.tracks[0]))
    assert one.map == {"URI": '"1080p.mp4"', "BYTERANGE": '"800@0"'}
    assert one.segments == (
        ReadSegment("1080p.mp4", duration_s, 500_000, 1000),
        ReadSegment("1080p.mp4", duration_s, 250_000, 501_000),
    )
    many = read_playlist(media_playlist(files, files.tracks[0]))
    assert many.map == {"URI": '"1080p/init.mp4"'}
    assert [each.file for each in many.segments] == ["1080p/00001.m4s", "1080p/00002.m4s"]
    keys = read_playlist(keyframe_playlist(files, files.tracks[0]))
    assert [(each.file, each.size_bytes, each.offset_bytes) for each in keys.segments] == [
        ("1080p/00001.m4s", 166_667, 0),
        ("1080p/00002.m4s", 83_334, 0),
    ]


def test_a_very_short_segment_does_not_state_the_peak() -> None:
    """A segment of one keyframe at the end of a film does not decide the peak bitrate."""
    frames, sizes = [48, 48, 1], [500_000, 500_000, 100_000]
    package = Package(
        tracks=(video_track("v", sizes_bytes=sizes, frames=frames),), layout=Layout.RANGES, segment_s=Fraction(2)
    )
    ((variant, _),) = read_master(master_playlist(package)).variants
    alone_bps = 100_000 * 8 / Fraction(1001, 24000)
    together_bps = 600_000 * 8 / Fraction(1001 * 49, 24000)
    assert together_bps <= int(variant["BANDWIDTH"]) < together_bps + 2 < alone_bps


@given(packages())
def test_durations_do_not_drift(package: Package) -> None:
    """Each segment begins at its time, to the microsecond; the target duration is that of the longest one."""
    targets = set()
    for track in package.tracks:
        playlist = read_playlist(media_playlist(package, track))
        assert len(playlist.segments) == len(track.segments)
        assert abs(playlist.duration_s - track.duration_s) <= _MICROSECOND
        stated_s = Fraction(0)
        for segment, read in zip(track.segments, playlist.segments, strict=True):
            assert abs(segment.start_ticks * track.time_base - stated_s) <= _MICROSECOND
            stated_s += read.duration_s
        target_s = int(playlist.tags["EXT-X-TARGETDURATION"])
        assert all(int(each.duration_s + Fraction(1, 2)) <= target_s for each in playlist.segments)
        assert playlist.tags["EXT-X-PLAYLIST-TYPE"] == "VOD"
        assert playlist.tags.keys() >= {"EXT-X-INDEPENDENT-SEGMENTS", "EXT-X-ENDLIST"}
        assert int(playlist.tags["EXT-X-VERSION"]) >= (3 if playlist.map is None else 6)
        if track.given.kind is not PlayedKind.TEXT:
            targets.add(target_s)
    assert len(targets) == 1


@given(packages())
def test_byte_ranges_adjoin(package: Package) -> None:
    """The header, the index and the segments cover a file without gaps; a keyframe begins its segment."""
    for track in package.of(PlayedKind.VIDEO):
        playlist = read_playlist(media_playlist(package, track))
        keys = read_playlist(keyframe_playlist(package, track))
        assert "EXT-X-I-FRAMES-ONLY" in keys.tags
        assert keys.map == playlist.map
        assert [each.duration_s for each in keys.segments] == [each.duration_s for each in playlist.segments]
        assert [each.file for each in keys.segments] == [each.file for each in playlist.segments]
        if package.layout is Layout.FILES:
            assert {each.size_bytes for each in playlist.segments} == {None}
            assert {each.offset_bytes for each in keys.segments} == {0}
            continue
        assert playlist.map
        assert unquoted(playlist.map["BYTERANGE"]) == f"{track.header_bytes}@0"
        end = track.header_bytes + track.index_bytes
        for segment, key in zip(playlist.segments, keys.segments, strict=True):
            assert segment.offset_bytes == key.offset_bytes == end
            assert segment.size_bytes
            assert key.size_bytes
            assert key.size_bytes <= segment.size_bytes
            end += segment.size_bytes
        assert end == track.segments[-1].offset_bytes + track.segments[-1].size_bytes


@given(packages())
def test_bandwidth_is_the_peak_by_its_definition(package: Package) -> None:
    """A variant states the sum of the largest peak of its video and of each group, and the same of the averages."""
    master = read_master(master_playlist(package))
    files = manifests(package)

    def rates(file: str) -> tuple[Fraction, Fraction]:
        sizes = [each.size_bytes for each in _track_of(package, file).segments]
        playlist = read_playlist(files[file])
        return _peak_bps(playlist, sizes), Fraction(sum(sizes) * 8) / playlist.duration_s

    for variant, file in master.variants:
        groups = [[file]]
        for kind in ("AUDIO", "SUBTITLES"):
            members = [each for each in master.media if (each["TYPE"], each["GROUP-ID"]) == (kind, variant.get(kind))]
            groups += [[file_of(unquoted(each["URI"])) for each in members]] if members else []
        peak_bps = sum(max(rates(each)[0] for each in group) for group in groups)
        mean_bps = sum(max(rates(each)[1] for each in group) for group in groups)
        assert peak_bps <= int(variant["BANDWIDTH"]) < peak_bps + len(groups)
        assert mean_bps <= int(variant["AVERAGE-BANDWIDTH"]) < mean_bps + len(groups)
    for keyframes in master.keyframes:
        playlist = read_playlist(files[file_of(unquoted(keyframes["URI"]))])
        sizes = [each.size_bytes or 0 for each in playlist.segments]
        peak_bps = _peak_bps(playlist, sizes)
        assert peak_bps <= int(keyframes["BANDWIDTH"]) < peak_bps + 1


@given(packages())
def test_variants_rise_and_state_their_codecs(package: Package) -> None:
    """Each video track is a variant of each sound group, by rising bandwidth, with all codecs that it may play."""
    master = read_master(master_playlist(package))
    videos = package.of(PlayedKind.VIDEO)
    sounds = list(dict.fromkeys(each["GROUP-ID"] for each in master.media if each["TYPE"] == "AUDIO"))
    by_sound = [(sound, list(each)) for sound, each in groupby(master.variants, key=lambda each: each[0].get("AUDIO"))]
    assert [sound for sound, _ in by_sound] == (sounds or [None])
    for sound, variants in by_sound:
        assert sorted(file for _, file in variants) == sorted(f"{each.given.name}.m3u8" for each in videos)
        assert all(int(a["BANDWIDTH"]) <= int(b["BANDWIDTH"]) for (a, _), (b, _) in pairwise(variants))
        members = [
            _track_of(package, file_of(unquoted(each["URI"])))
            for each in master.media
            if (each["TYPE"], each["GROUP-ID"]) == ("AUDIO", sound)
        ]
        for variant, file in variants:
            video = _track_of(package, file)
            stated = unquoted(variant["CODECS"]).split(",")
            assert stated[0] == video.codec
            assert sorted(stated) == sorted({video.codec, *(each.codec for each in members)})
            assert variant["RESOLUTION"] == f"{video.width}x{video.height}"
            assert variant["VIDEO-RANGE"] == video.video_range
            assert video.frame_rate
            assert abs(Fraction(variant["FRAME-RATE"]) - video.frame_rate) <= Fraction(1, 2000)
            supplemental = unquoted(variant.get("SUPPLEMENTAL-CODECS", '""'))
            assert supplemental == video.supplemental_codec


@given(packages())
def test_groups_are_as_hls_wants_them(package: Package) -> None:
    """Names are unique, at most one track is the default, and a language is chosen automatically once."""
    master = read_master(master_playlist(package))
    by_group: dict[tuple[str, str], list[dict[str, str]]] = {}
    for each in master.media:
        by_group.setdefault((each["TYPE"], each["GROUP-ID"]), []).append(each)
    for (kind, _), members in by_group.items():
        names = [each["NAME"] for each in members]
        assert len(set(names)) == len(names)
        defaults = [each for each in members if each["DEFAULT"] == "YES"]
        assert len(defaults) <= 1
        assert all(each["AUTOSELECT"] == "YES" for each in defaults)
        chosen = [(each.get("LANGUAGE"), each.get("FORCED")) for each in members if each["AUTOSELECT"] == "YES"]
        assert len(set(chosen)) == len(chosen)
        assert ("FORCED" in members[0]) == (kind == "SUBTITLES")
    # The same choice has the same attributes in each group.
    of_name: dict[tuple[str, str], set[tuple[str | None, ...]]] = {}
    for each in master.media:
        shown = tuple(each.get(name) for name in ("LANGUAGE", "DEFAULT", "AUTOSELECT", "FORCED"))
        of_name.setdefault((each["TYPE"], each["NAME"]), set()).add(shown)
    assert all(len(shown) == 1 for shown in of_name.values())
    uris = {file_of(unquoted(each["URI"])) for each in master.media}
    others = [track for track in package.tracks if track.given.kind is not PlayedKind.VIDEO]
    assert uris == {f"{track.given.name}.m3u8" for track in others}


@given(packages())
def test_each_reference_has_its_file(package: Package) -> None:
    """The master playlist names exactly the playlists, and comes after all of them."""
    files = manifests(package)
    master = read_master(files["master.m3u8"])
    named = {file for _, file in master.variants}
    named |= {file_of(unquoted(each["URI"])) for each in (*master.media, *master.keyframes)}
    assert named == files.keys() - {"master.m3u8", "manifest.mpd"}
    assert list(files)[-2:] == ["master.m3u8", "manifest.mpd"]


def test_named_groups_come_by_what_they_need() -> None:
    """AAC first, with the fewest channels; a track may be in several groups, and other codecs keep their order."""
    tracks = (
        video_track("v", sizes_bytes=[9], frames=[48]),
        sound_track("en", channels=6, language="en", groups=("full",)),
        sound_track("de", channels=1, language="de", groups=("full", "stereo", "dolby")),
        sound_track("en-2", channels=2, language="en", groups=("stereo",)),
        sound_track("en-dolby", "ec-3", 6, language="en", groups=("dolby",)),
    )
    master = read_master(master_playlist(Package(tracks=tracks, layout=Layout.RANGES, segment_s=Fraction(2))))
    found = [(unquoted(each["GROUP-ID"]), unquoted(each["NAME"]), unquoted(each["URI"])) for each in master.media]
    assert found == [
        ("stereo", "de", "de.m3u8"),
        ("stereo", "en", "en-2.m3u8"),
        ("full", "de", "de.m3u8"),
        ("full", "en", "en.m3u8"),
        ("dolby", "en", "en-dolby.m3u8"),
        ("dolby", "de", "de.m3u8"),
    ]


def test_titles_that_hls_cannot_quote() -> None:
    """Quotes and line feeds in a title leave the playlist readable, and equal titles stay apart."""
    title = 'The "long"\r\nversion\ufeff'
    package = Package(
        tracks=(
            video_track("v", sizes_bytes=[9], frames=[48]),
            sound_track("one", title=title, language="en"),
            sound_track("two", title=title, language="en"),
            sound_track("three", title=title, language="de"),
            text_track("four"),
        ),
        layout=Layout.RANGES,
        segment_s=Fraction(2),
    )
    names = [unquoted(each["NAME"]) for each in read_master(master_playlist(package)).media]
    version = "The 'long' version"
    assert names == [version, f"{version} (en)", f"{version} (de)", "Subtitles"]


@pytest.mark.parametrize("text", ['A="1', "A=1,", 'A="a"b"', "A=1,A=2", "a=1"])
def test_the_reader_refuses_wrong_lists(text: str) -> None:
    """The reader of these tests notices attribute lists that are not well formed."""
    with pytest.raises(AssertionError):
        attributes(text)
