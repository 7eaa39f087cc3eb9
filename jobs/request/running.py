"""The options for running a job: segments, machines, deadlines, and the journal with which a job resumes."""

from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .options import Option
from .parts import PATH, RUN, Part


class Segmenting(Part):
    """How the source is cut, and how many segments are in flight."""

    segment_s: Annotated[
        Fraction | None,
        Field(gt=0, description="Target length of a segment in seconds."),
        Option("--segment-seconds", RUN, default="about 10", example="5", metavar="S"),
    ] = None
    workers: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000,
            description="The most segments to encode at the same time. The number changes no byte of the output.",
        ),
        Option("--workers", RUN, default="as many as the machines can run", example="4"),
    ] = None


class WaitOptions(Part):
    """How long to wait for workers and for progress, and how many segments may run twice."""

    wait_s: Annotated[
        Fraction,
        Field(
            ge=0,
            description="Fail the job after this long without any worker. 0 waits forever, for a cluster that grows on "
            "demand.",
        ),
        Option("--wait-seconds", RUN, metavar="S"),
    ] = Fraction(3600)
    deadline_s: Annotated[
        Fraction,
        Field(
            gt=0,
            description="Replace a segment's worker and run the segment elsewhere after this long without progress, or "
            "after --deadline-factor times its expected duration, if that is longer: docs/reliability.md.",
        ),
        Option("--deadline-seconds", RUN, example="30", metavar="S"),
    ] = Fraction(30)
    deadline_factor: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="The deadline is at least this many times the expected duration: docs/reliability.md.",
        ),
        Option("--deadline-factor", RUN, metavar="N"),
    ] = 4
    second_runs: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="The percentage of segments that may also start on a second worker if the first worker is "
            "late: docs/reliability.md.",
        ),
        Option("--second-runs", RUN, metavar="PERCENT"),
    ] = 25


class Reaching(Part):
    """How nodes that cannot see the source get its bytes."""

    ship: Annotated[
        bool,
        Field(
            description="Send the local input to cluster nodes that cannot see it. Each node gets only the bytes that "
            "its segments need: docs/storage.md."
        ),
        Option("--ship", RUN, default="every node must see the input"),
    ] = False


class MachineOptions(Part):
    """Which machines do the work, and with what priority."""

    priority: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="0 to 100. On a shared cluster, the highest gets workers first: docs/supervisor.md.",
        ),
        Option("--priority", RUN),
    ] = 0
    weight: Annotated[
        int,
        Field(ge=1, le=100, description="1 to 100. The job's share of the workers among jobs of the same priority."),
        Option("--weight", RUN),
    ] = 1
    finish_within_s: Annotated[
        Fraction | None,
        Field(
            gt=0,
            description="On an autoscaling cluster, request the nodes needed to finish in this time, within "
            "the cluster's limits: docs/autoscaling.md.",
        ),
        Option("--finish-within-seconds", RUN, default="the cluster's setting", example="900", metavar="S"),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "gpu"],
        Field(
            description="Use GPUs where they are faster (auto), never (cpu), or for every segment (gpu): docs/fleet.md."
        ),
        Option("--device", RUN),
    ] = "auto"


class RunOptions(MachineOptions):
    """Which encoder to use, and whether to keep evidence of a failure."""

    encoder: Annotated[
        Literal["auto", "software", "nvenc"],
        Field(
            description="Encode with software, with a GPU's NVENC, or with whichever finishes first (auto). The choice"
            " changes the output's bytes: docs/nvenc.md."
        ),
        Option("--encoder", RUN),
    ] = "auto"
    keep_evidence: Annotated[
        str | None,
        Field(
            min_length=1,
            description="If a segment makes the job fail, save in this folder the part of the input that the "
            "segment read, for a bug report: docs/reliability.md.",
        ),
        Option("--keep-evidence", RUN, default="nowhere", example='"evidence"', metavar="DIR"),
        PATH,
    ] = None

    @model_validator(mode="after")
    def _check_encoder(self) -> Self:
        if self.device == "cpu" and self.encoder == "nvenc":
            raise ValueError("`device` cpu and `encoder` nvenc exclude each other: NVENC needs a GPU")
        return self


class Journaling(Part):
    """Where finished segments are stored, so that a killed job can resume."""

    work: Annotated[
        str | None,
        Field(
            description="Folder or fsspec URL in which to store finished segments and the journal: docs/reliability.md."
        ),
        Option("--work", RUN, default="beside the output", example='"s3://bucket/work"', metavar="PLACE"),
        PATH,
    ] = None
    no_journal: Annotated[
        bool,
        Field(description="Store nothing from which the job could be resumed; --work is ignored."),
        Option("--no-journal", RUN),
    ] = False


class Restarting(Part):
    """The option that decides about an earlier job's work."""

    restart: Annotated[
        bool,
        Field(description="Start over, and discard the finished segments of an earlier job for this output."),
        Option("--restart", RUN, default="resume"),
    ] = False
