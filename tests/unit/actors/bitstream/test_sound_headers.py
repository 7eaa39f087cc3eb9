"""Headers of audio packets, compared with a decoder on the same packets."""

from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.actors.bitstream.sound_headers import aac_header, sound_header
from tests.sounds import film

AC3 = ("mono", "stereo", "2.1", "3.0", "3.0(back)", "3.1", "4.0", "4.1", "quad(side)", "5.0(side)", "5.1(side)")
CASES = [
    *(("ac3", ".mkv", layout, 48_000) for layout in AC3),
    *(("eac3", ".ts", layout, 44_100) for layout in AC3),
    *(("aac", ".ts", layout, rate) for layout, rate in (("mono", 24_000), ("stereo", 44_100), ("5.1", 48_000))),
    *(("mp2", ".ts", layout, rate) for layout, rate in (("mono", 22_050), ("stereo", 32_000))),
    *(("flac", ".mkv", layout, 48_000) for layout in ("mono", "stereo", "5.1(side)", "7.1")),
]


def sound_of(path: Path) -> tuple[Any, list[bytes]]:
    """Return the decoder of a file's audio, and the packets."""
    file = av.open(str(path))
    stream = file.streams.audio[0]
    return stream.codec_context, [bytes(packet) for packet in file.demux(stream) if packet.size]


@pytest.mark.parametrize(("codec", "ending", "layout", "rate"), CASES)
def test_headers_agree_with_the_decoder(tmp_path: Path, codec: str, ending: str, layout: str, rate: int) -> None:
    """Each packet states the layout and the rate of its decoded samples."""
    context, packets = sound_of(film(tmp_path / f"in{ending}", codec, (layout, rate)))
    stated = {(found.layout, found.sample_rate) for each in packets if (found := sound_header(codec, each))}

    assert stated == {(layout, rate)}
    assert (context.layout.name, context.sample_rate) == (layout, rate)


@pytest.mark.parametrize(("layout", "rate"), [("stereo", 44_100), ("5.1", 48_000)])
def test_a_configuration_of_aac_states_both(tmp_path: Path, layout: str, rate: int) -> None:
    """The AudioSpecificConfig of an mp4 states layout and rate."""
    context, _ = sound_of(film(tmp_path / "in.mp4", "aac", (layout, rate)))
    found = aac_header(context.extradata)

    assert found is not None
    assert (found.layout, found.sample_rate) == (layout, rate)


def test_spectral_band_replication_doubles_the_rate() -> None:
    """HE-AAC states the coded rate, 24 kHz, and the output rate, 48 kHz (ISO/IEC 14496-3, 1.6.2.1)."""
    bits = f"{5:05b}{6:04b}{2:04b}{3:04b}{2:05b}000".ljust(32, "0")
    found = aac_header(int(bits, 2).to_bytes(4))

    assert found is not None
    assert (found.layout, found.sample_rate) == ("stereo", 48_000)


@pytest.mark.parametrize("codec", ["ac3", "eac3", "aac", "aac_latm", "mp3", "dts", "flac"])
@pytest.mark.parametrize("data", [b"", b"\x0b", bytes(16), b"\x0b\x77" + bytes(4), bytes(range(40))])
def test_what_has_no_header_says_nothing(codec: str, data: bytes) -> None:
    """A damaged or short packet states no format."""
    assert sound_header(codec, data) is None


def test_other_codecs_say_nothing() -> None:
    """Packets of other codecs have no such header."""
    assert sound_header("opus", bytes(40)) is None
    assert aac_header(b"") is None
