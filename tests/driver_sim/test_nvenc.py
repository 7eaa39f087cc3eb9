"""The simulated NVENC under the real PyNvVideoCodec package: what goes in comes out, and what is set arrives."""

import json
from importlib.util import find_spec

import pytest

from .nvenc_pictures import chroma_means, decoded, psnr_db, unpacked
from .nvenc_programs import BLACKWELL, WORKSTATION, lines, ran, settings_told

pytestmark = pytest.mark.skipif(find_spec("PyNvVideoCodec") is None, reason="PyNvVideoCodec is not installed")


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_pictures_survive_from_host_and_device_memory(codec: str) -> None:
    """All pictures come back in order and alike, and the same whichever memory they were encoded from."""
    program = """
codec = sys.argv[1]
print(packed(encoded(encoder(codec, bitrate=2_000_000), map(nv12, range(30)))))
print(packed(encoded(encoder(codec, bitrate=2_000_000, host=False), (DevicePicture(nv12(n)) for n in range(30)))))
"""
    from_host, from_device = map(unpacked, lines(program, WORKSTATION, codec))

    frames = decoded(codec, from_host)

    assert sorted(packet["timestamp"] for packet in from_host) == list(range(30))
    assert len(frames) == 30
    assert all(psnr_db(frame, index) > 35 for index, frame in enumerate(frames))
    assert all(abs(u - 100 - n) < 6 and abs(v - 150 + n) < 6 for n, (u, v) in enumerate(map(chroma_means, frames)))
    assert [packet["data"] for packet in from_device] == [packet["data"] for packet in from_host]


@pytest.mark.parametrize(
    ("codec", "surface", "pixels"),
    [
        ("hevc", "P010", "yuv420p10le"),
        ("hevc", "YUV444_10BIT", "yuv444p10le"),
        ("hevc", "P210", "yuv422p10le"),
        ("h264", "YUV444", "yuv444p"),
        ("h264", "NV16", "yuv422p"),
        ("av1", "P010", "yuv420p10le"),
    ],
)
def test_deep_and_dense_surfaces_keep_their_samples(codec: str, surface: str, pixels: str) -> None:
    """A surface of more bits or more chroma is encoded as such, with the samples where they belong."""
    program = """
import numpy as np
codec, surface = sys.argv[1:]
rows = HEIGHT * {"P010": 3, "YUV444_10BIT": 6, "P210": 4, "YUV444": 6, "NV16": 4}[surface] // 2
deep = surface in ("P010", "P210", "YUV444_10BIT")
def picture(n):
    whole = np.full((rows, WIDTH), 128, np.uint16)
    whole[:HEIGHT] = luma(n)
    return (whole << 8).view(np.uint8) if deep else whole.astype(np.uint8)
print(packed(encoded(encoder(codec, surface), map(picture, range(4)))))
"""
    (text,) = lines(program, BLACKWELL, codec, surface)

    frames = decoded(codec, unpacked(text))

    assert [frame.format.name for frame in frames] == [pixels] * 4
    assert all(psnr_db(frame, index) > 35 for index, frame in enumerate(frames))


