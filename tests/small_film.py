"""The bundled film in small pictures, which is quick to decode and has the scenes of the large one."""

from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import av
from av.video.frame import PictureType, VideoFrame

FILM = Path(__file__).parents[1] / "examples/media/bunny.mp4"
SIZE = (128, 72)


@lru_cache
def _pictures() -> list[VideoFrame]:
    """Decode the large film once in each process."""
    with av.open(str(FILM)) as source:
        return [frame.reformat(*SIZE, "yuv420p") for frame in source.decode(video=0)]


def small_film(path: Path, *, gop: int = 24, crf: int = 4, frames: int = 240, sound: bool = False) -> Path:
    """Write up to ten seconds in almost lossless H.264, with an access point every ``gop`` pictures."""
    with av.open(str(path), "w") as made, av.open(str(FILM)) as source:
        stream = made.add_stream(
            "libx264", rate=24, options={"preset": "ultrafast", "crf": str(crf), "sc_threshold": "0"}
        )
        stream.width, stream.height, stream.codec_context.gop_size = *SIZE, gop
        if sound:
            track = made.add_stream_from_template(source.streams.audio[0])
            for packet in source.demux(audio=0):
                if packet.dts is not None and packet.pts * packet.time_base < Fraction(frames, 24):
                    packet.stream = track
                    made.mux(packet)
        for number, frame in enumerate(_pictures()[:frames]):
            frame.pts, frame.time_base, frame.pict_type = number, Fraction(1, 24), PictureType.NONE
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    return path
