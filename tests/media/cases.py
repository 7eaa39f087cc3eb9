"""The cases of the media table: which file is encoded to what, and which refusals are right.

The assignment is a pure function of the sorted file names. Every file gets two outputs that differ in codec and
container, and one of them is cut every second. Over all files, every codec meets every container that holds it.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from codecfleet.actors.encode.settings import Codec
from codecfleet.jobs.request.spec import TranscodeSpec

__all__ = ["REFUSALS", "SHORT", "Case", "Refusal", "assigned", "everything", "sample"]

H264, HEVC, AV1, VP9 = Codec.H264, Codec.HEVC, Codec.AV1, Codec.VP9
AudioMode: TypeAlias = Literal["copy", "aac", "opus", "none"]
_AUDIO_MODES: tuple[AudioMode, ...] = ("aac", "copy", "opus", "none")
_ONE_SOUND: dict[str, AudioMode] = {"webm": "opus", "mov": "aac"}
"""Containers that hold only one of the two codecs to which sound is encoded."""
FRAGMENTED = "fragmented"
SHORT_SEGMENT_S = Fraction(1)

_OUTPUTS: tuple[tuple[Codec, str], ...] = (
    (H264, "mp4"),
    (HEVC, "mkv"),
    (AV1, "webm"),
    (H264, "ts"),
    (VP9, "mp4"),
    (HEVC, "mov"),
    (AV1, FRAGMENTED),
    (H264, "mkv"),
    (VP9, "ivf"),
    (HEVC, FRAGMENTED),
    (AV1, "mp4"),
    (H264, "h264"),
    (VP9, "mkv"),
    (HEVC, "ts"),
    (AV1, "ivf"),
    (H264, "mov"),
    (VP9, "webm"),
    (HEVC, "hevc"),
    (AV1, "mkv"),
    (H264, FRAGMENTED),
    (AV1, "obu"),
    (HEVC, "mp4"),
    (VP9, FRAGMENTED),
)
"""Every codec in every container that holds it; neighbours, also last and first, differ in both."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A right refusal: the class of the error, and why nothing better is possible."""

    error: str
    why: str
    codecs: frozenset[Codec] = frozenset(Codec)


REFUSALS = {
    "audio_only_opus_frag.mp4": Refusal("NoVideoTrack", "there is sound alone"),
    "encrypted_cenc_tenc_only.mp4": Refusal("InputUnreadable", "its pictures are encrypted, and there is no key"),
    "hevc_dovi_p5_1080p.mp4": Refusal("Unsupported", "Dolby Vision profile 5: without its metadata colours are wrong"),
}
"""Files from which no output can be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One file to one output."""

    source: str
    codec: Codec
    container: str
    """An extension, or ``fragmented`` for a fragmented mp4."""
    segment_s: Fraction | None = SHORT_SEGMENT_S
    audio: AudioMode = "copy"
    preset: int = 1
    force: bool = False

    @property
    def name(self) -> str:
        """The case's name in the table, and the name of its output."""
        length = "" if self.segment_s is None else f" {self.segment_s}s"
        audio = "" if self.audio == "copy" else f" audio-{self.audio}"
        return f"{self.codec.value} {self.container}{length}{audio}{' forced' if self.force else ''}"

    @property
    def output_name(self) -> str:
        """A distinct file name."""
        extension = "mp4" if self.container == FRAGMENTED else self.container
        return f"{self.source}.{self.name.replace(' ', '-')}.{extension}"

    @property
    def refusal(self) -> Refusal | None:
        """The expected refusal; None if an output is expected."""
        expected = None if self.force else REFUSALS.get(self.source)
        return expected if expected is not None and self.codec in expected.codecs else None

    def spec(self, folder: str, output: str) -> TranscodeSpec:
        """The request, with the source in ``folder``."""
        return TranscodeSpec(
            source=f"{folder}/{self.source}",
            output=output,
            codec=self.codec,
            preset=self.preset,
            segment_s=self.segment_s,
            fragmented=self.container == FRAGMENTED,
            audio=self.audio,
            force=self.force,
            overwrite=True,
        )


