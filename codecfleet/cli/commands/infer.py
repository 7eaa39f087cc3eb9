"""The command ``infer``."""

from typing import Final

from ...jobs.infer.spec import InferSpec
from ...jobs.request.parts import RUN
from ..params import JSON, usual_address_of, with_options
from ..question import Question
from ..services import Commands


def _infer(
    spec: InferSpec,
    *,
    address: str | None = usual_address_of(
        "Use this Ray cluster's DLAs: host:port, or auto for the one on this machine. Default: the environment's "
        "RAY_ADDRESS or the configuration's, else this machine.",
        RUN,
    ),
    as_json: bool = JSON,
) -> Question:
    return Question(
        ask=lambda services, progress: services.infer(spec, address, progress),
        as_json=as_json,
        done_to_frames="inferred",
    )


COMMANDS: Final[Commands] = {
    "infer": (
        with_options(_infer, InferSpec),
        [
            "infer film.mkv --loadable resnet.dla --output film.npz",
            "infer film.mkv --loadable resnet.dla --output film.npz --mean 123.7,116.3,103.5 --scale 0.017 --dla 1",
            "infer film.mkv --loadable resnet.dla --output film.npz --dla-mode standalone --dla-wait spin",
        ],
    )
}
