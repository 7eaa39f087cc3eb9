"""``codecfleet.Decoder``: packets in, frames out, with every decoder."""

import asyncio
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

import codecfleet
from codecfleet import Frame, NvdecOptions, Packet
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.errors import CodecfleetError, EngineFailed, EngineUnfit, UsageError
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import FakeDevice

GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=2:b-adapt=0"
HDR = "hdr10=1:master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50):max-cll=1000,400"
X265 = f"{GOP}:log-level=none:pools=1:frame-threads=1"
COUNT = 26
TIMES = constant_times(COUNT)
CLIPS = {
    "h264.mkv": Clip(times=TIMES, options=(("x264-params", GOP),)),
    "hdr.mkv": Clip(
        times=TIMES,
        encoder="libx265",
        options=(("x265-params", f"{X265}:{HDR}"),),
        pix_fmt="yuv420p10le",
        width=160,
        height=144,
    ),
    "plain.mkv": Clip(
        times=TIMES,
        encoder="libx265",
        options=(("x265-params", X265),),
        pix_fmt="yuv420p10le",
        width=208,
        height=160,
    ),
}
PLACES = [("software", "host"), ("nvdec", "host"), ("nvdec", "device"), ("software", "device")]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The clips, made once."""
    folder = tmp_path_factory.mktemp("clips")
    return {name: make_clip(folder / name, clip) for name, clip in CLIPS.items()}


def packets_of(path: Path) -> tuple[bytes, list[Any]]:
    """Return a clip's extradata and PyAV's packets."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        found = [packet for packet in container.demux(stream) if packet.size]
        return stream.codec_context.extradata or b"", found


def annex_b(path: Path, start: int = 0) -> list[Packet]:
    """Return a clip's packets as sent over a network, with parameter sets; ``start`` is added to their times."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        name = stream.codec_context.codec.canonical_name
        parts = av.BitStreamFilterContext(f"{name}_mp4toannexb", stream)
        found = [Packet.of(each) for packet in container.demux(stream) if packet.size for each in parts.filter(packet)]
    return [
        Packet(data=each.data, pts=(each.pts or 0) + start, dts=each.dts, time_base=each.time_base) for each in found
    ]


def fed(decoder: codecfleet.Decoder, packets: list[Any]) -> list[Frame]:
    """Return all frames."""
    return [frame for packet in packets for frame in decoder.decode(packet)] + decoder.flush()


def looks(frames: list[Frame]) -> list[tuple[object, ...]]:
    """Return what identifies each frame."""
    return [
        (frame.index, frame.ticks, frame.format, picture_hash(0, frame.to_video_frame()).digest) for frame in frames
    ]


def libavcodecs(path: Path) -> list[tuple[int | None, bytes]]:
    """Return (time, hash) of the frames that libavcodec decodes from a clip."""
    with av.open(str(path)) as container:
        return [(frame.pts, picture_hash(0, frame).digest) for frame in container.decode(video=0)]


@pytest.mark.parametrize(("decoder", "place"), PLACES)
@pytest.mark.parametrize("name", CLIPS)
def test_frames_are_libavcodecs(clips: dict[str, Path], name: str, decoder: Any, place: Any) -> None:
    """Every decoder gives every packet's picture once, in order, at its time, in every memory."""
    extradata, packets = packets_of(clips[name])
    with codecfleet.Decoder(
        "h264" if name == "h264.mkv" else "hevc",
        extradata=extradata,
        decoder=decoder,
        place=place,
        gpu=FakeDevice().gpu,
    ) as session:
        frames = fed(session, packets)
        assert session.decoded_by == decoder
    assert [(frame.ticks, picture_hash(0, frame.to_video_frame()).digest) for frame in frames] == libavcodecs(
        clips[name]
    )
    assert {frame.on_device for frame in frames} == {place == "device"}
    assert [frame.index for frame in frames] == list(range(COUNT))


@pytest.mark.parametrize(("decoder", "place"), PLACES[:3])
def test_size_and_hdr_are_each_frames_own(clips: dict[str, Path], decoder: Any, place: Any) -> None:
    """If a track changes its size and loses its HDR values, each frame states its own."""
    packets = annex_b(clips["hdr.mkv"]) + annex_b(clips["plain.mkv"], start=10_000)
    with codecfleet.Decoder("hevc", decoder=decoder, place=place, gpu=FakeDevice().gpu) as session:
        frames = fed(session, packets)
    said = [(frame.width, frame.height, frame.format.hdr.mastering is not None) for frame in frames]
    assert said == [(160, 144, True)] * COUNT + [(208, 160, False)] * COUNT
    assert frames[0].format.hdr.light is not None
    assert frames[0].format.hdr.light.max_cll == 1000
    assert frames[COUNT - 1].planes[0].shape == (144, 160)
    assert frames[COUNT].planes[0].shape == (160, 208)


