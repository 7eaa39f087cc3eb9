"""Sound whose planes PyAV can reach."""

from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler

__all__ = ["reachable"]

_PLANES_PYAV_COUNTS = 7


def reachable(frame: AudioFrame) -> AudioFrame:
    """Return a frame whose samples may be read: interleaved, where it has eight channels or more in planes.

    PyAV 18 counts planes up to a pointer that is null, and FFmpeg's array of eight has none: it reads past the end.
    """
    if not frame.format.is_planar or frame.layout.nb_channels <= _PLANES_PYAV_COUNTS:
        return frame
    packed = AudioResampler(format=frame.format.packed.name, layout=frame.layout, rate=frame.sample_rate)
    found = packed.resample(frame)[0]
    found.pts, found.time_base = frame.pts, frame.time_base
    return found
