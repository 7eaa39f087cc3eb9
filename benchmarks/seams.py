"""Measure the quality of the pictures around cuts against one encode with keyframes at the same times.

``python benchmarks/seams.py --save seams-2-cores``; README.md beside this file says what each number means.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame
from bench.encoded import encode_segment, packets_of
from bench.machine import describe_run, described_lines
from bench.program import FILM, run_in_folder
from bench.seam_dips import AROUND_FRAMES, Dip, Track, dip_at, dip_within
from bench.table import number, save_results, table_lines

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.session import EncodedPacket
from codecfleet.actors.encode.settings import Codec, EncoderSettings
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.encode.target import QualityMetric
from codecfleet.actors.quality.measuring import UNITS, DecodedBack, PairMeter
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec

_MODES = ("quality", "bitrate", "maxrate")
_HEADS: tuple[str, ...] = ("encoder, mode, segments", "dB", "bits", "CPU", "before: dB", "XPSNR", "worst", "bits")
_HEADS += ("after: dB", "XPSNR", "worst", "bits", "between: dB")
_BITS = 8


@dataclass(frozen=True, slots=True)
class _Encode:
    """The packets of each part of a film, with the parameter sets of the part, and the processor time of all."""

    parts: Sequence[tuple[Sequence[EncodedPacket], bytes]]
    cpu_s: float


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _measure_all(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("films", nargs="*", type=Path, default=[FILM], help="the films (default: the bundled film)")
    add("--codecs", nargs="+", type=Codec, choices=list(Codec), default=list(Codec), help="which (default: all)")
    add("--modes", nargs="+", choices=_MODES, default=list(_MODES), help="which (default: all)")
    add("--preset", type=int, choices=range(1, 8), default=3, help="codecfleet's preset (default: 3)")
    add("--size", default="320x180", metavar="WxH", help="scale the film to this size first (default: 320x180)")
    add("--segment-frames", type=int, default=60, metavar="N", help="pictures from cut to cut (default: 60)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _measure_all(options: argparse.Namespace, folder: Path) -> None:
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    records: list[dict[str, Any]] = []
    for film in options.films:
        clip = folder / f"{film.stem}.mkv"
        pictures = _make_clip(film, clip, options.size, options.segment_frames)
        print(f"\n{film.name}, {len(pictures)} pictures. Differences from one encode, {AROUND_FRAMES} pictures each:\n")
        found = [each for codec in options.codecs for each in _measure_codec(codec, clip, pictures, options)]
        print("\n".join(table_lines(_HEADS, [_row(each) for each in found])))
        records += [{"film": film.name, **each} for each in found]
    if options.save:
        document |= {"preset": options.preset, "size": options.size, "segment_frames": options.segment_frames}
        print(f"\nsaved: {save_results(options.save, document | {'encodes': records})}")


def _make_clip(film: Path, clip: Path, size: str, segment_frames: int) -> list[VideoFrame]:
    """Write the film without loss, with a keyframe at each cut; return its pictures."""
    width, height = map(int, size.split("x"))
    gop = {"g": str(segment_frames), "keyint_min": str(segment_frames), "sc_threshold": "0"}
    pictures = []
    with av.open(str(film)) as source, av.open(str(clip), "w") as output:
        rate = source.streams.video[0].average_rate or Fraction(25)
        stream = output.add_stream("libx264", rate=rate, options={"qp": "0", "preset": "ultrafast", **gop})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = 1 / Fraction(rate)
        for count, picture in enumerate(source.decode(video=0)):
            made = picture.reformat(width, height, "yuv420p", interpolation="BICUBIC")
            made.pts, made.time_base, made.pict_type = count, 1 / Fraction(rate), 0
            output.mux(stream.encode(made))
            pictures.append(VideoFrame.from_ndarray(made.to_ndarray(), "yuv420p"))
        output.mux(stream.encode(None))
    return pictures


def _measure_codec(
    codec: Codec, clip: Path, pictures: list[VideoFrame], options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Measure an encoder at its default quality, and at the rate of that."""
    records = []
    rate_bps = 0
    for mode in ("quality", *(each for each in _MODES[1:] if each in options.modes)):
        plan = _planned(codec, mode, rate_bps, clip, options)
        cuts = np.cumsum([segment.frames for segment in plan.segments])[:-1].tolist()
        one = _one_encode(plan, pictures, cuts)
        of_one = _track(plan, one, pictures)
        rate_bps = rate_bps or round(sum(of_one.bits) / len(pictures) * plan.encoder.format.frame_rate)
        if mode in options.modes:
            settings = {"as made": plan.encoder, "kept apart": _apart(plan.encoder)}
            for name, encoder in settings.items():
                if name == "kept apart" and encoder == plan.encoder:
                    continue
                encode = _segments(plan, encoder)
                record = _record(_track(plan, encode, pictures), of_one, cuts)
                records.append({"encoder": plan.encoder.implementation, "mode": mode, "segments": name, **record})
                records[-1] |= {"cpu": encode.cpu_s / one.cpu_s, "rate_bps": rate_bps}
    return records