def assigned(names: Iterable[str]) -> list[Case]:
    """Return the cases of the long form: two for each file, and one with ``--force`` if that gives an output."""
    cases = [case for place, name in enumerate(sorted(names)) for case in _pair(place, name)]
    return [*cases, Case(source="hevc_dovi_p5_1080p.mp4", codec=HEVC, container="mp4", force=True)]


def sample(names: Sequence[str], count: int, seed: int) -> list[Case]:
    """Return ``count`` cases drawn from all files, codecs, containers and sound options."""
    drawn = random.Random(seed)  # noqa: S311 - no secret
    found = []
    for name in drawn.sample(sorted(names), min(count, len(names))):
        codec, container = drawn.choice(_OUTPUTS)
        mode = _fitting(container, drawn.choice(_AUDIO_MODES))
        found.append(Case(source=name, codec=codec, container=container, audio=mode))
    return found


def everything(names: Iterable[str]) -> list[Case]:
    """Return every file in every codec and container, cut every second."""
    return [Case(source=name, codec=codec, container=ext) for name in sorted(names) for codec, ext in _OUTPUTS]


def _pair(place: int, name: str) -> tuple[Case, Case]:
    first, second = (_OUTPUTS[(2 * place + n) % len(_OUTPUTS)] for n in (0, 1))
    lengths = (SHORT_SEGMENT_S, None) if place % 2 == 0 else (None, SHORT_SEGMENT_S)
    return (
        Case(source=name, codec=first[0], container=first[1], segment_s=lengths[0]),
        Case(
            source=name,
            codec=second[0],
            container=second[1],
            segment_s=lengths[1],
            audio=_fitting(second[1], _AUDIO_MODES[place % len(_AUDIO_MODES)]),
        ),
    )


def _fitting(container: str, mode: AudioMode) -> AudioMode:
    """Return the sound option, which the container must be able to hold."""
    return _ONE_SOUND.get(container, mode) if mode in ("aac", "opus") else mode


SHORT: dict[str, Case] = {
    "open GOP with recovery points": Case(
        source="derived_h264_opengop_360p_aac.mp4", codec=H264, container="mkv", segment_s=Fraction(2)
    ),
    "CRA pictures with leading ones that must be skipped": Case(
        source="derived_hevc10_opengop_cra_rasl_360p.mp4", codec=H264, container="mp4", segment_s=Fraction(2)
    ),
    "three edits that overlap": Case(source="mov_3elist.mov", codec=H264, container="mov"),
    "an edit list that discards the first keyframe": Case(
        source="mp4_discard_first_keyframe.mp4", codec=AV1, container="obu"
    ),
    "variable frame rate": Case(source="phone_slowmo_gap_vfr_h264.mp4", codec=HEVC, container="mp4"),
    "frames without times": Case(source="stream_missing_sei_pes.ts", codec=H264, container=FRAGMENTED),
    "a size that changes in mid-stream": Case(source="reschange_vp9_nokey.ivf", codec=VP9, container="ivf"),
    "damage": Case(source="corrupt_invalid_nalu.mp4", codec=H264, container="ts"),
    "HDR10, rotation, an attachment and chapters": Case(
        source="hevc_hdr10_mastering_rot_attach.mkv", codec=AV1, container="mkv"
    ),
    "rotation and reflection": Case(source="rot_and_reflect.mp4", codec=HEVC, container="mov"),
    "two video tracks, two of sound, two of subtitles": Case(
        source="nasa_2video_2audio.mp4", codec=H264, container="mkv", segment_s=Fraction(5)
    ),
    "sound that begins with priming": Case(source="h264_mp4_aac_priming.mp4", codec=H264, container="mp4"),
    "interlaced transport stream with captions": Case(
        source="cam_mpeg2_480i_opengop_cc.ts", codec=H264, container="ts", segment_s=Fraction(2)
    ),
    "an odd size": Case(source="vp9_odd_161x121.webm", codec=VP9, container="webm"),
    "no timestamps at all": Case(source="reschange_h264_848_to_424.h264", codec=HEVC, container="hevc"),
    "sound alone": Case(source="audio_only_opus_frag.mp4", codec=H264, container="mp4"),
}
"""The short form, with a small file for each subject."""
