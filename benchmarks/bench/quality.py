"""The similarity of an output to its source: PSNR, SSIM and VMAF, computed by FFmpeg's filters.

Pictures are matched by number, not by time: containers round times differently, so matching by time could compare a
picture with its neighbour. An output with another number of pictures is therefore not compared.
"""

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .ffmpeg import has_filter, run_ffmpeg

__all__ = ["Quality", "compare_pictures"]

_PSNR = re.compile(r"PSNR .*average:(inf|[\d.]+)")
_SSIM = re.compile(r"SSIM .*All:([\d.]+)")


@dataclass(frozen=True, slots=True)
class Quality:
    """Similarity to the source.

    ``psnr_db`` is over all planes, from the mean squared error of all pictures; ``ssim`` is the mean over pictures and
    planes; ``vmaf`` is the mean over every ``vmaf_every``-th picture, None if it was not measured.
    """

    psnr_db: float
    ssim: float
    vmaf: float | None
    vmaf_every: int


def compare_pictures(
    ffmpeg: str, output: Path, source: Path, *, vmaf_every: int, threads: int, most_frames: int | None = None
) -> Quality:
    """Decode both files and compare picture N with picture N. ``vmaf_every`` 0 leaves VMAF out.

    Raises:
        CommandFailed: FFmpeg failed.
    """
    vmaf = vmaf_every > 0 and has_filter(ffmpeg, "libvmaf")
    measures = ["psnr", "ssim"]
    if vmaf:
        measures.append(f"libvmaf=n_threads={threads}:n_subsample={vmaf_every}:log_fmt=json:log_path=vmaf.json")
    inputs = ["-i", str(output.resolve()), "-i", str(source.resolve())]
    limit = [] if most_frames is None else ["-frames:v", str(most_frames)]
    with tempfile.TemporaryDirectory(prefix="codecfleet-quality-") as folder:
        arguments = [*inputs, "-filter_complex", comparison_graph(measures), *_null_outputs(len(measures), limit)]
        said = run_ffmpeg(ffmpeg, arguments, folder=Path(folder), log_level="info")
        score = _read_vmaf(Path(folder, "vmaf.json")) if vmaf else None
    return parse_quality(said, score, vmaf_every)


def comparison_graph(measures: list[str]) -> str:
    """Return the filter graph that applies every metric to the numbered pictures of inputs 0 and 1."""
    count = len(measures)
    lines = []
    for number, name in enumerate("ab"):
        pads = "".join(f"[{name}{n}]" for n in range(count))
        lines.append(f"[{number}:v:0]settb=1/1000,setpts=N,split={count}{pads}")
    lines += [f"[a{n}][b{n}]{measure}[o{n}]" for n, measure in enumerate(measures)]
    return ";".join(lines)


def _null_outputs(count: int, limit: list[str]) -> list[str]:
    return [
        part
        for n in range(count)
        for part in ("-map", f"[o{n}]", "-fps_mode", "passthrough", *limit, "-f", "null", "-")
    ]


def parse_quality(said: str, vmaf: float | None, vmaf_every: int) -> Quality:
    """Return the figures of FFmpeg's own summary lines.

    Raises:
        ValueError: a line is missing.
    """
    psnr, ssim = _PSNR.search(said), _SSIM.search(said)
    if psnr is None or ssim is None:
        message = f"FFmpeg printed no PSNR or no SSIM: {said.strip()[-200:]!r}"
        raise ValueError(message)
    return Quality(float(psnr[1]), float(ssim[1]), vmaf, vmaf_every)


def _read_vmaf(path: Path) -> float:
    return float(json.loads(path.read_text(encoding="utf-8"))["pooled_metrics"]["vmaf"]["mean"])
