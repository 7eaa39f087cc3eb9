"""The parts of specs that say how the work is done: cut, placed on machines, waited for, and kept for going on."""

from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .options import Option
from .parts import PATH, RUN, Part


class Segmenting(Part):
    """How the source is cut, and how many segments are in flight."""

    segment_s: Annotated[
        Fraction | None,
        Field(gt=0, description="Length to aim for when cutting, in seconds."),
        Option("--segment-seconds", RUN, default="about 10", example="5", metavar="S"),
    ] = None
    workers: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000,
            description="Segments in flight at the same time; the output's bytes do not depend on it.",
        ),
        Option("--workers", RUN, default="what the machines have room for", example="4"),
    ] = None


class WaitOptions(Part):
    """How long a job waits for workers, and work for progress; how much of it may run twice."""

    wait_s: Annotated[
        Fraction,
        Field(
            ge=0,
            description="End the job after this long without any worker; 0 waits without end, for a cluster that "
            "grows on demand.",
        ),
        Option("--wait-seconds", RUN, metavar="S"),
    ] = Fraction(3600)
    deadline_s: Annotated[
        Fraction,
        Field(
            gt=0,
            description="A segment that makes no progress for this long, or for --deadline-factor times what it should "
            "take, is done elsewhere and its worker replaced: docs/reliability.md.",
        ),
        Option("--deadline-seconds", RUN, example="30", metavar="S"),
    ] = Fraction(30)
    deadline_factor: Annotated[
        int,
        Field(ge=1, le=1000, description="See --deadline-seconds: the longer of the two counts."),
        Option("--deadline-factor", RUN, metavar="N"),
    ] = 4
    second_runs: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="Percent of the segments that may run a second time elsewhere while the first run is late: "
            "docs/reliability.md.",
        ),
        Option("--second-runs", RUN, metavar="PERCENT"),
    ] = 25


class Reaching(Part):
    """How nodes that do not see the source come to it."""

    ship: Annotated[
        bool,
        Field(
            description="Have this machine send a local input to nodes of a cluster that do not see it, each the bytes "
            "that its segments need: docs/storage.md."
        ),
        Option("--ship", RUN, default="every node must see it"),
    ] = False


class MachineOptions(Part):
    """Which machines do the work, and with what priority."""

    priority: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="0 to 100: on a shared cluster, jobs with a higher one get workers first: docs/supervisor.md.",
        ),
        Option("--priority", RUN),
    ] = 0
    weight: Annotated[
        int,
        Field(ge=1, le=100, description="1 to 100: the job's part in a fair share among jobs of its priority."),
        Option("--weight", RUN),
    ] = 1
    finish_within_s: Annotated[
        Fraction | None,
        Field(
            gt=0,
            description="Have a cluster that grows by itself start the nodes that the job needs to end by then, as far "
            "as its limits allow: docs/autoscaling.md.",
        ),
        Option("--finish-within-seconds", RUN, default="as the cluster's owner says", example="900", metavar="S"),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "gpu"],
        Field(description="GPUs: where they are faster, never, or required: docs/fleet.md."),
        Option("--device", RUN),
    ] = "auto"


class RunOptions(MachineOptions):
    """What encodes, and what is kept of a failure."""

    encoder: Annotated[
        Literal["auto", "software", "nvenc"],
        Field(
            description="What encodes: whichever finishes first, software, or a GPU's NVENC: docs/nvenc.md. It decides "
            "the output's bytes."
        ),
        Option("--encoder", RUN),
    ] = "auto"
    keep_evidence: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Folder in which to save what a segment read that failed its job, for a report: "
            "docs/reliability.md.",
        ),
        Option("--keep-evidence", RUN, default="nowhere", example='"evidence"', metavar="DIR"),
        PATH,
    ] = None

    @model_validator(mode="after")
    def _check_encoder(self) -> Self:
        if self.device == "cpu" and self.encoder == "nvenc":
            raise ValueError("`device` cpu and `encoder` nvenc exclude each other: NVENC is a GPU's")
        return self


class Journaling(Part):
    """Whether finished segments are kept for a job that goes on after its death, and where."""

    work: Annotated[
        str | None,
        Field(
            description="Keep finished segments and the journal in this folder or at this fsspec URL: "
            "docs/reliability.md."
        ),
        Option("--work", RUN, default="beside the output", example='"s3://bucket/work"', metavar="PLACE"),
        PATH,
    ] = None
    no_journal: Annotated[
        bool,
        Field(description="Keep nothing from which the job could be continued; --work is ignored."),
        Option("--no-journal", RUN),
    ] = False


class Restarting(Part):
    """What becomes of an earlier job's work."""

    restart: Annotated[
        bool,
        Field(description="Start over, whatever an earlier job has finished of this output."),
        Option("--restart", RUN, default="continue"),
    ] = False
