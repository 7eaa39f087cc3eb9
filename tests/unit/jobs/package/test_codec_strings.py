"""Codec strings of sample entries whose strings are known."""

import pytest

from codecfleet.errors import Unsupported
from codecfleet.jobs.package.boxes.codec_strings import codec_string, supplemental_codec
from codecfleet.jobs.package.boxes.fragments import box

VIDEO_FIELDS, SOUND_FIELDS = bytes(78), bytes(28)


def picture(kind: bytes, *children: tuple[bytes, str]) -> bytes:
    """Return the sample entry of a video track; children as (name, content in hexadecimal)."""
    return box(kind, VIDEO_FIELDS, *(box(name, bytes.fromhex(content)) for name, content in children))


def sound(kind: bytes, *children: tuple[bytes, str]) -> bytes:
    """Return the sample entry of an audio track."""
    return box(kind, SOUND_FIELDS, *(box(name, bytes.fromhex(content)) for name, content in children))


HVCC_10_BITS = "01 02 20000000 b00000000000 99 f000fcfdfafa00000f00"
ESDS = "00000000 03 80808022 0000 00 04 80808014 40 15 000000 00000000 00000000 05 80808002 {} 06 80808001 02"
NCLX_PQ, NCLX_709 = "6e636c78 0009 0010 0009 00", "6e636c78 0001 0001 0001 00"


@pytest.mark.parametrize(
    ("entry", "string"),
    [
        (picture(b"avc1", (b"avcC", "01 64 00 28 ff e0 00")), "avc1.640028"),
        (picture(b"avc3", (b"avcC", "01 42 c0 1e ff e0 00")), "avc3.42C01E"),
        (picture(b"hvc1", (b"hvcC", HVCC_10_BITS)), "hvc1.2.4.L153.B0"),
        (picture(b"hev1", (b"hvcC", "01 21 60000000 900000000000 5d" + "00" * 10)), "hev1.1.6.H93.90"),
        (picture(b"hvc1", (b"hvcC", "01 44 08000000 9e0800000000 96" + "00" * 10)), "hvc1.A4.10.L150.9E.8"),
        (picture(b"av01", (b"av1C", "81 08 0c 00")), "av01.0.08M.08"),
        (picture(b"av01", (b"av1C", "81 08 0c 00"), (b"colr", NCLX_709)), "av01.0.08M.08"),
        (picture(b"av01", (b"av1C", "81 0d ce 00"), (b"colr", NCLX_PQ)), "av01.0.13H.10.0.112.09.16.09.0"),
        (picture(b"av01", (b"av1C", "81 2d 40 00"), (b"colr", NCLX_PQ)), "av01.1.13M.10.0.000.09.16.09.0"),
        (picture(b"vp09", (b"vpcC", "01000000 02 1f a2 09 10 09 0000")), "vp09.02.31.10.01.09.16.09.00"),
        (sound(b"mp4a", (b"esds", ESDS.format("1190"))), "mp4a.40.2"),
        (sound(b"mp4a", (b"esds", ESDS.format("2b11"))), "mp4a.40.5"),
        (sound(b"mp4a", (b"esds", ESDS.format("f946"))), "mp4a.40.42"),
        (sound(b"mp4a", (b"esds", ESDS.format("1190").replace("40 15", "6b 15"))), "mp4a.6B"),
        (sound(b"Opus", (b"dOps", "00 02 0138 0000bb80 0000 00")), "Opus"),
        (sound(b"ac-3"), "ac-3"),
    ],
)
def test_known_strings(entry: bytes, string: str) -> None:
    """They equal the strings that other packagers write for the same configuration."""
    assert codec_string(entry) == string


@pytest.mark.parametrize(
    "entry",
    [
        picture(b"mp4v"),
        picture(b"avc1"),
        picture(b"hvc1", (b"hvcC", "01")),
        sound(b"mp4a", (b"esds", "00000000 04 00")),
    ],
)
def test_unknown_configurations_are_refused(entry: bytes) -> None:
    """No string is guessed."""
    with pytest.raises(Unsupported):
        codec_string(entry)


@pytest.mark.parametrize(
    ("entry", "string"),
    [
        (picture(b"hvc1", (b"dvvC", "0100 10 3d 10" + "00" * 19)), "dvh1.08.07/db1p"),
        (picture(b"hvc1", (b"dvvC", "0100 10 3d 40" + "00" * 19)), "dvh1.08.07/db4h"),
        (picture(b"av01", (b"dvvC", "0100 14 35 10" + "00" * 19)), "dav1.10.06/db1p"),
        (picture(b"hvc1", (b"dvcC", "0100 0a 35 00" + "00" * 19)), ""),
        (picture(b"hvc1"), ""),
    ],
)
def test_dolby_vision_is_supplemental(entry: bytes, string: str) -> None:
    """Only a track whose base layer players without Dolby Vision can show has a supplemental string."""
    assert supplemental_codec(entry) == string
