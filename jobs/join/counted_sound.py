"""Handles PCM in mp4 and mov, where samples are counted and have no times: fills gaps, and leaves overlaps out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

#: A packet that begins this close to the end of the previous packet continues that packet, because clocks jitter
TOLERANCE_S = Fraction(1, 500)
_SILENCE_S = 1  #: The longest packet of silence
_SAMPLE_BITS = re.compile(r"pcm_[suf](\d+)(le|be)?")
#: The byte of silence in formats in which a zero byte is not silence (ITU-T G.711)
_LEVELS = {"pcm_u8": b"\x80", "pcm_mulaw": b"\xff", "pcm_alaw": b"\xd5"}


@dataclass(slots=True)
class CountedSound:
    """Places the packets of one PCM track end to end."""

    codec: str
    channels: int
    sample_rate: int
    tick_s: Fraction  #: the source's tick
    end: int | None = None  #: the end of the last packet, in samples; None before the first packet
    gaps: int = 0  #: how many gaps were filled
    silent_samples: int = 0  #: how many samples of silence fill the gaps
    dropped_samples: int = 0  #: how many samples are left out because they overlap earlier samples

    def place(self, position: int, payload: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the silence before ``position``, then the samples that overlap no earlier ones.

        Each item is (position, samples, bytes).
        """
        size = self._frame_bytes
        samples = len(payload) // size
        apart = 0 if self.end is None else position - self.end
        if abs(apart) <= max(TOLERANCE_S, self.tick_s) * self.sample_rate:
            apart = 0
        begin = position - apart if self.end is None else self.end
        self.gaps += apart > 0
        for count in _parts(apart, _SILENCE_S * self.sample_rate):
            yield begin, count, _LEVELS.get(self.codec, b"\0") * (size * count)
            begin += count
            self.silent_samples += count
        skipped = min(max(0, -apart), samples)
        self.dropped_samples += skipped
        self.end = begin + samples - skipped
        if samples > skipped:
            yield begin, samples - skipped, payload[skipped * size :]

    @property
    def _frame_bytes(self) -> int:
        stated = _SAMPLE_BITS.fullmatch(self.codec)
        return self.channels * (int(stated[1]) // 8 if stated else 1)


def _parts(samples: int, most: int) -> Iterator[int]:
    while samples > 0:
        yield min(samples, most)
        samples -= most
