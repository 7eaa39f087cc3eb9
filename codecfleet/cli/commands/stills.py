"""The command ``stills``."""

from typing import Final

from ...jobs.request.parts import RUN
from ...jobs.stills.spec import StillsSpec
from ..params import JSON, address_of, with_options
from ..question import Question
from ..sandbox import FileUse
from ..services import Commands


def _stills(
    spec: StillsSpec,
    *,
    address: str | None = address_of(
        "Use this Ray cluster: host:port, or auto for the one on this machine: docs/fleet.md. Default: the "
        "environment's RAY_ADDRESS, else this machine.",
        RUN,
    ),
    as_json: bool = JSON,
) -> Question:
    files = FileUse(
        reads=(spec.source,),
        writes=(spec.output,),
        starts_workers=True,
        address=address,
        may_use_gpu=spec.device != "cpu",
        needs_temporary=True,  # needed for the tone mapping of HDR video
    )
    return Question(
        ask=lambda services, progress: services.stills(spec, address, progress),
        as_json=as_json,
        files=files,
        done_to_frames="decoded",
    )


COMMANDS: Final[Commands] = {
    "stills": (
        with_options(_stills, StillsSpec),
        ["stills film.mkv thumbs --every 10", "stills film.mkv sprites --every 5 --sheet 10x10 --width 160"],
    )
}