def test_every_decoder_says_the_same(clips: dict[str, Path]) -> None:
    """NVDEC's frames have software's index, time, format and samples."""
    packets = annex_b(clips["hdr.mkv"])
    found = []
    for decoder, place in PLACES:
        with codecfleet.Decoder("hevc", decoder=decoder, place=place, gpu=FakeDevice().gpu) as session:  # type: ignore[arg-type]
            found.append(looks(fed(session, packets)))
    assert all(each == found[0] for each in found)


def test_a_frame_says_how_its_array_lies(clips: dict[str, Path]) -> None:
    """Shape, strides, dtype and bytes are those of the array that DLPack returns, in either memory."""
    extradata, packets = packets_of(clips["h264.mkv"])
    for place in ("host", "device"):
        with codecfleet.Decoder("h264", extradata=extradata, place=place, gpu=FakeDevice().gpu) as session:  # type: ignore[arg-type]
            frame = fed(session, packets[:1])[0]
        array = frame.to_video_frame().reformat(format="nv12").to_ndarray()
        assert (frame.shape, frame.strides, frame.dtype, frame.nbytes) == (
            array.shape,
            array.strides,
            array.dtype,
            array.nbytes,
        )


def test_a_packet_has_its_place_in_the_file(tmp_path: Path) -> None:
    """The ``bsl`` bytes at ``pos`` in the file are the packet."""
    path = make_clip(tmp_path / "placed.mp4", CLIPS["h264.mkv"])
    content, packets = path.read_bytes(), [Packet.of(each) for each in packets_of(path)[1]]
    places = [packet.pos for packet in packets if packet.pos is not None]
    assert len(set(places)) == COUNT
    found = [content[place : place + packet.bsl] for place, packet in zip(places, packets, strict=True)]
    assert found == [packet.data for packet in packets]


def test_decoding_joins_at_a_keyframe(clips: dict[str, Path]) -> None:
    """Packets before the first keyframe give nothing and are counted; keyframes are found without a flag."""
    packets = annex_b(clips["h264.mkv"])[3:]
    with codecfleet.Decoder("h264", decoder="nvdec", gpu=FakeDevice().gpu) as session:
        frames = fed(session, packets)
        assert session.skipped_packets == 5
    assert len(frames) == COUNT - 8


def test_a_discontinuity_ends_what_came_before(clips: dict[str, Path]) -> None:
    """After a discontinuity, frames of complete packets come first, and decoding continues at the next keyframe."""
    packets = annex_b(clips["h264.mkv"])
    lost = [
        *packets[:4],
        Packet(data=packets[6].data, pts=packets[6].pts, discontinuity=True, time_base=packets[0].time_base),
        *packets[7:],
    ]
    for decoder in ("software", "nvdec"):
        with codecfleet.Decoder("h264", decoder=decoder, gpu=FakeDevice().gpu) as session:  # type: ignore[arg-type]
            frames = fed(session, lost)
        assert [frame.ticks for frame in frames] == sorted(each.pts or 0 for each in [*packets[:4], *packets[8:]])


def test_the_end_of_a_stream_flushes(clips: dict[str, Path]) -> None:
    """A packet with decode flag 1 returns all remaining frames."""
    *packets, last = annex_b(clips["h264.mkv"])
    with codecfleet.Decoder("h264", decoder="nvdec", gpu=FakeDevice().gpu) as session:
        count = sum(len(session.decode(packet)) for packet in packets)
        ended = session.decode(Packet(data=last.data, pts=last.pts, time_base=last.time_base, decode_flag=1))
        assert count + len(ended) == COUNT
        assert session.flush() == []


def test_auto_goes_on_in_software(clips: dict[str, Path]) -> None:
    """If the device cannot decode a track, software does from the first keyframe on, and states the reason."""
    device = FakeDevice()
    device.decoder.supported = frozenset({"hevc"})
    extradata, packets = packets_of(clips["h264.mkv"])
    with codecfleet.Decoder("h264", extradata=extradata, gpu=device.gpu) as session:
        frames = fed(session, packets)
        assert (session.decoded_by, len(frames)) == ("software", COUNT)
        assert "decodes no h264" in session.fallback
    with (
        codecfleet.Decoder("h264", extradata=extradata, decoder="nvdec", gpu=device.gpu) as session,
        pytest.raises(EngineUnfit, match="decodes no h264"),
    ):
        fed(session, packets)


