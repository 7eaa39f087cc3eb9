"""Films for comparing readers of frames: H.264 with B-frames, whose pictures all differ from one another."""

import math
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType, VideoFrame
from numpy.typing import NDArray

__all__ = ["FPS", "make_film", "make_short_films"]

FPS = 25
_SHORT_S = 6
_SHORT_KINDS = 8
_SHORT_SIZE = (640, 360)
_MARGIN = 64


def make_film(folder: Path, size: tuple[int, int], seconds: int, gop: int, seed: int = 0) -> Path:
    """Return a film with a keyframe every ``gop`` pictures; a film that an earlier run left in the folder is reused."""
    width, height = size
    path = folder / f"film-{width}x{height}-{seconds}s-gop{gop}-{seed}.mp4"
    if path.is_file():
        return path
    partial = path.with_suffix(".partial.mp4")
    options = {"preset": "veryfast", "crf": "23", "x264-params": f"keyint={gop}:bframes=3:scenecut=0:log-level=error"}
    colour = {"colorspace": "bt709", "color_range": "tv", "color_primaries": "bt709", "color_trc": "bt709"}
    with av.open(str(partial), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options=options | colour)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        texture = _texture(width, height, seed)
        for number in range(seconds * FPS):
            container.mux(stream.encode(_picture(texture, number, width, height)))
        container.mux(stream.encode(None))
    partial.replace(path)
    return path


def make_short_films(folder: Path, count: int) -> list[Path]:
    """Return short films, each in a separate file; several films have the same pictures."""
    kinds = [make_film(folder, _SHORT_SIZE, _SHORT_S, 48, seed + 1) for seed in range(min(count, _SHORT_KINDS))]
    paths = []
    for number in range(count):
        paths.append(folder / f"short-{number}.mp4")
        if not paths[-1].exists():
            paths[-1].write_bytes(kinds[number % len(kinds)].read_bytes())
    return paths


def _texture(width: int, height: int, seed: int) -> NDArray[np.float32]:
    """Return noise of several scales, larger than a picture, over which the camera moves."""
    random = np.random.default_rng(seed)
    rows, columns = height + _MARGIN, width + _MARGIN
    texture = np.zeros((rows, columns), np.float32)
    for scale, strength in ((64, 40.0), (16, 20.0), (4, 8.0), (1, 4.0)):
        coarse = random.standard_normal((math.ceil(rows / scale), math.ceil(columns / scale))).astype(np.float32)
        texture += strength * np.kron(coarse, np.ones((scale, scale), np.float32))[:rows, :columns]
    return texture


def _picture(texture: NDArray[np.float32], number: int, width: int, height: int) -> VideoFrame:
    """Return a picture: the camera sways over the texture; a bright bar is at another place in each of 173 pictures."""
    left, top = (round(_MARGIN / 2 * (1 + wave(number / 40))) for wave in (math.sin, math.cos))
    planes = np.full((height * 3 // 2, width), 128, np.uint8)
    luma = texture[top : top + height, left : left + width] + 110
    bar = number * 7 % 173 * width // 173
    luma = luma + 60 * (np.abs(np.arange(width) - bar) < width // 16)
    planes[:height] = np.clip(luma, 16, 235)
    planes[height : height + height // 4] = 96 + number * 5 % 64
    frame = VideoFrame.from_ndarray(planes, format="yuv420p")
    frame.pts, frame.time_base, frame.pict_type = number, Fraction(1, FPS), PictureType.NONE
    return frame
