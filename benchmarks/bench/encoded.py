"""Encodes the segments of a plan in this process, without a cluster."""

from dataclasses import replace

import numpy as np

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import EncoderSettings
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.jobs.plan.plan import Plan

__all__ = ["encode_segment", "packets_of"]


def encode_segment(plan: Plan, segment: int, encoder: EncoderSettings) -> EncodedSegment:
    """Encode one of the plan's segments with the settings of ``encoder``."""
    return replace(plan.work("job", segment, segment, 0), encoder=encoder).run(WorkContext())


def packets_of(made: EncodedSegment) -> list[EncodedPacket]:
    """Return a segment's packets; the first picture's time is 0."""
    ends = np.cumsum(made.sizes_bytes).tolist()
    payload, begins = made.payload.tobytes(), [0, *ends]
    times = made.pts_ticks - made.pts_ticks.min()
    return [
        EncodedPacket(int(ticks), is_keyframe=bool(is_key), payload=payload[begin:end])
        for ticks, is_key, begin, end in zip(times, made.keyframes, begins, ends, strict=False)
    ]
