"""The command ``infer``: its options, and its job."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from ..jobs.infer.spec import InferSpec
from ..jobs.request.parts import RUN
from .calls.answers import Answer
from .params import JsonFlag, usual_address_of, with_options
from .question import Question
from .services import Commands, Services


def _infer(
    spec: InferSpec,
    *,
    address: Annotated[
        str | None,
        usual_address_of(
            "Use this Ray cluster's DLAs: host:port, or auto for the one on this machine. Default: the environment's "
            "RAY_ADDRESS or the configuration's, else this machine.",
            RUN,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> Question:
    return Question(ask=AskInfer(spec, address), as_json=as_json, done_to_frames="inferred")


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


@dataclass(frozen=True, slots=True)
class AskInfer:
    """Runs the job on a cluster, the environment's if ``address`` is None, else on a private Ray."""

    spec: InferSpec
    address: str | None = None

    def __call__(self, services: Services, progress: Callable[[int], None]) -> Answer:
        """Run it.

        Raises:
            Unsupported: there is no DLA; on this machine that is found before Ray is started.
            CodecfleetError: the job failed.
        """
        del services
        from ..jobs.infer.job import count_dlas

        address = self.address or os.environ.get("RAY_ADDRESS") or "local"
        dlas = count_dlas(self.spec.devices, self.spec.mode) if address == "local" else 0
        return asyncio.run(_run(self.spec, address, dlas, progress))


async def _run(spec: InferSpec, address: str, dlas: int, progress: Callable[[int], None]) -> Answer:
    from ..cluster.fleet.default import default_pool
    from ..jobs.infer.job import infer

    pool = default_pool(address, slots=None, dlas=dlas)
    try:
        report = await infer(spec, pool, progress=progress)
    finally:
        await pool.aclose()
    return Answer(report.lines(), report.to_json())
