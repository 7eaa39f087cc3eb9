"""The speed comparison: runs in turn, reduced to medians, ratios and a table."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .codecs import CodecCase
from .contenders import (
    Bench,
    Contender,
    Cut,
    Entrant,
    Run,
    entrants,
    read_plan,
    run_fan_out,
    run_ffmpeg_once,
    run_fleet,
    run_fleet_jobs,
)
from .ffmpeg import ffmpeg_version, has_encoder
from .likeness import other_pictures, other_sizes
from .media import read_video
from .quality import Quality, compare_pictures
from .table import number, spread, table_lines

__all__ = ["SpeedOptions", "compare_speed", "device_lines", "differences", "ratio_lines", "ratios", "speed_lines"]

_MIB = 2**20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOptions:
    """How many times each contender runs, and which metrics its output gets."""

    contenders: tuple[Contender, ...]
    devices: tuple[str, ...]
    """Values of codecfleet's ``--device``, one contender for each value; if empty, the option is left out."""
    warm_jobs: int
    """How many times a fleet with a named device repeats its job."""
    repeats: int
    fan_out_threads: int
    vmaf_every: int
    threads: int
    with_quality: bool


def compare_speed(bench: Bench, case: CodecCase, options: SpeedOptions, say: Say) -> list[dict[str, Any]]:
    """Run every contender ``repeats`` times, in turn (A B C A B C); return a record of each."""
    contenders = options.contenders
    if set(contenders) - {Contender.FLEET} and not has_encoder(bench.ffmpeg, case.encoder):
        version = ffmpeg_version(bench.ffmpeg)
        say(f"  {case.name}: FFmpeg {version} has no {case.encoder}, so only codecfleet runs")
        contenders = tuple(each for each in contenders if each is Contender.FLEET)
    runs: dict[Entrant, list[Run]] = {entrant: [] for entrant in entrants(contenders, options.devices)}
    wrong: dict[Entrant, str] = {}
    cuts = read_plan(bench, case) if Contender.FAN_OUT in contenders else ()
    for repeat in range(options.repeats):
        for entrant, done in runs.items():
            done.append(_run(bench, case, entrant, options, cuts, in_flight=_in_flight(bench, runs, options)))
            say(f"  {case.name} {entrant.name} {repeat + 1}/{options.repeats}: {_told(done[-1])}")
            # Measured before the next run, which overwrites this output.
            if found := other_pictures(read_video(done[-1].output), bench.facts):
                wrong[entrant] = found
                say(f"  {case.name} {entrant.name}: {found}")
    return [_record(bench, case, done, options, wrong.get(entrant, "")) for entrant, done in runs.items()]


def _told(run: Run) -> str:
    warm = "".join(f", then {job.wall_s:.2f} s" for job in run.warm)
    return f"{run.wall_s:.2f} s{warm}"


def _in_flight(bench: Bench, runs: dict[Entrant, list[Run]], options: SpeedOptions) -> int:
    """Return the number of processes for a fan-out: as many as codecfleet's segments in flight, once it has run."""
    fleet = [done[-1].in_flight for entrant, done in runs.items() if entrant.contender is Contender.FLEET and done]
    return max(fleet, default=bench.workers or options.threads)


def _run(
    bench: Bench, case: CodecCase, entrant: Entrant, options: SpeedOptions, cuts: Sequence[Cut], *, in_flight: int
) -> Run:
    if entrant.contender is Contender.FLEET and entrant.device:
        return run_fleet_jobs(bench, case, entrant.device, options.warm_jobs)
    if entrant.contender is Contender.FLEET:
        return run_fleet(bench, case, case.quality)
    if entrant.contender is Contender.FFMPEG:
        return run_ffmpeg_once(bench, case, case.quality)
    return run_fan_out(bench, case, cuts, in_flight=in_flight, threads=options.fan_out_threads)


def _record(bench: Bench, case: CodecCase, runs: Sequence[Run], options: SpeedOptions, wrong: str) -> dict[str, Any]:
    last = runs[-1]
    facts = read_video(last.output)
    quality = _quality(bench, last, options) if options.with_quality and not wrong else None
    warm = [job for run in runs for job in run.warm]
    return {
        "case": case.name,
        "contender": last.entrant.name,
        "encoder": last.encoder,
        "in_flight": last.in_flight,
        "frames": facts.frames,
        "frames_of_source": bench.facts.frames,
        "wrong": wrong,
        "wall_s": spread([run.wall_s for run in runs]),
        "start_up_s": spread([run.start_up_s for run in runs]),
        "work_s": spread([run.work_s for run in runs]),
        "fps": spread([facts.frames / run.work_s for run in runs]),
        "cpu_s": spread([run.cpu_s for run in runs]),
        "warm_s": spread([job.wall_s for job in warm]) if warm else None,
        "warm_fps": spread([facts.frames / job.wall_s for job in warm]) if warm else None,
        "warm_cpu_s": spread([job.cpu_s for job in warm]) if warm else None,
        "peak_bytes": spread([run.measured.peak_bytes for run in runs]),
        "memory_kind": last.measured.memory_kind,
        "file_bytes": facts.file_bytes,
        "video_bytes": facts.video_bytes,
        "sha256": sorted({job.sha256 for run in runs for job in run.jobs}),
        "quality": None if quality is None else asdict(quality),
        "runs": [_run_record(run) for run in runs],
    }


