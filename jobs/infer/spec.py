"""The request of ``codecfleet infer``."""

from fractions import Fraction
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator

from ...actors.media.location import absolute
from ..request.options import COUNTS, NUMBERS, Option
from ..request.parts import RULES, RUN, Overwrite, Part, Source, SourceRange
from ..request.running import Reaching, Segmenting, WaitOptions

NETWORK: Final = "The network"


class _Network(Part):
    source: Source
    loadable: Annotated[
        str,
        Field(
            description="The network, built for this DLA with TensorRT; one input of 1, 3 or 4 channels: docs/dla.md."
        ),
        Option("--loadable", NETWORK, metavar="FILE"),
    ]
    mean: Annotated[
        tuple[float, ...],
        Field(
            description="The number to subtract from each sample: one for all channels, or one for each. Samples are "
            "0 to 255."
        ),
        Option("--mean", NETWORK, default="0", metavar="M[,M,M]", kind=NUMBERS),
    ] = (0.0,)
    scale: Annotated[
        tuple[float, ...],
        Field(
            description="The factor for each sample, after --mean is subtracted: one for all channels, or one for each."
        ),
        Option("--scale", NETWORK, default="1", metavar="S[,S,S]", kind=NUMBERS),
    ] = (1.0,)
    channels: Annotated[
        Literal["rgb", "bgr"], Field(description="The order of the network's channels."), Option("--channels", NETWORK)
    ] = "rgb"


class InferSpec(WaitOptions, Reaching, Segmenting, SourceRange, _Network):
    """The request to run a network over the frames of one video track."""

    output: Annotated[
        str,
        Field(description="Where the tensors and their times are written, completely or not at all."),
        Option("--output", RULES, metavar="FILE.npz"),
    ]
    devices: Annotated[
        tuple[int, ...] | None,
        Field(description="Use the DLA with this number on each machine, counted from 0."),
        Option("--dla", RUN, default="all", kind=COUNTS),
    ] = None
    mode: Annotated[
        Literal["hybrid", "standalone"],
        Field(
            description="Run the DLA through CUDA and the GPU (hybrid), or without CUDA, with NvSci's buffers "
            "(standalone)."
        ),
        Option("--dla-mode", RUN),
    ] = "hybrid"
    dla_input: Annotated[
        Literal["host", "device"],
        Field(
            description="Make the network's input on the host, or on the GPU that decoded the picture. A GPU scales "
            "differently, so results differ in the last bits."
        ),
        Option("--dla-input", RUN),
    ] = "host"
    waiting: Annotated[
        Literal["block", "spin"],
        Field(
            description="How a thread waits for a DLA: block sleeps and saves power; spin uses a core and returns "
            "sooner."
        ),
        Option("--dla-wait", RUN),
    ] = "block"
    tasks_at_once: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="How many tasks are queued together on a DLA, 1 to 64. The loadable's input sets the number of "
            "frames of a task.",
        ),
        Option("--tasks-at-once", RUN),
    ] = 4
    task_limit_s: Annotated[
        Fraction,
        Field(gt=0, le=1000, description="How long one task may run before the DLA counts as hung, at most 1000."),
        Option("--task-seconds", RUN, metavar="S"),
    ] = Fraction(10)
    workers: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="The most segments in flight at the same time."),
        Option("--workers", RUN, default="two for each DLA"),
    ] = None
    overwrite: Overwrite = False

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: str) -> str:
        if not output.endswith(".npz"):
            raise ValueError(f"{output} does not end in .npz: tensors are written as NumPy's .npz")
        return output

    def resolved(self) -> Self:
        """Make local paths absolute, because workers may run in another folder; return the new request."""
        paths = {"source": self.source, "loadable": self.loadable, "output": self.output}
        return self.model_copy(update={name: absolute(path) for name, path in paths.items()})
