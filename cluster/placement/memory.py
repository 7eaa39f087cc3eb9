"""What a segment's session takes of its host's memory: pure arithmetic over measured constants.

A session holds whole pictures: references of the decoder, pictures read ahead, those in a filter, and what the encoder
looks ahead and refers to. ``configs/hardware.toml`` says how many, ``benchmarks/session_memory.py`` measures it.
"""

from collections.abc import Sequence

from ..probes.gpus.hardware import MIB, HostMemory
from .model.demand import USUAL_THREADS
from .rates import EIGHT_BITS, Stage

_SAMPLES = {"4:0:0": 1.0, "4:2:0": 1.5, "4:2:2": 2.0, "4:4:4": 3.0}


def session_bytes(
    memory: HostMemory, decoded: Stage, encodes: Sequence[Stage], frames: int, *, filters: bool = False
) -> int:
    """Return what a session takes of its host's memory at most.

    ``decoded`` are the pictures that a processor's stages get, ``encodes`` the stages that encode in software, and
    ``frames`` the length of the longest segment; ``filters`` scale, convert or deinterlace on the way.
    """
    held = min(memory.decode_pictures, frames + 1) + (memory.filter_pictures if filters else 0)
    total = memory.session_mib * MIB + held * frame_bytes(decoded)
    for stage in encodes:
        known = memory.encode.get(stage.implementation) or max(memory.encode.values(), key=lambda each: each.pictures)
        pictures = min(known.pictures[stage.preset - 1], known.first_pictures + frames * memory.pictures_per_frame)
        pictures += memory.filter_pictures if filters else 0
        pictures += memory.pictures_per_thread * max(0, stage.threads - USUAL_THREADS)
        total += known.mib * MIB + pictures * frame_bytes(stage)
    return total


def frame_bytes(stage: Stage) -> int:
    """Return the size of one raw picture of a stage."""
    samples = stage.pixels * _SAMPLES.get(stage.case.chroma, 3.0)
    return int(samples * (2 if stage.case.bit_depth > EIGHT_BITS else 1))