def test_an_error_leaves_the_device_usable(clips: dict[str, Path]) -> None:
    """After a failure the same decoder begins again at the next keyframe."""
    device = FakeDevice()
    packets = annex_b(clips["h264.mkv"])
    with codecfleet.Decoder("h264", decoder="nvdec", gpu=device.gpu) as session:
        device.decoder.left_out = frozenset({3})
        with pytest.raises(EngineFailed, match="left out 1 pictures"):
            fed(session, packets)
        assert len(fed(session, packets)) == COUNT
    assert device.gpu.use().decoding == 0


def test_software_takes_over_where_nvdec_fails_at_the_first_picture(tmp_path: Path) -> None:
    """A first picture that NVDEC holds back comes once, from software, which then decodes all pictures."""
    clip = Clip(times=TIMES, options=(("x264-params", "keyint=8:scenecut=0:bframes=0"),))
    device = FakeDevice()
    device.decoder.left_out = frozenset({1})
    options = NvdecOptions(latency="low")
    with codecfleet.Decoder("h264", gpu=device.gpu, nvdec=options) as session:
        frames = fed(session, annex_b(make_clip(tmp_path / "clip.mkv", clip)))
        assert session.decoded_by == "software"
        assert "held back the picture of packet 0" in session.fallback
    assert [frame.index for frame in frames] == list(range(COUNT))
    assert device.gpu.use().decoding == 0


def test_messages_come_with_their_frames_from_every_decoder(clips: dict[str, Path]) -> None:
    """The user data of x264 in the first keyframe comes with the first frame, in software too."""
    packets = annex_b(clips["h264.mkv"])
    with codecfleet.Decoder("h264", decoder="software", nvdec=NvdecOptions(sei_messages=True)) as session:
        frames = fed(session, packets)
    notes = [frame.notes for frame in frames]
    assert all(each is not None for each in notes)
    assert notes[0] is not None
    assert [b"x264" in message.payload for message in notes[0].sei_messages if message.kind == 5] == [True]


def test_an_event_loop_awaits(clips: dict[str, Path]) -> None:
    """Awaited calls give the same frames, and several decoders work side by side."""
    packets = annex_b(clips["h264.mkv"])
    device = FakeDevice()

    async def read() -> list[tuple[object, ...]]:
        async with codecfleet.Decoder("h264", decoder="nvdec", gpu=device.gpu) as session:
            frames = [frame for packet in packets for frame in await session.decode_async(packet)]
            return looks(frames + await session.flush_async())

    async def both() -> list[list[tuple[object, ...]]]:
        return await asyncio.gather(read(), read())

    with codecfleet.Decoder("h264", decoder="software") as session:
        wanted = looks(fed(session, packets))
    assert asyncio.run(both()) == [wanted, wanted]


def test_bad_input_is_refused_with_a_way_out(clips: dict[str, Path]) -> None:
    """Wrong packets, decoders and options raise a UsageError that pickles, and the decoder stays usable."""
    good = annex_b(clips["h264.mkv"])
    refused: list[CodecfleetError] = []
    with codecfleet.Decoder("h264", decoder="software") as session:
        session.decode(good[0])
        other = Packet(data=good[1].data, pts=0, time_base=Fraction(1, 7))
        for wrong in (lambda: session.decode(b"bytes"), lambda: session.decode(other)):
            with pytest.raises(UsageError) as error:
                wrong()
            refused.append(error.value)
        assert len(fed(session, good[1:])) == COUNT
    for make in (
        lambda: Packet(data=b""),
        lambda: Packet(data=b"x", time_base=Fraction(0)),
        lambda: codecfleet.Decoder("nothing"),
        lambda: codecfleet.Decoder("h264", place="moon"),  # type: ignore[arg-type]
        lambda: codecfleet.Decoder("h264", nvdec=NvdecOptions(statistics=True)),
        lambda: session.decode(good[0]),
    ):
        with pytest.raises(UsageError) as error:
            make()
        refused.append(error.value)
    assert all(each.next_step and pickle.dumps(each) for each in refused)