def test_b_pictures_are_coded_out_of_order() -> None:
    """Packets with B pictures come in coding order, and their timestamps say in which order they are shown."""
    (text,) = lines("print(packed(encoded(encoder(bf=2), map(nv12, range(10)))))")

    packets = unpacked(text)

    assert [packet["timestamp"] for packet in packets] == [0, 3, 1, 2, 6, 4, 5, 9, 7, 8]
    assert [packet["picture_type"] for packet in packets] == [3, 0, 1, 1, 0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(("settings", "first_call"), [({"bf": 0}, 4), ({"bf": 3}, 7), ({"bf": 0, "lookahead": 4}, 8)])
def test_the_first_packet_comes_after_reordering_and_look_ahead(settings: dict[str, int], first_call: int) -> None:
    """The package's own delay of three pictures, plus B pictures, plus look-ahead, is what a caller sees."""
    program = """
session = encoder(**json.loads(sys.argv[1]))
counts = [len(session.Encode(nv12(n))) for n in range(12)]
print(json.dumps([counts, len(session.EndEncode())]))
"""
    counts, rest = json.loads(lines(program, WORKSTATION, json.dumps(settings))[0])

    assert counts == [0] * (first_call - 1) + [1] * (12 - first_call + 1)
    assert sum(counts) + rest == 12


@pytest.mark.parametrize(
    ("codec", "settings", "waiting"),
    [
        ("h264", {"bf": 0}, 0),
        ("h264", {"bf": 2}, 2),
        ("hevc", {"bf": 2, "lookahead": 4}, 6),
        ("av1", {"lookahead": 4}, 4),
    ],
)
def test_the_driver_asks_for_more_until_a_packet_is_ready(codec: str, settings: dict[str, int], waiting: int) -> None:
    """The first calls answer that more pictures are needed (17); then each call brings a packet."""
    program = "encoded(encoder(sys.argv[1], **json.loads(sys.argv[2])), map(nv12, range(10)))"

    result = ran(program, WORKSTATION, codec, json.dumps(settings))

    answers = [line.values["answer"] for line in result.told("NvEncEncodePicture")]
    assert answers[:10] == ["17"] * waiting + ["0"] * (10 - waiting)
    assert set(answers[10:]) == {"0"}


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_a_stream_can_follow_another_in_one_session(codec: str) -> None:
    """After the end of a stream the same encoder begins a new one, with an IDR picture and its headers."""
    program = """
session = encoder(sys.argv[1])
print(packed(encoded(session, map(nv12, range(7)))))
print(packed(encoded(session, map(nv12, range(5)))))
"""
    first, second = map(unpacked, lines(program, WORKSTATION, codec))

    frames = decoded(codec, second)

    assert len(first) == 7
    assert second[0]["picture_type"] == 3
    assert len(frames) == 5
    assert all(psnr_db(frame, index) > 35 for index, frame in enumerate(frames))


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_an_idr_picture_comes_where_it_is_forced(codec: str) -> None:
    """A picture given with the IDR flag is one, and from there a decoder can begin."""
    program = """
session = encoder(sys.argv[1])
packets = [packet for n in range(12) for packet in session.Encode(nv12(n), 2 if n == 7 else 0)]
print(packed(packets + session.EndEncode()))
"""
    (text,) = lines(program, WORKSTATION, codec)

    packets = unpacked(text)
    place = next(number for number, packet in enumerate(packets) if packet["timestamp"] == 7)
    frames = decoded(codec, packets[place:])

    assert [packet["timestamp"] for packet in packets if packet["picture_type"] == 3] == [0, 7]
    assert len(frames) == 5
    assert psnr_db(frames[0], 7) > 35


def test_sessions_side_by_side_do_not_disturb_each_other() -> None:
    """Encoders in threads of one process give bit for bit what each gives alone."""
    program = """
from concurrent.futures import ThreadPoolExecutor
def stream(codec):
    return packed(encoded(encoder(codec), map(nv12, range(12))))
codecs = ["h264", "hevc", "av1"]
alone = list(map(stream, codecs))
with ThreadPoolExecutor(6) as pool:
    print(list(pool.map(stream, codecs * 2)) == alone * 2)
"""
    assert lines(program) == ["True"]


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_parameter_sets_are_the_same_in_and_out_of_band(codec: str) -> None:
    """The sequence's parameters stand before each IDR picture, or nowhere where a global header is asked for."""
    program = """
session = encoder(sys.argv[1], gop=5)
print(session.GetSequenceParams().hex())
print(packed(encoded(session, map(nv12, range(10)))))
print(packed(encoded(encoder(sys.argv[1], gop=5, global_header=1), map(nv12, range(10)))))
"""
    text, in_band, out_of_band = lines(program, WORKSTATION, codec)

    headers = bytes.fromhex(text)
    starts = [packet["data"].startswith(headers) for packet in unpacked(in_band)]

    assert starts == [packet["picture_type"] == 3 for packet in unpacked(in_band)]
    assert not any(headers in packet["data"] for packet in unpacked(out_of_band))


def test_av1_tells_its_sequence_header() -> None:
    """The sequence header that a container needs is that of the stream's first packet."""
    program = """
session = encoder("av1")
print(session.GetSequenceParams().hex())
print(packed(encoded(session, map(nv12, range(2)))))
"""
    header, text = lines(program)

    assert len(header) > 8
    assert bytes.fromhex(header) in unpacked(text)[0]["data"]


@pytest.mark.parametrize(("codec", "kind"), [("h264", 5), ("hevc", 5), ("av1", 6)])
def test_messages_travel_with_their_picture(codec: str, kind: int) -> None:
    """A supplemental message given with a picture stands in that picture's packet, and the stream stays decodable."""
    program = """
session = encoder(sys.argv[1], bf=0)
message = [*b"0123456789abcdef", 0, 0, 1, *b"told"]
packets = [p for n in range(3) for p in session.Encode(nv12(n), 0, [({"sei_type": int(sys.argv[2])}, [*message, n])])]
print(packed(packets + session.EndEncode()))
"""
    (text,) = lines(program, WORKSTATION, codec, str(kind))

    packets = unpacked(text)
    frames = decoded(codec, packets)

    assert [b"told" + bytes([number]) in packet["data"] for number, packet in enumerate(packets)] == [True] * 3
    assert len(frames) == 3
    if codec != "av1":
        messages = [[bytes(each) for each in frame.side_data if "UNREGISTERED" in each.type.name] for frame in frames]
        assert all(b"0123456789abcdef\0\0\1told" + bytes([number]) in told for number, told in enumerate(messages))


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_reconfiguring_changes_the_rate_and_loses_no_picture(codec: str) -> None:
    """New rates reach the driver while pictures are under way, packets shrink, and every picture still comes out."""
    program = """
import numpy as np
def noise(n):
    return nv12(n) // 2 + np.random.default_rng(n).integers(0, 16, nv12(n).shape, np.uint8)
session = encoder(sys.argv[1], rc="vbr", bitrate=3_000_000, maxbitrate=4_000_000, bf=1)
packets = [packet for n in range(16) for packet in session.Encode(noise(n))]
wanted = session.GetEncodeReconfigureParams()
wanted.averageBitrate, wanted.maxBitRate = 200_000, 300_000
assert session.Reconfigure(wanted)
print(packed(packets + encoded(session, map(noise, range(16, 32)))))
"""
    result = ran(program, WORKSTATION, codec)

    told = settings_told(result, "NvEncReconfigureEncoder")
    packets = unpacked(result.stdout)
    sizes = {packet["timestamp"]: len(packet["data"]) for packet in packets}

    assert (told["rcParams.averageBitRate"], told["rcParams.maxBitRate"]) == ("200000", "300000")
    assert sorted(sizes) == list(range(32))
    assert sum(sizes[n] for n in range(24, 32)) < sum(sizes[n] for n in range(8, 16)) / 2
    assert len(decoded(codec, packets)) == 32


@pytest.mark.parametrize(
    ("codec", "part", "vui"),
    [("h264", "h264Config.", "h264VUIParameters."), ("hevc", "hevcConfig.", "hevcVUIParameters."), ("av1", "", "")],
)
def test_what_is_set_arrives_at_the_driver(codec: str, part: str, vui: str) -> None:
    """The trace holds each field of the driver's structures as the caller asked for it."""
    program = """
encoder(sys.argv[1], preset="P5", tuning_info="high_quality", rc="vbr", bitrate=2_000_000, maxbitrate=3_000_000,
        vbvbufsize=500_000, vbvinit=250_000, fps="30000/1001", gop=60, idrperiod=120, bf=1, lookahead=8, aq=7,
        temporalaq=1, multipass="fullres", initqp=24, qmax=40,
        timinginfo={"num_unit_in_ticks": 1001, "timescale": 60000})
"""
    told = settings_told(ran(program, WORKSTATION, codec))

    assert told["encodeGUID"] == f"NV_ENC_CODEC_{codec.upper()}_GUID"
    assert told["presetGUID"] == "NV_ENC_PRESET_P5_GUID"
    expected = {
        "encodeWidth": 192,
        "encodeHeight": 128,
        "tuningInfo": 1,
        "frameRateNum": 30000,
        "frameRateDen": 1001,
        "gopLength": 60,
        "frameIntervalP": 2,
        "rcParams.rateControlMode": 1,
        "rcParams.averageBitRate": 2_000_000,
        "rcParams.maxBitRate": 3_000_000,
        "rcParams.vbvBufferSize": 500_000,
        "rcParams.vbvInitialDelay": 250_000,
        "rcParams.lookaheadDepth": 8,
        "rcParams.enableAQ": 1,
        "rcParams.aqStrength": 7,
        "rcParams.enableTemporalAQ": 1,
        "rcParams.multiPass": 2,
        "rcParams.initialRCQP.qpIntra": 24,
        "rcParams.maxQP.qpInterP": 40,
        f"{part or 'av1Config.'}idrPeriod": 120,
    }
    if vui:
        expected |= {f"{part}{vui}numUnitInTicks": 1001, f"{part}{vui}timeScale": 60000}
    assert {name: told[name] for name in expected} == {name: str(value) for name, value in expected.items()}