def _planned(codec: Codec, mode: str, rate_bps: int, clip: Path, options: argparse.Namespace) -> Plan:
    rates: dict[str, int] = {}
    if mode == "bitrate":
        rates = {"bitrate_bps": rate_bps}
    elif mode == "maxrate":
        rates = {"quality": PROFILES[codec].default_quality, "maxrate_bps": rate_bps, "bufsize_bits": rate_bps}
    with av.open(str(clip)) as container:
        segment_s = options.segment_frames / Fraction(container.streams.video[0].average_rate or 1)
    output = clip.with_suffix(".webm" if codec is Codec.VP9 else ".mp4")
    wanted = {
        "source": str(clip),
        "output": str(output),
        "codec": codec,
        "preset": options.preset,
        "segment_s": segment_s,
    }
    return plan_transcode(TranscodeSpec.model_validate(wanted | rates))


def _apart(settings: EncoderSettings) -> EncoderSettings:
    """Return settings with which the encoder of a segment knows nothing of the other segments."""
    options = tuple((key, value.partition(":zones=")[0]) for key, value in settings.options)
    return replace(settings, options=options, ahead_frames=0)


def _segments(plan: Plan, encoder: EncoderSettings) -> _Encode:
    parts = []
    began_s = time.process_time()
    for segment in range(len(plan.segments)):
        made = encode_segment(plan, segment, encoder)
        parts.append((packets_of(made), made.extradata))
    return _Encode(parts, time.process_time() - began_s)


def _one_encode(plan: Plan, pictures: list[VideoFrame], cuts: Sequence[int]) -> _Encode:
    """Encode the film in one session; the time includes one decode of the film, as that of the segments does."""
    began_s = time.process_time()
    with av.open(plan.spec.source) as container:
        decoded = list(container.decode(video=0))
    step_ticks = _step_ticks(plan.encoder)
    packets = []
    with SoftwareEncoder(plan.encoder) as encoder:
        for count, picture in enumerate(decoded[: len(pictures)]):
            picture.pts, picture.time_base = count * step_ticks, plan.encoder.time_base
            packets += encoder.encode(picture, keyframe=count in cuts)
        packets += encoder.finish()
        return _Encode([(packets, encoder.extradata)], time.process_time() - began_s)


def _step_ticks(settings: EncoderSettings) -> int:
    return max(1, round(1 / (settings.format.frame_rate * settings.time_base)))


def _track(plan: Plan, encode: _Encode, pictures: list[VideoFrame]) -> Track:
    """Decode an encode, and measure each picture."""
    meters = [PairMeter(metric, plan.encoder.format) for metric in (QualityMetric.PSNR, QualityMetric.XPSNR)]
    bits: list[int] = []
    for packets, extradata in encode.parts:
        with DecodedBack(plan.encoder, extradata, packets) as decoded:
            for _, shown in decoded.pictures():
                for meter in meters:
                    meter.take(shown, pictures[meter.taken])
        bits += [len(packet.payload) * _BITS for packet in sorted(packets, key=lambda packet: packet.pts_ticks)]
    psnr, xpsnr = ([value / UNITS for value in meter.values] for meter in meters)
    return Track(psnr, xpsnr, bits)


def _record(track: Track, one: Track, cuts: Sequence[int]) -> dict[str, Any]:
    near = {cut + place for cut in cuts for place in range(-AROUND_FRAMES, AROUND_FRAMES)}
    between = [each for each in range(len(one.bits)) if each not in near]
    return {
        "whole": asdict(dip_within(track, one, range(len(one.bits)))),
        "before": asdict(dip_at(track, one, cuts, after=False)),
        "after": asdict(dip_at(track, one, cuts, after=True)),
        "between": asdict(dip_within(track, one, between)),
    }


def _row(record: dict[str, Any]) -> list[str]:
    whole, between = Dip(**record["whole"]), Dip(**record["between"])
    cells = [number(whole.psnr_db, 2), number(whole.bits, 3), number(record["cpu"], 2)]
    for dip in (Dip(**record["before"]), Dip(**record["after"])):
        cells += [number(each, 2) for each in (dip.psnr_db, dip.xpsnr_db, dip.worst_psnr_db, dip.bits)]
    return [f"{record['encoder']}, {record['mode']}, {record['segments']}", *cells, number(between.psnr_db, 2)]


if __name__ == "__main__":
    sys.exit(main())
