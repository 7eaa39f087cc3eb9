"""Plans a ladder: which renditions to make of a source, and for each a plan like that of a transcode job."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ...actors.encode.profiles import PROFILES
from ...errors import Cancelled, CodecfleetError, FleetUnavailable, InputError, Unsupported
from ..package.keys import Keys, read_keys
from ..package.sealing import packager
from ..package.values import TrackKey
from ..plan.plan import Plan, plan_of
from ..plan.reads import Reads, read_for, reads_beside
from ..request.spec import TranscodeSpec
from ..source.source import SourceReading, SourceStamp
from ..source.tracks import TrackKind
from ..stills.spec import StillsSpec
from ..title.hull import Slot
from ..title.per_title import CodecTitle, PerTitle, per_title_of
from ..title.probes import PROBED, Measured, ProbedSlot, Probing, probing_of
from ..title.rounds import ProbeRecord
from .report import LeftOut
from .rungs import (
    Rung,
    Scale,
    SoundGroup,
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

PROBES: Final = "per-title.json"  #: The file of a film's trial encodes (probes) in the work folder
THUMBNAILS: Final = "thumbnails"  #: The folder of thumbnails in the package
THUMBNAIL_GRID: Final = (10, 10)  #: Columns and rows of a sheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A planned ladder."""

    spec: LadderSpec
    stamp: SourceStamp  #: The source's version before it was read
    plans: Mapping[str, Plan]  #: The plan of each rendition by its name; the first carries sound and subtitles
    left_out: tuple[LeftOut, ...]
    sound_groups: tuple[tuple[str, ...], ...] = ()  #: For each sound track in the package, the groups that have it
    per_title: PerTitle | None = None  #: How the renditions were chosen, if they were chosen for the film
    keys: Mapping[str, TrackKey] | None = None  #: The key of each track of pictures and sound; None without encryption


@dataclass(frozen=True, slots=True)
class MadeRung:
    """A rung to make, with the size of its pictures; ``fields`` replace those of its request."""

    rung: Rung
    scale: Scale
    fields: Mapping[str, Any] = field(default_factory=dict)
    of_size: str = ""  # with --per-title, the preset's first rendition of this size, whose encryption key is used


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRead:
    """A ladder whose source was read; its renditions are written into ``folder``."""

    spec: LadderSpec
    folder: Path
    stamp: SourceStamp  #: The source's version before it was read
    reads: Reads
    sounds: tuple[SoundGroup, ...]
    rungs: tuple[MadeRung, ...]
    left_out: tuple[LeftOut, ...]
    keys: Keys | None = None
    per_title: PerTitle | None = None

    def request(self, made: MadeRung, *, carries: bool, sound: SoundGroup | None = None) -> TranscodeSpec:
        """Return the request of a rendition; the arguments are those of ``rendition_spec``."""
        spec = rendition_spec(self.spec, made.rung, self.folder, carries=carries, sound=sound)
        return spec.model_copy(update={"scale": made.scale, **made.fields})

    def planned(self, made: MadeRung, *, carries: bool, sound: SoundGroup | None = None) -> Plan:
        """Return the plan of a rendition."""
        with naming(made.rung.name):
            return plan_of(self.request(made, carries=carries, sound=sound), self.reads)


def read_ladder(
    spec: LadderSpec, folder: Path, preset_text: str | None = None, growing: SourceReading | None = None
) -> LadderRead:
    """Read the source once, and decide which rungs of the preset to make, in ``folder``.

    ``preset_text`` is the content of the preset's file, if the file is on another machine. ``growing`` is what has been
    read of a source that grows; its ``stamp`` then holds no version.

    Raises:
        InputError: the source cannot be read.
        RequestError: the preset or an option is wrong, or does not fit the source.
    """
    if spec.keys is not None:
        packager()  # raises now, before any work, if the packager is missing
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
    whole = plan_of(asked[0].model_copy(update={"scale": None}), reads).encoder.format
    chosen, left_out = choose(rungs, asked, (whole.width, whole.height))
    padding: tuple[LeftOut, ...] = ()
    if growing is None:  # otherwise the whole source's bitrate is unknown
        chosen, padding = without_padding(chosen, by_name, _source_rate(reads))
    return LadderRead(
        spec=spec,
        folder=folder,
        stamp=stamp,
        reads=reads,
        sounds=sounds,
        rungs=tuple(MadeRung(rung, scale) for rung, scale in chosen),
        left_out=(*left_out, *padding),
        keys=keys,
    )


