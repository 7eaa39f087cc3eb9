"""A tone in each speaker stays in its speaker, in every layout and conversion."""

from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.tracks.downmix import encoded_layout, mix_matrix, mixed_speakers
from codecfleet.actors.tracks.speakers import STATED, speakers
from codecfleet.errors import WouldLose
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.probe.job import probe
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.source import read_source
from tests.sounds import alone, film, heard, names
from tests.sweeps import swept

from .local_jobs import spec_of, transcode

pytestmark = pytest.mark.timeout(120)

KEPT = (
    *("2.1", "quad", "3.0(back)", "5.0", "5.1(side)", "6.1", "7.1", "stereo", "3.0", "4.0", "quad(side)", "3.1"),
    *("5.0(side)", "4.1", "6.0", "hexagonal", "6.1(back)", "7.0"),
)
SAME = {"SL": "BL", "SR": "BR", "BL": "SL", "BR": "SR"}


def place(tone: str, layout: str) -> str:
    """Return the channel in which a speaker's tone must be."""
    return tone if tone in names(layout) else SAME[tone]


def run(source: Path, output: Path, **asked: Any) -> list[str]:
    """Transcode, and return the codes of the warnings."""
    report = transcode(spec_of(source, output, preset=1, **asked))
    return [each.code for each in (*report.warnings, *report.choices)]


@pytest.mark.parametrize(
    ("layout", "codec", "name"),
    swept(
        [
            (layout, codec, name)
            for layout in KEPT
            for codec, name in (("opus", "out.mkv"), ("aac", "out.mp4"), ("aac", "out.ts"), ("opus", "out.ts"))
        ],
        is_slow=lambda case: case[0] not in ("2.1", "5.0") or case[2] == "out.ts",
    ),
)
def test_each_speaker_is_kept_or_named(tmp_path: Path, layout: str, codec: str, name: str) -> None:
    """Each speaker's tone is within half a decibel, and alone in its channel; one without a channel is reported."""
    source = film(tmp_path / "in.mkv", "flac", (layout, 48_000))
    codes = run(source, tmp_path / name, audio=codec)

    stated = [each for each in STATED[codec] if (each, name, codec) != ("6.1", "out.ts", "opus")]
    target = encoded_layout([layout], stated)
    found_layout, _, found = heard(tmp_path / name, 0.3, 0.8)
    assert found_layout == target
    if mixed_speakers(speakers(layout), speakers(target)):
        assert codes == ["audio-remixed"]
    else:
        assert not codes
        assert alone(found, [(tone, place(tone, target)) for tone in names(layout)])


CHANGES: dict[str, tuple[str, list[tuple[str, int]]]] = {
    "51-20.ts": ("ac3", [("5.1(side)", 48_000), ("stereo", 48_000)]),
    "20-51-mono.ts": ("ac3", [("stereo", 48_000), ("5.1(side)", 48_000), ("mono", 48_000)]),
    "48-44.ts": ("aac", [("stereo", 48_000), ("stereo", 44_100)]),
    "44-48.ts": ("ac3", [("stereo", 44_100), ("stereo", 48_000)]),
    "mono-stereo.ts": ("mp2", [("mono", 48_000), ("stereo", 48_000)]),
    "20-51.ts": ("eac3", [("stereo", 48_000), ("5.1(side)", 48_000)]),
    "entries.mp4": ("aac", [("stereo", 48_000), ("5.1", 48_000)]),
    "20-51.mkv": ("flac", [("stereo", 48_000), ("5.1(side)", 48_000)]),
}


@pytest.mark.parametrize(
    ("name", "codec"),
    swept(
        [(name, codec) for name in CHANGES for codec in ("aac", "opus")],
        is_slow=lambda case: case not in [("51-20.ts", "aac"), ("20-51-mono.ts", "aac"), ("48-44.ts", "opus")],
    ),
)
def test_sound_that_changes_is_one_continuous_encode(tmp_path: Path, name: str, codec: str) -> None:
    """Sound that changes is encoded with one layout and one rate, and each second has the tones of its own speakers."""
    coded, parts = CHANGES[name]
    source = film(tmp_path / name, coded, *parts)
    output = tmp_path / ("out.mkv" if codec == "aac" else "out.webm")
    asked = {} if codec == "aac" else {"codec": Codec.VP9}
    codes = run(source, output, audio=codec, **asked)

    assert codes == ["audio-format-changes"]
    target = encoded_layout([layout for layout, _ in parts], STATED[codec])
    for number, (layout, _) in enumerate(parts):
        found_layout, found_rate, found = heard(output, number + 0.2, number + 0.8)
        assert (found_layout, found_rate) == (target, 48_000)
        if layout == "mono" and target == "stereo":
            assert {channel: set(each) for channel, each in found.items()} == {"FL": {"FC"}, "FR": {"FC"}}
        else:
            assert alone(found, [(tone, place(tone, target)) for tone in names(layout)])


