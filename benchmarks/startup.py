"""Time the parts of a start: from the command to the first picture, and to the end of a short clip.

``python benchmarks/startup.py``; README.md beside this file says what each number means.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.failures import CommandFailed
from bench.machine import describe_run, described_lines
from bench.program import module_command, run_in_folder
from bench.table import number, save_results, spread, table_lines

from codecfleet.testing.clips import Clip, constant_times, make_clip

COMMAND = (sys.executable, "-m", "codecfleet")
IMPORTS = "import codecfleet.cli.commands.transcode, codecfleet.jobs.run.job_run"
Part = Callable[[Path, Path], Mapping[str, float]]
"""A function that times one part, given the clip and a folder, and returns {name: seconds}."""


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _time(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("clip", type=Path, nargs="?", help="film to transcode (default: 2 s of 640x360, generated)")
    add("--repeats", type=int, default=5, metavar="N", help="runs of each part, taking turns (default: 5)")
    add("--without-ray", action="store_true", help="leave out the parts that start a private Ray")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _time(options: argparse.Namespace, folder: Path) -> None:
    document = describe_run(None)
    print("\n".join(described_lines(document)))
    clip = options.clip or make_clip(folder / "clip.mp4", Clip(times=constant_times(48), width=640, height=360))
    parts = [_interpreter, _small_commands, _worker, _opened, _command, _again, _after_up]
    if not options.without_ray:
        parts += [_opened_on_ray, _command_on_ray]
    took_s: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for part in parts:
            for name, seconds in part(clip, folder).items():
                took_s.setdefault(name, []).append(seconds)
    document |= {"clip": clip.name, "repeats": options.repeats, "took_s": took_s}
    print(f"\n{clip.name}, {options.repeats} runs of each.\n")
    print("\n".join(_lines(took_s)))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _lines(took_s: Mapping[str, Sequence[float]]) -> list[str]:
    rows = [
        [name, *(number(spread(seconds)[which], 2) for which in ("median", "least", "most"))]
        for name, seconds in took_s.items()
    ]
    return table_lines(["part", "median s", "least", "most"], rows)


def _interpreter(_clip: Path, _folder: Path) -> Mapping[str, float]:
    empty_s = _run(sys.executable, "-c", "")
    return {"interpreter": empty_s, "imports": _run(sys.executable, "-c", IMPORTS) - empty_s}


def _small_commands(clip: Path, _folder: Path) -> Mapping[str, float]:
    commands = {"--version": ("--version",), "--help": ("--help",), "probe": ("probe", clip)}
    return {name: _run(*COMMAND, *arguments) for name, arguments in commands.items()}


def _worker(_clip: Path, _folder: Path) -> Mapping[str, float]:
    return {"worker": _step("worker")["ready"]}


def _opened(_clip: Path, _folder: Path) -> Mapping[str, float]:
    found = _step("open")
    return {"host and worker": found["ready"], "stop": found["stop"]}


def _opened_on_ray(_clip: Path, _folder: Path) -> Mapping[str, float]:
    found = _step("open", order="first")
    return {"host, Ray and worker": found["ready"], "stop of Ray": found["stop"]}


def _again(clip: Path, folder: Path) -> Mapping[str, float]:
    found = _step("again", str(clip), str(folder / "warm.mp4"))
    return {"open fleet: first picture": found["first picture"], "open fleet: whole job": found["whole job"]}


def _after_up(clip: Path, folder: Path) -> Mapping[str, float]:
    """Start a warm fleet, and time the second command on it; the first makes the worker load the encoder."""
    env = _environment("") | {"XDG_RUNTIME_DIR": str(folder)}
    del env["CODECFLEET_WARM"]
    up_s = _run(*COMMAND, "up", env=env)
    try:
        _transcoded(clip, folder / "out.mp4", env, "")
        found = _transcoded(clip, folder / "out.mp4", env, " after up")
    finally:
        down_s = _run(*COMMAND, "down", env=env)
    return {"up": up_s, **found, "down": down_s}


def _command(clip: Path, folder: Path) -> Mapping[str, float]:
    return _transcoded(clip, folder / "out.mp4", _environment(""), "")


def _command_on_ray(clip: Path, folder: Path) -> Mapping[str, float]:
    return _transcoded(clip, folder / "out.mp4", _environment("first"), ", Ray first")


def _transcoded(clip: Path, output: Path, env: Mapping[str, str], how: str) -> Mapping[str, float]:
    """Run the command; return the times of its output lines, and the stages of its report."""
    began_s = time.monotonic()
    command = [*COMMAND, "transcode", "--json", "--overwrite", str(clip), str(output)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        said = [(time.monotonic() - began_s, json.loads(line)) for line in process.stdout or ()]
    whole_s = time.monotonic() - began_s
    if process.returncode != 0:
        raise CommandFailed(f"codecfleet transcode ended with {process.returncode}")
    first_s = next((at_s for at_s, event in said if _has_picture(event)), whole_s)
    done_s, done = said[-1]
    stages = {f"  {name}{how}": seconds for name, seconds in done["report"]["timings_s"].items() if name != "total"}
    return {
        f"transcode: first picture{how}": first_s,
        **stages,
        f"  end of the process{how}": whole_s - done_s,
        f"transcode{how}": whole_s,
    }


def _has_picture(event: Mapping[str, Any]) -> bool:
    return event["event"] == "segment_finished" or bool(event.get("frames_done"))


def _step(name: str, *arguments: str, order: str = "") -> Mapping[str, float]:
    command, env = module_command("start_steps", name, *arguments)
    env |= _environment(order) | {"PYTHONPATH": env["PYTHONPATH"]}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"the step {name} ended with {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _environment(order: str) -> dict[str, str]:
    return {**os.environ, "CODECFLEET_RAY": order, "CODECFLEET_WARM": "never"}


def _run(*command: object, env: Mapping[str, str] | None = None) -> float:
    began_s = time.monotonic()
    subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, check=True, env=env)
    return time.monotonic() - began_s


if __name__ == "__main__":
    sys.exit(main())