def plan_read(read: LadderRead) -> Ladder:
    """Plan each rendition. Raises RequestError: an option does not fit the source."""
    first, *others = read.rungs
    carrying = [read.planned(first, carries=True, sound=each) for each in read.sounds or (None,)]
    sounding = with_sounds(only_played(carrying[0]), carrying[1:], [each.name for each in read.sounds])
    plans = {first.rung.name: sounding.plan}
    # Times in all files count from the same moment. The files' paths contain this moment, so that a later attempt that
    # counts from another moment does not reuse the files.
    beside_s = sounding.plan.carry.first_presentation_s
    silent = "silent" if beside_s is None else f"silent-{beside_s.numerator}_{beside_s.denominator}"
    read = replace(read, folder=read.folder / silent)
    for made in others:
        plan = read.planned(made, carries=False)
        plans[made.rung.name] = replace(plan, carry=replace(plan.carry, beside_s=beside_s))
    names = {each.rung.name: each.of_size or each.rung.name for each in read.rungs}
    heard = sum(each.kept and each.track.kind is TrackKind.AUDIO for each in sounding.plan.carry.tracks)
    return Ladder(
        spec=read.spec,
        stamp=read.stamp,
        plans=plans,
        left_out=(*read.left_out, *sounding.left_out),
        sound_groups=sounding.groups,
        per_title=read.per_title,
        keys=None if read.keys is None else read.keys.of(names, sound_names(heard)),
    )


def probing_for(read: LadderRead) -> Probing:
    """Return what to probe for ``--per-title``.

    Raises UsageError: the size cannot be measured; Unsupported: a rendition uses NVENC or a target quality.
    """
    return probing_of(read.spec.per_title or "", [_probed_slot(read, made) for made in read.rungs])


def _probed_slot(read: LadderRead, made: MadeRung) -> ProbedSlot:
    name, spec = made.rung.name, read.request(made, carries=False)
    for option, is_set in (("NVENC", spec.encoder == "nvenc"), ("a target quality", spec.target_quality is not None)):
        if is_set:
            message = f"--per-title chooses the CRF of software encoders, but the rendition {name} uses {option}"
            raise Unsupported(message, f"Leave out {option}, or --per-title.")
    plan = read.planned(replace(made, fields=PROBED), carries=False)
    picture, crf = plan.encoder.format, spec.quality
    if crf is None and spec.bitrate_bps is None:
        crf = PROFILES[plan.encoder.codec].default_quality
    stated_bps = spec.maxrate_bps if spec.bitrate_bps is None else spec.bitrate_bps
    return ProbedSlot(plan, Slot(name=name, size=(picture.width, picture.height), stated_bps=stated_bps, crf=crf))


def read_before(read: LadderRead) -> LadderRead:
    """Return the ladder with the probes of an earlier run, and if they are complete, with the rungs for its film."""
    probing = probing_for(read)
    return for_film(read, probing, ProbeRecord.read(read.folder / PROBES, probing.key).found)


def for_film(read: LadderRead, probing: Probing, found: Mapping[str, Measured]) -> LadderRead:
    """Return the ladder with the rungs that its probes chose; with the preset's while ``found`` lacks some probes."""
    per_title = per_title_of(probing, found)
    rungs = tuple(rung for each in per_title.codecs for rung in _rungs(read, probing, each))
    names = {each.rung.name for each in rungs} or {each.rung.name for each in read.rungs}
    reason = "the trial encodes of this film chose other sizes, or fewer bitrates"
    unused = (LeftOut(name=each.rung.name, reason=reason) for each in read.rungs if each.rung.name not in names)
    return replace(read, per_title=per_title, rungs=rungs or read.rungs, left_out=(*read.left_out, *unused))


def _rungs(read: LadderRead, probing: Probing, title: CodecTitle) -> Iterator[MadeRung]:
    by_name = {each.rung.name: each for each in read.rungs}
    slots = {each.slot.name: each.slot for each in probing.slots}
    of_size = {each.slot.size: by_name[each.slot.name] for each in probing.sizes if each.codec is title.codec}
    for slot, point in () if title.found is None else title.found.chosen.items():
        most_bps = slots[slot].stated_bps or point.bps  # the first rendition's point may exceed its stated bitrate
        rate = {"bitrate_bps": min(point.bps, most_bps)} if slots[slot].crf is None else {"quality": point.crf}
        rung = Rung(title.names[slot], by_name[slot].rung.layers)
        own = of_size[point.size]
        yield MadeRung(rung, own.scale, {"encoder": "software", **rate}, own.rung.name)


def _source_rate(reads: Reads) -> SourceRate:
    index = reads.source.index
    return SourceRate(index.codec, round(int(index.sizes_bytes.sum()) * 8 / index.duration_s))


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
    """Name the rendition in an error's message, unless the error would end any rendition.

    The named error is a new object, because other renditions may raise the original one.
    """
    try:
        yield
    except CodecfleetError as error:
        if isinstance(error, InputError | FleetUnavailable | Cancelled) or is_common(error):
            raise
        named = type(error)(f"rendition {rendition}: {error.message}", *error.args[1:])
        named.where = error.where
        raise named from error
