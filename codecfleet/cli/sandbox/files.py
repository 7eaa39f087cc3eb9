"""Which files a command needs: docs/security.md."""

from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from ...jobs.request.spec import TranscodeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """The files that a command names. Without workers it neither asks for devices nor for a cluster.

    Attributes:
        reads: paths and URLs that it reads.
        writes: paths and URLs of what it makes, each in a folder that is there.
        starts_workers: whether it does.
        address: the cluster that it names.
        may_use_gpu: whether its work may run on a GPU.
        needs_temporary: whether its workers keep files in TMPDIR.
        may_send_traces: whether it sends traces where a collector is named.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    starts_workers: bool = False
    address: str | None = None
    may_use_gpu: bool = True
    needs_temporary: bool = False
    may_send_traces: bool = False

    @classmethod
    def of_job(cls, spec: TranscodeSpec, address: str | None, *more_writes: str | None) -> Self:
        """Return the files of a job that makes one output, and of what else it writes."""
        written = (spec.output, None if spec.no_journal else spec.work, spec.keep_evidence, *more_writes)
        return cls(
            reads=tuple(each for each in (spec.source, spec.overlay, spec.subtitle_font) if each is not None),
            writes=tuple(each for each in written if each is not None),
            starts_workers=True,
            address=address,
            may_use_gpu=spec.device != "cpu",
            needs_temporary=spec.tonemap is not None,
            may_send_traces=True,
        )


@runtime_checkable
class UsesFiles(Protocol):
    """A command that says which files it needs."""

    @property
    def files(self) -> FileUse | None:
        """The files; None where they are not known before it runs."""
        ...
