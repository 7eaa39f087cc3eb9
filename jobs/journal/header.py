"""A journal's header, which states everything that a job's bytes depend on. Compares two headers. Pure."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import av

from ...actors.media.location import is_local
from ...actors.media.stores import source_version
from ...cluster.version import installed
from ..plan.plan import Plan
from ..request.options import options_of
from ..request.parts import Part
from ..request.spec import JobOptions, TranscodeSpec
from ..source.drawn.burnt_track import font_sha256
from ..source.drawn.overlay_file import OverlayFile
from ..source.index import TrackIndex
from .records import JobHeader, packed, unpacked

_NEITHER: Final = frozenset(
    {"source", "output", "encoder", "device", "workers", "priority", "weight", "work", "no_journal", "restart"}
    | {"overwrite", "strict", "force", "keep_evidence", "wait_s", "deadline_s", "deadline_factor", "second_runs"}
    | {"if_smaller", "ship", "finish_within_s", "quiet_s"}
)
"""Fields of a spec that change no byte of the output, or that other fields of a header cover (input, encoder)."""
BESIDE_BYTES: Final = _NEITHER - {"source", "output", "encoder", "device"}
"""Fields of a spec that may differ between two requests for the same output."""
_WORDS: Final = {
    "codecfleet": ("codecfleet's version was {} and is {}", "continue it with that version"),
    "libraries": ("PyAV's version was {} and is {}", "continue it with that version of PyAV"),
    "input_version": ("the input has changed, or is a different one", "put the input back as it was"),
    "input_index": ("the input's packets differ", "put the input back as it was"),
    "overlay": ("the overlay picture has changed", "put the picture back as it was"),
    "font": ("the font of the subtitles has changed", "put the font back as it was"),
    "cuts": ("the input is cut at other places", ""),
    "kind": ("the encoder was {} and is {}", "continue it on a machine with that encoder"),
    "settings": ("the encoder's settings or pictures differ", ""),
}
"""For each field: how the job differs from the unfinished job, and how to continue that job without starting over."""


def header_of(plan: Plan) -> JobHeader:
    """Return the header of a job with this plan; the encoder must be chosen already."""
    spec = plan.spec
    job = {
        "codecfleet": _own_version(),
        "libraries": f"PyAV {av.__version__}",
        "input_version": _version_of(spec.source),
        "input_index": _index_digest(plan.index),
        "spec": {name: value for name, value in spec.model_dump(mode="json").items() if name not in _NEITHER},
        **read_beside(spec),
        "cuts": [[each.start_ticks, each.end_ticks] for each in plan.segments],
    }
    pictures = repr((plan.source_format, plan.filters, plan.encoder, plan.container.name))
    encoder = {"kind": plan.encoder_kind, "settings": hashlib.sha256(pictures.encode()).hexdigest()}
    fields = spec.model_dump(mode="json") | {"restart": False}
    return JobHeader(job=job, encoder=encoder, spec=fields, output=spec.output, segments=len(plan.segments))


def _own_version() -> str:
    return installed("codecfleet") or "0+checkout"


def read_beside(spec: JobOptions) -> dict[str, str | None]:
    """Return the SHA-256 of the overlay picture and of the font, None for a file that the job does not use.

    Raises InputError.
    """
    overlay = None if spec.overlay is None else OverlayFile.read(spec.overlay).sha256
    font = font_sha256(spec.subtitle_font)
    return {"overlay": overlay} | ({} if font is None else {"font": font})


def spec_of(header: JobHeader) -> TranscodeSpec:
    """Return a journal's request. Raises ValueError: this version does not know the request's options."""
    return TranscodeSpec.model_validate(dict(header.spec))


class Difference(NamedTuple):
    """The reason why work does not belong to a job."""

    reason: str
    continued_by: str  #: the change with which the job could continue; "" if it can only start over


def difference(found: JobHeader, wanted: JobHeader, *, encoder: bool = True) -> Difference | None:
    """Return how ``found`` differs from ``wanted``; None if it does not differ.

    Without ``encoder``, encoders are not compared.
    """
    before, now = dict(found.job), _as_written(wanted.job)
    if encoder:
        before, now = before | dict(found.encoder), now | _as_written(wanted.encoder)
    if before == now:
        return None
    if before.get("spec") != now["spec"]:
        return Difference(_spec_difference(before.get("spec") or {}, now["spec"]), "run the command that began it")
    name = next(name for name in now if before.get(name) != now[name])
    reason, continued_by = _WORDS[name]
    return Difference(reason.format(before.get(name), now[name]), continued_by)


def request_text(spec: Part) -> str:
    """Return a request as JSON, without the fields that may differ between two requests for the same output."""
    stated = spec.model_dump(mode="json")
    return json.dumps({name: value for name, value in stated.items() if name not in BESIDE_BYTES}, sort_keys=True)


def asks_again(found: JobHeader, spec: TranscodeSpec) -> bool:
    """Return whether a request equals the one in ``found``, and the source is unchanged. No plan is needed."""
    wanted = spec.model_dump(mode="json")
    before, now = ({n: v for n, v in each.items() if n not in BESIDE_BYTES} for each in (found.spec, wanted))
    stated = {"codecfleet": _own_version(), "input_version": _version_of(spec.source), **read_beside(spec)}
    return before == now and all(found.job.get(name) == value for name, value in stated.items())


def _as_written(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value as a journal returns it: with lists instead of tuples."""
    written = unpacked(packed(JobHeader(job=stated, encoder={}, spec={}, output="", segments=0)))
    return dict(written.job) if isinstance(written, JobHeader) else {}


def _spec_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    options = options_of(TranscodeSpec)
    name = next((name for name in now if name in before and before[name] != now[name]), "")
    if not name:
        return "its options belong to another version"
    return f"{options[name].flag} was {_said(before[name])} and is {_said(now[name])}"


def _said(value: object) -> str:
    return "not given" if value in (None, []) else str(value)


def _version_of(source: str) -> list[Any] | None:
    """Return a source's size and modification time, or the version that its store states.

    Both are the same on every machine.
    """
    found = source_version(source)
    if not isinstance(found, tuple):
        return None
    return list(found[2:]) if is_local(source) else list(found)


def _index_digest(index: TrackIndex) -> str:
    """Return a digest of the place, size, times and flags of every packet."""
    digest = hashlib.sha256(f"{index.codec} {index.time_base} {index.frame_rate}".encode())
    for column in (index.pts, index.dts, index.pos_bytes, index.sizes_bytes, index.flags):
        digest.update(column.tobytes())
    return digest.hexdigest()
