"""Confines this process to the files of one command, as docs/security.md describes."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from ..jobs.request.spec import TranscodeSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """The files that a command names, and its use of workers.

    Without workers, a command uses no devices and no cluster.
    """

    reads: tuple[str, ...]  #: paths and URLs
    writes: tuple[str, ...] = ()  #: paths and URLs; their folders need not exist yet
    starts_workers: bool = False
    address: str | None = None  #: the cluster that the command names
    may_use_gpu: bool = True
    needs_temporary: bool = False  #: whether the workers keep files in TMPDIR
    may_send_traces: bool = False  #: whether the command sends traces if a collector is configured

    @classmethod
    def of_job(cls, spec: "TranscodeSpec", address: str | None, *more_writes: str | None) -> Self:
        """Return what a job with one output uses.

        ``more_writes`` are further files that it writes, such as a report.
        """
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


def confine_command(request: Any, mode: str) -> None:  # noqa: ANN401 - a CommandRequest, or any other command
    """Confine this process to the files of ``request``, if possible; ``mode`` is the setting ``sandbox``.

    Raises Unsupported if the process cannot be confined although the setting requires it.
    """
    if mode == "off":
        return
    reason = _confined(getattr(request, "files", None))
    if reason and mode == "required":
        from ..errors import Unsupported

        advice = 'Use local files, or set sandbox to "auto": docs/security.md says what is confined.'
        raise Unsupported(f"sandbox is required, and this command cannot be confined: {reason}", advice)


def _confined(files: FileUse | None) -> str:
    from ..actors.media.location import local_path
    from ..cluster import machine
    from ..cluster.fleet_variables import WARM
    from ..cluster.sandbox.confine import FileAccess, confine, why_not

    if files is None:
        return "its files are not known before it runs, or it reaches a cluster"
    if reason := _refusal(files) or why_not():
        return reason
    reads = tuple(local_path(each) for each in files.reads)
    try:
        confine(FileAccess(reads=reads, writes=tuple(_folders(files))), machine.memory_bytes())
    except OSError as error:
        return str(error)
    os.environ[WARM] = "never"  # a warm fleet is reached through a socket
    return ""


def _refusal(files: FileUse) -> str:
    """Return why a command needs more than its files; "" if its files suffice."""
    from ..actors.media.location import is_local
    from ..actors.tracing import is_traced

    if not all(map(is_local, (*files.reads, *files.writes))):
        return "it reads from or writes to a remote URL"
    if not files.starts_workers:
        return ""
    if files.may_send_traces and is_traced(os.environ):
        return "it sends traces to a collector"
    from ..cluster.fleet.warm import is_any_warm
    from ..cluster.fleet_variables import may_use_warm_fleet
    from ..cluster.probes.nvml import can_load_nvml
    from ..cluster.ray.ray_environment import may_begin_without_ray

    if not may_begin_without_ray(files.address):
        return "it connects to Ray over the network"
    if files.may_use_gpu and can_load_nvml():
        return "this machine has an NVIDIA driver, and GPU workers run on a private Ray"
    return "it runs on a warm fleet" if may_use_warm_fleet(os.environ) and is_any_warm() else ""


def _folders(files: FileUse) -> Iterable[Path]:
    """Yield the folders, devices and pipes to which a command writes."""
    from tempfile import gettempdir

    from ..actors.media.location import local_path
    from ..cluster.fleet_variables import EVENTS

    for path in (local_path(name).absolute() for name in files.writes):
        if path.is_dir():
            yield path
        is_device = path.exists() and not path.is_dir() and not path.is_file()
        # A folder for work or evidence may not exist yet.
        yield path if is_device else next(each for each in path.parents if each.is_dir())
    if files.needs_temporary:
        yield Path(gettempdir())
    if files.starts_workers and (events := os.environ.get(EVENTS, "")):
        Path(events).mkdir(parents=True, exist_ok=True)
        yield Path(events)