def test_a_mix_follows_the_changes(tmp_path: Path) -> None:
    """Each part is mixed by the coefficients of its own layout, without low-frequency effects."""
    source = film(tmp_path / "in.ts", "ac3", ("stereo", 48_000), ("5.1(side)", 48_000))
    codes = run(source, tmp_path / "out.mp4", audio="aac", audio_channels="stereo")

    assert codes == ["audio-format-changes", "audio-mixed"]
    _, _, found = heard(tmp_path / "out.mp4", 1.2, 1.8)
    wanted = mix_matrix(speakers("5.1(side)"), speakers("stereo"))
    for levels, row in zip(found.values(), wanted, strict=True):
        assert {name: 10 ** (level / 20) for name, level in levels.items()} == pytest.approx(
            {name: share for name, share in zip(speakers("5.1(side)"), row, strict=True) if share}, abs=0.02
        )


@pytest.mark.parametrize(
    ("name", "output", "is_copied"),
    [("20-51.ts", "out.mp4", True), ("entries.mp4", "out.mp4", True), ("entries.mp4", "out.mkv", False)],
)
def test_a_copy_of_changing_sound_decodes_to_the_end(
    tmp_path: Path, name: str, output: str, *, is_copied: bool
) -> None:
    """If one header cannot describe both halves, the sound is encoded, which --strict refuses."""
    coded, parts = CHANGES[name]
    source = film(tmp_path / name, coded, *parts)
    codes = run(source, tmp_path / output)

    assert codes == [*([] if is_copied else ["audio-converted"]), "audio-format-changes"]
    layout, _, found = heard(tmp_path / output, 1.2, 1.8)
    assert alone(found, [(tone, place(tone, layout)) for tone in names(parts[1][0])])
    if not is_copied:
        with pytest.raises(WouldLose, match="its format changes"):
            plan_transcode(TranscodeSpec(source=str(source), output=str(tmp_path / "no.mkv"), strict=True))


def test_probe_says_when_sound_changes(tmp_path: Path) -> None:
    """Probe gives the time after the first picture, the layouts and the rates; a job's index has these formats too."""
    source = film(tmp_path / "in.ts", "ac3", ("stereo", 48_000), ("5.1(side)", 48_000))
    oddity = probe(source).oddity("audio-format-changes")

    assert oddity is not None
    assert oddity.track == 1
    assert "stereo at 48000 Hz, from 0.989 s on 5.1(side) at 48000 Hz" in oddity.message
    (track,) = [each for each in read_source(str(source)).tracks.tracks if each.formats]
    assert [(each.layout, each.sample_rate) for each in track.formats] == [("stereo", 48_000), ("5.1(side)", 48_000)]


def test_constant_sound_has_no_formats(tmp_path: Path) -> None:
    """Constant sound has no list of formats."""
    source = film(tmp_path / "in.ts", "ac3", ("5.1(side)", 48_000))

    assert probe(source).oddity("audio-format-changes") is None
    assert not any(track.formats for track in read_source(str(source)).tracks.tracks)


@pytest.mark.parametrize(("output", "codes"), [("out.mp4", ["layout-assumed"]), ("out.mov", []), ("out.mkv", [])])
def test_sixteen_channels_are_copied(tmp_path: Path, output: str, codes: list[str]) -> None:
    """The copy is exact; if the container needs names of speakers, the report lists them."""
    source = film(tmp_path / "in.mov", "pcm_s16le", ("9.1.6", 48_000))

    assert run(source, tmp_path / output) == codes
    with av.open(str(tmp_path / output)) as copy, av.open(str(source)) as film_:
        sound, own = (b"".join(bytes(each) for each in file.demux(audio=0)) for file in (copy, film_))
        assert sound == own
        assert copy.streams.audio[0].codec_context.layout.nb_channels == 16


def test_sixteen_channels_are_mixed_to_stereo(tmp_path: Path) -> None:
    """Instead of being dropped."""
    source = film(tmp_path / "in.mov", "pcm_s16le", ("9.1.6", 48_000))

    assert run(source, tmp_path / "out.mp4", audio="aac", audio_channels="stereo") == ["audio-mixed"]
    layout, _, found = heard(tmp_path / "out.mp4", 0.3, 0.8)
    assert layout == "stereo"
    assert len({*found["FL"], *found["FR"]}) > len(["FL", "FR", "FC"])


@pytest.mark.parametrize(("codec", "name"), [("aac", "out.mp4"), ("opus", "out.mkv")])
def test_low_frequency_effects_alone_keep_their_speaker(tmp_path: Path, codec: str, name: str) -> None:
    """A track with low-frequency effects only keeps their speaker; the layout's other speakers are silent."""
    source = film(tmp_path / "in.mkv", "flac", ("LFE", 48_000))

    assert run(source, tmp_path / name, audio=codec) == []
    _, _, found = heard(tmp_path / name, 0.3, 0.8)
    assert alone(found, [("LFE", "LFE")])


def test_opus_without_names_is_encoded_for_a_transport_stream(tmp_path: Path) -> None:
    """A copy could not be decoded: transport streams cannot describe channels without names (RFC 7845, family 255)."""
    source = film(tmp_path / "in.mkv", "libopus", ("5.1", 48_000), options={"mapping_family": "255"})

    assert run(source, tmp_path / "out.ts") == ["audio-converted"]
    layout, _, found = heard(tmp_path / "out.ts", 0.3, 0.8)
    assert layout == "5.1"
    assert alone(found, [(tone, tone) for tone in names("5.1")])
