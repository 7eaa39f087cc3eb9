"""Options from several layers, of which later ones take precedence."""

from collections.abc import Mapping

import pytest

from codecfleet import Codec, TranscodeSpec, UsageError
from codecfleet.jobs.request.layers import Layer, spec_of


def spec(*places: Mapping[str, object]) -> TranscodeSpec:
    """Return the spec for the fields of several layers; names contain the layer's number."""
    files = {"source": "in.mkv", "output": "out.mp4"}
    layers = [
        Layer({**files, **fields}, lambda field, number=number: f"{field}@{number}")  # type: ignore[misc]
        for number, fields in enumerate(places)
    ]
    return spec_of(TranscodeSpec, layers, "See the docs.")


@pytest.mark.parametrize(
    ("earlier", "later", "left"),
    [
        ({"quality": 20}, {"bitrate_bps": 9_000}, {"bitrate_bps": 9_000}),
        ({"bitrate_bps": 9_000}, {"quality": 20}, {"quality": 20}),
        (
            {"codec": "hevc", "quality": 20, "encoder_options": (("tune", "grain"),), "preset": 5},
            {"codec": Codec.AV1},
            {"codec": "av1", "preset": 5},
        ),
        ({"codec": "hevc", "quality": 20}, {"codec": Codec.HEVC}, {"codec": "hevc", "quality": 20}),
        ({"codec": "hevc", "quality": 20}, {"codec": "av1", "quality": 40}, {"codec": "av1", "quality": 40}),
        ({"codec": "hevc", "quality": 20}, {"codec": "h265"}, {"codec": "hevc", "quality": 20}),
        (
            {"audio": "aac", "audio_channels": "stereo", "audio_bitrate_bps": 96_000},
            {"audio": "opus"},
            {"audio": "opus", "audio_channels": "stereo", "audio_bitrate_bps": 96_000},
        ),
        ({"audio": "aac", "audio_channels": "stereo", "audio_bitrate_bps": 96_000}, {"audio": "copy"}, {}),
        ({"codec": "hevc", "bitrate_bps": 9_000}, {"codec": "av1"}, {"codec": "av1", "bitrate_bps": 9_000}),
    ],
)
def test_what_a_later_place_ends(
    earlier: Mapping[str, object], later: Mapping[str, object], left: Mapping[str, object]
) -> None:
    """A bitrate replaces a quality and the reverse; another codec drops encoder options, copied sound its settings."""
    assert spec(earlier, later) == spec(left)


def test_a_mistake_is_named_as_it_was_written() -> None:
    """The error uses the option's name in the layer where it was set."""
    with pytest.raises(UsageError, match=r"preset@1"):
        spec({"preset": 2}, {"preset": 9}, {"quality": 20})
    with pytest.raises(UsageError, match=r"quality@0.*bitrate_bps@0"):
        spec({"preset": 2, "quality": 20, "bitrate_bps": 9_000})
