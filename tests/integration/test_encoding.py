"""Encoder sessions on real pictures: one packet a picture, the same bytes again, parameter sets that match."""

import hashlib
import subprocess
import sys
from fractions import Fraction

import pytest

from codecfleet.actors.encode.settings import Codec, EncoderSettings, RateControl
from codecfleet.actors.encode.software import EncodedPacket, SoftwareEncoder, reorder_depth
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.settle.request import settle
from codecfleet.actors.settle.software import software_request
from codecfleet.errors import EncoderFailed
from codecfleet.testing.clips import picture

PICTURE = VideoFormat(128, 96, "yuv420p", Fraction(25))
RATES = {"quality": None, "bitrate": RateControl(bitrate_bps=200_000)}


def settled(codec: Codec, rate: RateControl | None = None) -> EncoderSettings:
    """Return a fast encoder of small pictures."""
    return settle(software_request(codec, rate=rate, preset=1), PICTURE, Fraction(1, 25))


def encode(settings: EncoderSettings, frames: int) -> tuple[list[EncodedPacket], bytes]:
    """Encode moving bars; return the packets and the parameter sets."""
    with SoftwareEncoder(settings) as encoder:
        packets: list[EncodedPacket] = []
        for number in range(frames):
            frame = picture(number, 128, 96)
            frame.pts, frame.time_base = number, Fraction(1, 25)
            packets += encoder.encode(frame)
        return packets + encoder.finish(), encoder.extradata


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("frames", [1, 2, 40])
def test_one_packet_for_each_picture(codec: Codec, frames: int) -> None:
    """Every picture comes out once, the first as an access point, however short the segment."""
    packets, _ = encode(settled(codec), frames)
    assert sorted(packet.pts_ticks for packet in packets) == list(range(frames))
    assert packets[0].is_keyframe
    assert packets[0].pts_ticks == 0


@pytest.mark.parametrize("codec", Codec)
def test_parameter_sets_do_not_depend_on_the_length(codec: Codec) -> None:
    """A one-frame segment joins with a long one: same parameter sets, and they bound how far pictures are reordered."""
    settings = settled(codec)
    packets, extradata = encode(settings, 40)
    assert encode(settings, 1)[1] == extradata
    depth = reorder_depth(settings, extradata)
    order = [packet.pts_ticks for packet in packets]
    assert all(sorted(order)[place - depth] <= order[place] for place in range(depth, len(order)))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("codec", Codec)
def test_another_process_gives_the_same_bytes(codec: Codec, rate: str) -> None:
    """The same settings and pictures give the same bytes in another process."""
    script = (
        "import hashlib, sys\n"
        f"sys.path.insert(0, {str(__file__.rpartition('/')[0])!r})\n"
        "from test_encoding import Codec, RATES, digest\n"
        f"print(digest(Codec({codec.value!r}), {rate!r}))\n"
    )
    other = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert other.stdout.strip() == digest(codec, rate)


def digest(codec: Codec, rate: str) -> str:
    """Return the SHA-256 of 40 encoded pictures."""
    packets, extradata = encode(settled(codec, RATES[rate]), 40)
    return hashlib.sha256(extradata + b"".join(packet.payload for packet in packets)).hexdigest()


def test_a_picture_of_another_size_is_refused() -> None:
    """FFmpeg would scale it without a word."""
    frame = picture(0, 64, 48)
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    with SoftwareEncoder(settled(Codec.H264)) as encoder, pytest.raises(EncoderFailed, match="64x48"):
        encoder.encode(frame)


def test_a_time_that_does_not_increase_is_refused() -> None:
    """Two pictures at one time would be lost or swapped further on."""
    with SoftwareEncoder(settled(Codec.H264)) as encoder:
        for attempt in range(2):
            frame = picture(attempt, 128, 96)
            frame.pts, frame.time_base = 0, Fraction(1, 25)
            if attempt == 0:
                encoder.encode(frame)
            else:
                with pytest.raises(EncoderFailed):
                    encoder.encode(frame)