def _quality(bench: Bench, run: Run, options: SpeedOptions) -> Quality:
    return compare_pictures(
        bench.ffmpeg, run.output, bench.source, vmaf_every=options.vmaf_every, threads=options.threads
    )


def _run_record(run: Run) -> dict[str, Any]:
    measured = {key: value for key, value in asdict(run.measured).items() if key != "output"}
    jobs = {"jobs": [asdict(job) for job in run.jobs]} if run.jobs else {}
    return measured | {"start_up_s": run.start_up_s, "stages_s": run.stages_s} | jobs


_HEADS = (
    "encoder, way",
    "wall s",
    "start-up s",
    "work s",
    "warm s",
    "fps",
    "CPU s",
    "peak MiB",
    "size MB",
    "PSNR dB",
    "SSIM",
    "VMAF",
)


def speed_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return the records as a table: medians, and the spread of the runs."""
    notes = [f"{r['case']} {r['contender']}: {r['wrong']}, so no quality is compared" for r in records if r["wrong"]]
    return [*table_lines(_HEADS, [_row(record) for record in records]), *notes, *other_sizes(records)]


def _row(record: dict[str, Any]) -> list[str]:
    quality = record["quality"] or {"psnr_db": None, "ssim": None, "vmaf": None}
    work = record["work_s"]
    around = f" ({work['least']:.2f}-{work['most']:.2f})" if len(record["runs"]) > 1 else ""
    way = record["contender"] + (f" x{record['in_flight']}" if record["in_flight"] > 1 else "")
    return [
        f"{record['case']}, {way}",
        number(record["wall_s"]["median"], 2),
        number(record["start_up_s"]["median"], 2),
        number(work["median"], 2) + around,
        number(record["warm_s"]["median"], 2) if record.get("warm_s") else "-",
        number(record["fps"]["median"], 1),
        number(record["cpu_s"]["median"], 1),
        number(record["peak_bytes"]["median"] / _MIB, 0),
        number(record["file_bytes"] / 1e6, 2),
        number(quality["psnr_db"], 2),
        number(quality["ssim"], 4),
        number(quality["vmaf"], 2),
    ]


_RATIOS = ("wall_s", "work_s", "warm_s", "cpu_s", "peak_bytes")


def ratios(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return codecfleet's medians divided by those of each peer, per case; below 1 is less.

    Peers are the other contenders, and codecfleet on the devices named after the first. A warm fleet's time is compared
    with the peer's warm time if the peer has one, else with the peer's time without start-up.
    """
    found = []
    for place, ours in enumerate(records):
        if not ours["contender"].startswith(Contender.FLEET.value):
            continue
        for other, peer in enumerate(records):
            is_fleet = peer["contender"].startswith(Contender.FLEET.value)
            if peer["case"] == ours["case"] and not (is_fleet and other <= place):
                found.append(_ratio(ours, peer))
    return found


def _ratio(ours: dict[str, Any], peer: dict[str, Any]) -> dict[str, Any]:
    medians = {name: ours[name]["median"] / peer[name]["median"] for name in _RATIOS if name != "warm_s"}
    warm = ours.get("warm_s")
    peers = peer.get("warm_s") or peer["work_s"]
    return {
        "case": ours["case"],
        "contender": ours["contender"],
        "over": peer["contender"],
        **medians,
        "warm_s": warm["median"] / peers["median"] if warm else None,
        "video_bytes": ours["video_bytes"] / peer["video_bytes"],
    }


def ratio_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return the ratios as a table."""
    names = (*_RATIOS, "video_bytes")
    heads = ("medians", "wall", "work", "warm", "CPU", "peak memory", "video bytes")
    rows = [[f"{r['case']}, {r['contender']} / {r['over']}", *(number(r[name], 3) for name in names)] for r in found]
    return table_lines(heads, rows)


def device_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return which devices decoded in the last job of each contender with a named device."""
    told = [(record, record["runs"][-1]["jobs"][-1]) for record in records if record["runs"][-1].get("jobs")]
    rows = [
        [
            f"{record['case']}, {record['contender']}",
            _counts(job["decoded_by"]),
            f"{job['stages_s'].get('encode', 0.0):.2f}",
            f"{job['stages_s'].get('gather', 0.0):.2f}",
            record["sha256"][0][:12],
            _counts(job["fallbacks"]) or "-",
        ]
        for record, job in told
    ]
    heads = ("the last warm job", "decoded by", "encode s", "gather s", "SHA-256", "why not NVDEC")
    return table_lines(heads, rows) if rows else []


def _counts(counted: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items()))


def differences(records: Sequence[dict[str, Any]]) -> list[str]:
    """Name the cases in which codecfleet's outputs of one encoder were not byte-identical; [] if all were."""
    by_encoder: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        if record.get("sha256"):
            by_encoder.setdefault((record["case"], record["encoder"]), []).append(record)
    found = []
    for (case, _), mine in by_encoder.items():
        if len({digest for record in mine for digest in record["sha256"]}) > 1:
            told = "; ".join(f"{r['contender']}: {', '.join(one[:12] for one in r['sha256'])}" for r in mine)
            found.append(f"{case}: codecfleet's outputs differ: {told}")
    return found
