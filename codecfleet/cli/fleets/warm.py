"""The commands ``up`` and ``down``, about this machine's warm fleet."""

from typing import Annotated, Final

import typer

from ...jobs.request.values import parse_count
from ..params import JsonFlag
from ..question import Question
from ..services import Commands

_IDLE_MINUTES: Final = 30
_IDLE_MINUTES_MAX: Final = 60 * 24 * 365
_SLOTS_MAX: Final = 1024

_WorkersOption = Annotated[
    str | None,
    typer.Option(
        "--workers",
        metavar="N",
        help="Most segments to encode at the same time, for all programs together. Default: one per core.",
        show_default=False,
    ),
]
_IdleOption = Annotated[
    str | None,
    typer.Option(
        "--idle-minutes",
        metavar="N",
        help=f"End the fleet when no program has been connected for this long. Default: {_IDLE_MINUTES}.",
        show_default=False,
    ),
]


def _up(*, workers: _WorkersOption = None, idle_minutes: _IdleOption = None, as_json: JsonFlag = False) -> Question:
    slots = None if workers is None else parse_count("--workers", workers, least=1, most=_SLOTS_MAX)
    idle = str(_IDLE_MINUTES) if idle_minutes is None else idle_minutes
    minutes = parse_count("--idle-minutes", idle, least=1, most=_IDLE_MINUTES_MAX)
    return Question(ask=lambda services, _progress: services.up(slots, minutes), as_json=as_json)


def _down(*, as_json: JsonFlag = False) -> Question:
    return Question(ask=lambda services, _progress: services.down(), as_json=as_json)


COMMANDS: Final[Commands] = {"up": (_up, ["up", "up --idle-minutes 120"]), "down": (_down, ["down"])}
