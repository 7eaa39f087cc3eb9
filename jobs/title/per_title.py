"""The request of ``--per-title``, its trial encodes (probes) and the chosen renditions, as text and JSON."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...actors.encode.settings import Codec
from .hull import RatePoint, Titled, titled
from .probes import Measured, Probing

_BPS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecTitle:
    """The probes of one codec, and the renditions chosen from them."""

    codec: Codec
    crfs: Mapping[tuple[int, int], tuple[int, ...]]  # the probed CRFs, by width and height
    found: Titled | None = None  # None until all probes have run
    # the name of the rendition for each slot; the rendition may have another size than the slot
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerTitle:
    """How the renditions of a ladder are chosen for its film."""

    asked: str  # as in ``Probing``
    measured: tuple[int, int]  # the size at which pictures are compared
    sample: Sequence[int]  # the numbers of the probed segments
    parts: int  # the number of the film's segments
    codecs: tuple[CodecTitle, ...]

    def lines(self) -> list[str]:
        """Return the request, and the probes or the chosen renditions, as lines of text."""
        width, height = self.measured
        head = f"per title {self.asked} at {width}x{height}, from {len(self.sample)} of {self.parts} parts of the film"
        return [head, *(line for each in self.codecs for line in _lines(each))]

    def to_json(self) -> dict[str, Any]:
        """Return the request, the probes and the choice as JSON values (docs/ladder.md)."""
        return {
            "asked": self.asked,
            "measured": list(self.measured),
            "sample": list(self.sample),
            "codecs": {each.codec.value: _json(each) for each in self.codecs},
        }


def per_title_of(probing: Probing, found: Mapping[str, Measured]) -> PerTitle:
    """Return the probes and, if ``found`` has all their results, the chosen renditions."""
    codecs = dict.fromkeys(each.codec for each in probing.slots)
    is_found = not any(probing.left(each, found) for each in probing.sizes)
    picture = probing.reference.output
    return PerTitle(
        asked=probing.asked,
        measured=(picture.width, picture.height),
        sample=probing.sample,
        parts=len(probing.slots[0].plan.segments),
        codecs=tuple(_title(probing, codec, found if is_found else None) for codec in codecs),
    )


def _title(probing: Probing, codec: Codec, found: Mapping[str, Measured] | None) -> CodecTitle:
    sizes = [each for each in probing.sizes if each.codec is codec]
    crfs = {each.slot.size: each.crfs for each in sizes}
    if found is None:
        return CodecTitle(codec=codec, crfs=crfs)
    slots = [each.slot for each in probing.slots if each.codec is codec]
    made = titled(slots, probing.points(codec, found), probing.goal)
    of_size = {each.slot.size: each.slot.name for each in sizes}
    preset = {each.slot.name for each in probing.slots}
    names = dict[str, str]()
    for slot, point in made.chosen.items():
        own = of_size[point.size]
        possible = itertools.chain([own], (f"{own}-{number}" for number in itertools.count(2)))
        taken = {each.lower() for each in (*names.values(), *(preset - {own}))}  # some file systems ignore case
        names[slot] = next(each for each in possible if each.lower() not in taken)
    return CodecTitle(codec=codec, crfs=crfs, found=made, names=names)


def _lines(title: CodecTitle) -> list[str]:
    if title.found is None:
        return [f"{title.codec} {size[0]}x{size[1]} with CRF {_listed(crfs)}" for size, crfs in title.crfs.items()]
    found = title.found
    lines = [
        f"{title.names[slot]}: CRF {point.crf}, about {round(point.bps / _BPS)} kbit/s and {float(point.quality):.4g}"
        for slot, point in found.chosen.items()
    ]
    first = next(iter(found.chosen.values()))
    if first.quality < found.goal:
        lines[0] += f", below the goal of {float(found.goal):.4g}: limited by its bitrate or the probed CRFs"
    return lines


def _listed(crfs: Sequence[int]) -> str:
    return ", ".join(map(str, crfs))


def _json(title: CodecTitle) -> dict[str, Any]:
    probed = [{"width": size[0], "height": size[1], "crfs": list(crfs)} for size, crfs in title.crfs.items()]
    found = title.found
    if found is None:
        return {"probes": probed}
    chosen = {title.names[slot]: {"for": slot, **_point(point)} for slot, point in found.chosen.items()}
    hull = [_point(each) for each in found.hull]
    return {"probes": probed, "goal": float(found.goal), "hull": hull, "chosen": chosen}


def _point(point: RatePoint) -> dict[str, Any]:
    width, height = point.size
    return {"width": width, "height": height, "crf": point.crf, "bps": point.bps, "quality": float(point.quality)}
