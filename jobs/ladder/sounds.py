"""Adds further forms of the sound to the plan of the rendition that carries it: other codecs, other channels. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...actors.tracks.speakers import speakers
from ..carry.carry import track_losses
from ..carry.containers import Container
from ..carry.sound import layouts, output_layout
from ..carry.track_plan import Action, TrackPlan
from ..plan.plan import Plan
from ..report.report import Warning_
from ..source.tracks import TrackKind
from .report import LeftOut
from .tracks import is_playable

_Form = tuple[str | None, int, int | None]  # the codec, the number of channels, and the bitrate that was asked for


@dataclass(frozen=True, slots=True)
class LadderSound:
    """The sound of a ladder: the plan that makes it, and the groups in which players find it."""

    plan: Plan  #: The plan of the rendition that carries all of it
    groups: tuple[tuple[str, ...], ...] = ()  #: For each sound track of its file, the groups that have it
    left_out: tuple[LeftOut, ...] = ()  #: The groups that add nothing


def with_sounds(plan: Plan, others: Sequence[Plan], names: Sequence[str]) -> LadderSound:
    """Return ``plan`` with the sound of other plans as well; ``names`` are those of all groups, () if there are none.

    A group shares a track of an earlier group, instead of encoding its own, if codec, stated bitrate and number of
    channels are the same, or if its own track would be dropped or have a codec that players do not know.
    """
    carry, tracks = plan.carry, list(plan.carry.tracks)
    made = [each for each in tracks if each.kept and each.track.kind is TrackKind.AUDIO]
    if not made or not names:
        return LadderSound(plan)
    groups = [[names[0]] for _ in made]
    left_out, losses = list[LeftOut](), list[Warning_]()
    for group, other in zip(names[1:], others, strict=True):
        earlier = list(made)
        taken = list[int]()
        for wanted in other.carry.tracks:
            same = [at for at, each in enumerate(earlier) if each.track.index == wanted.track.index]
            if wanted.track.kind is not TrackKind.AUDIO or not same:
                continue
            form = _form(wanted, plan.container)
            found = next((at for at in same if _form(earlier[at], plan.container) == form), None)
            if found is None and wanted.kept and is_playable(wanted):
                made.append(replace(wanted, encoding=len(same)))
                groups.append([group])
                losses += track_losses(other.carry, wanted)
            else:
                taken.append(same[0] if found is None else found)
        if len(made) == len(earlier):
            left_out.append(LeftOut(name=group, reason="earlier groups have all of its sound"))
            continue
        for at in taken:
            groups[at].append(group)
    added = tuple(each for each in made if each.encoding)
    new = tuple(each for each in dict.fromkeys(losses) if each not in carry.losses)
    carry = replace(carry, tracks=(*tracks, *added), losses=(*carry.losses, *new))
    warnings = dict.fromkeys((*plan.warnings, *new, *carry.changes))
    choices = dict.fromkeys((*plan.choices, *carry.choices))
    whole = replace(plan, carry=carry, warnings=tuple(warnings), choices=tuple(choices))
    return LadderSound(_in_own_folder(whole, added) if added else whole, tuple(map(tuple, groups)), tuple(left_out))


def _form(plan: TrackPlan, container: Container) -> _Form:
    """Return the form in which listeners hear a track. It has at most as many channels as the source."""
    has = max((len(speakers(layout)) for layout in layouts(plan.track)), default=0)
    if plan.action is not Action.ENCODE or plan.codec is None:
        return plan.codec, has, None
    given = len(speakers(output_layout(plan.track, plan.codec, plan.channels, container)))
    return plan.codec, min(has, given), plan.bit_rate_bps


def _in_own_folder(plan: Plan, added: Sequence[TrackPlan]) -> Plan:
    """Return the plan with an output of its own for these further forms.

    The plan's request does not name the forms, so its path must: a later attempt with other forms may not reuse the
    file.
    """
    forms = [(each.key, each.codec, each.bit_rate_bps, each.channels, str(each.loudness_lufs)) for each in added]
    digest = hashlib.sha256(repr(forms).encode()).hexdigest()[:16]
    path = Path(plan.spec.output)
    output = str(path.parent / f"sound-{digest}" / path.name)
    return replace(plan, spec=plan.spec.model_copy(update={"output": output}))
