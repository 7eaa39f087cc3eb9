"""Plans a ladder: which renditions to make of a source, each with a plan as a job of its own has."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...errors import Cancelled, CodecfleetError, FleetUnavailable, InputError
from ..package.keys import read_keys
from ..package.sealing import packager
from ..package.values import TrackKey
from ..plan.plan import Plan, plan_of
from ..plan.reads import Reads, read_for, reads_beside
from ..request.spec import TranscodeSpec
from ..source.source import SourceReading, SourceStamp
from ..source.tracks import TrackKind
from ..stills.spec import StillsSpec
from .report import LeftOut
from .rungs import (
    Rung,
    Scale,
    SourceRate,
    check_grid,
    choose,
    read_rungs,
    read_sounds,
    rendition_spec,
    without_padding,
)
from .sounds import with_sounds
from .spec import LadderSpec
from .tracks import only_played, sound_names

THUMBNAILS: Final = "thumbnails"  #: The folder of thumbnails in the package
THUMBNAIL_GRID: Final = (10, 10)  #: Columns and rows of a sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A planned ladder."""

    spec: LadderSpec
    stamp: SourceStamp  #: The source's version before it was read
    plans: Mapping[str, Plan]  #: The plan of each rendition by its name; the first carries sound and subtitles
    left_out: tuple[LeftOut, ...]
    sound_groups: tuple[tuple[str, ...], ...] = ()  #: For each sound track of the first, the groups that have it
    keys: Mapping[str, TrackKey] | None = None  #: The key of each track of pictures and sound; None without encryption


def plan_ladder(
    spec: LadderSpec, folder: Path, preset_text: str | None = None, growing: SourceReading | None = None
) -> Ladder:
    """Read the source once, and decide which renditions to make, in ``folder``.

    ``preset_text`` is the content of the preset's file, if the file is on another machine. ``growing`` is the reading
    of a source that grows, which then has no version.

    Raises:
        InputError: the source cannot be read.
        RequestError: the preset or an option is wrong, or does not fit the source.
    """
    if spec.keys is not None:
        packager()  # before any work
    rungs, sounds = read_rungs(spec.preset, preset_text), read_sounds(spec.preset, preset_text)
    keys = None if spec.keys is None else read_keys(spec.keys, [rung.name for rung in rungs])
    sound = sounds[0] if sounds else None
    asked = [rendition_spec(spec, rung, folder, carries=True, sound=sound) for rung in rungs]
    by_name = {rung.name: each for rung, each in zip(rungs, asked, strict=True)}
    check_grid(spec, by_name)
    if growing is None:
        stamp = SourceStamp.of(spec.source)  # before the source is read, so that a change from then on is noticed
        reads = read_for(asked[0])
    else:
        stamp, reads = SourceStamp(spec.source, None), reads_beside(asked[0], growing, grows=True)
    whole = plan_of(asked[0].model_copy(update={"scale": None}), reads, one_pass=True).encoder.format
    chosen, left_out = choose(rungs, asked, (whole.width, whole.height))
    padding: tuple[LeftOut, ...] = ()
    if growing is None:  # otherwise the whole source's bitrate is unknown
        chosen, padding = without_padding(chosen, by_name, _source_rate(reads))
    (first, first_scale), *others = chosen
    carrying = [
        _planned(rendition_spec(spec, first, folder, carries=True, sound=each), first_scale, first, reads)
        for each in sounds or (None,)
    ]
    sounding = with_sounds(only_played(carrying[0]), carrying[1:], [each.name for each in sounds])
    plans = {first.name: sounding.plan}
    # All files count from the same moment. It is in their paths, so no later attempt reuses files with another one.
    beside_s = plans[first.name].carry.first_presentation_s
    folder /= "silent" if beside_s is None else f"silent-{beside_s.numerator}_{beside_s.denominator}"
    for rung, scale in others:
        plan = _planned(rendition_spec(spec, rung, folder, carries=False), scale, rung, reads)
        plans[rung.name] = replace(plan, carry=replace(plan.carry, beside_s=beside_s))
    heard = sum(each.kept and each.track.kind is TrackKind.AUDIO for each in sounding.plan.carry.tracks)
    return Ladder(
        spec=spec,
        stamp=stamp,
        plans=plans,
        left_out=(*left_out, *padding, *sounding.left_out),
        sound_groups=sounding.groups,
        keys=None if keys is None else keys.of(plans, sound_names(heard)),
    )


def _source_rate(reads: Reads) -> SourceRate:
    index = reads.source.index
    return SourceRate(index.codec, round(int(index.sizes_bytes.sum()) * 8 / index.duration_s))


def _planned(spec: TranscodeSpec, scale: Scale, rung: Rung, reads: Reads) -> Plan:
    with naming(rung.name):
        return plan_of(spec.model_copy(update={"scale": scale}), reads, one_pass=True)


def thumbnails_spec(ladder: Ladder, folder: Path) -> StillsSpec:
    """Return the request for thumbnails, which are taken from the smallest rendition."""
    smallest = min(ladder.plans.values(), key=lambda plan: plan.encoder.format.width * plan.encoder.format.height)
    return StillsSpec(
        source=smallest.spec.output,
        output=folder / THUMBNAILS,
        every_s=ladder.spec.thumbnails_s,
        sheet=THUMBNAIL_GRID,
        workers=ladder.spec.workers,
        device="cpu",
        ship=True,  # other machines do not see the work folder
    )


@contextmanager
def naming(rendition: str, is_common: Callable[[CodecfleetError], bool] = lambda _: False) -> Iterator[None]:
    """Name the rendition in the message of an error, unless the error would end any rendition.

    Other renditions may have the same error, so it stays as it is.
    """
    try:
        yield
    except CodecfleetError as error:
        if isinstance(error, InputError | FleetUnavailable | Cancelled) or is_common(error):
            raise
        named = type(error)(f"rendition {rendition}: {error.message}", *error.args[1:])
        named.where = error.where
        raise named from error
