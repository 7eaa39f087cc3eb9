"""The commands ``ladder`` and ``stills``, which write a folder."""

from collections.abc import Sequence
from typing import Final

from ...errors import UsageError
from ...jobs.ladder.rungs import files_of
from ...jobs.ladder.spec import LadderSpec
from ...jobs.request.config import load_config
from ...jobs.request.parts import RULES, RUN
from ...jobs.stills.spec import StillsSpec
from ..params import JSON, address_of, flag, with_options
from ..question import Question
from ..sandbox import FileUse
from ..services import Commands
from .transcode import usual_view

_ADDRESS = address_of(
    "Use this Ray cluster: host:port, or auto for the one on this machine: docs/fleet.md. Default: the environment's "
    "RAY_ADDRESS, else this machine.",
    RUN,
)


def _stills(spec: StillsSpec, *, address: str | None = _ADDRESS, as_json: bool = JSON) -> Question:
    return Question(
        ask=lambda services, progress: services.stills(spec, address, progress),
        as_json=as_json,
        files=_file_use(spec, address),
        done_to_frames="decoded",
    )


def _ladder(
    spec: LadderSpec,
    *,
    dry_run: bool = flag(
        "--dry-run", "Print what would be made, what would be left out, and why. Makes nothing.", RULES
    ),
    address: str | None = _ADDRESS,
    as_json: bool = JSON,
) -> Question:
    if dry_run and spec.follow:
        raise UsageError("--dry-run cannot be used with --follow", "Leave out one of them.")
    return Question(
        ask=lambda services, tell: (
            services.plan_ladder(spec, address) if dry_run else services.ladder(spec, address, tell)
        ),
        as_json=as_json,
        files=_file_use(
            spec,
            address,
            reads=(
                *files_of(spec.preset, load_config().sent.specs.get(spec.preset)),
                *(() if spec.keys is None else (spec.keys,)),
            ),
            writes=() if spec.keep_evidence is None else (spec.keep_evidence,),
        ),
        display=usual_view,
        interrupted_step="" if dry_run else "Run the same command to continue.",
    )


def _file_use(
    spec: StillsSpec | LadderSpec, address: str | None, *, reads: Sequence[str] = (), writes: Sequence[str] = ()
) -> FileUse:
    return FileUse(
        reads=(spec.source, *reads),
        writes=(spec.output, *writes),
        starts_workers=True,
        address=address,
        may_use_gpu=spec.device != "cpu",
        needs_temporary=True,  # needed for the tone mapping of HDR video
    )


COMMANDS: Final[Commands] = {
    "ladder": (
        with_options(_ladder, LadderSpec),
        ["ladder film.mkv film-ladder", "ladder film.mkv film-ladder --preset cmaf-av1-hevc-h264 --layout files"],
    ),
    "stills": (
        with_options(_stills, StillsSpec),
        ["stills film.mkv thumbs --every 10", "stills film.mkv sprites --every 5 --sheet 10x10 --width 160"],
    ),
}
