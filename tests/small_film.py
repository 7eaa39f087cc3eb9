"""The bundled film in small pictures, which is quick to decode and has the scenes of the large one."""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import av
from av.video.frame import PictureType, VideoFrame

FILM = Path(__file__).parents[1] / "examples/media/bunny.mp4"
SIZE = (128, 72)
ALMOST_LOSSLESS = {"crf": "4"}


@lru_cache
def _pictures() -> list[VideoFrame]:
    """Decode the large film once in each process."""
    with av.open(str(FILM)) as source:
        return [frame.reformat(*SIZE, "yuv420p") for frame in source.decode(video=0)]


def small_film(
    path: Path, *, gop: int = 24, frames: int = 240, sound: bool = False, options: Mapping[str, str] = ALMOST_LOSSLESS
) -> Path:
    """Write up to ten seconds in H.264, with an access point every ``gop`` pictures; ``options`` are the encoder's."""
    with av.open(str(path), "w") as made, av.open(str(FILM)) as source:
        asked = {"preset": "ultrafast", "sc_threshold": "0", **options}
        stream = made.add_stream("libx264", rate=24, options=asked)
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
