"""The demand of a whole ladder, and the one decision where its renditions run, on machines of the tables."""

from dataclasses import replace

import pytest

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.inventory import Inventory
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.model.preview import PlacementPreview, preview_of
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.jobs.ladder.demands import demand_of_all, place_ladder
from codecfleet.testing import LocalPool
from tests.unit.cluster.placement.worlds import demand, inventory, node, rendition

ADA = EncoderKind("nvenc", "ada", "580")
SOFTWARE = EncoderKind("libx265")


def l4(sessions_max: int | None) -> Inventory:
    """Return a machine with an L4 whose driver limits encoder sessions."""
    machine = node("n", "L4")
    return inventory(replace(machine, system_encoder_sessions_max=sessions_max))


class PlacingPool(LocalPool):
    """A pool that previews placements on an inventory."""

    def __init__(self, machines: Inventory) -> None:
        super().__init__()
        self._machines = machines

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Place the demand on otherwise idle machines."""
        rates = start_rates()
        return preview_of(
            demand, (), self._machines, lambda jobs, on: place(jobs, on, rates, Policy()), idle=self._machines
        )


def renditions(count: int = 4, **changes: object) -> list[Demand]:
    """Return the demands of equal renditions."""
    return [demand(f"job {number}", segments=50, **changes) for number in range(count)]


async def test_one_encoder_for_all() -> None:
    """If NVENC can encode all renditions at once, all use it; without a GPU, all use software."""
    found = await place_ladder(PlacingPool(l4(None)).preview, "ladder", renditions())
    assert (found.apart, found.kind) == ("", ADA)
    found = await place_ladder(PlacingPool(inventory(node("n"))).preview, "ladder", renditions())
    assert (found.apart, found.kind) == ("", None)


@pytest.mark.parametrize("encoder", [EncoderChoice.AUTO, EncoderChoice.NVENC])
async def test_renditions_run_apart_if_nvenc_cannot_encode_all_at_once(encoder: EncoderChoice) -> None:
    """The reason is for the report."""
    found = await place_ladder(PlacingPool(l4(3)).preview, "ladder", renditions(encoder=encoder))
    assert "3 encoder sessions at most" in found.apart
    assert found.kind is None


async def test_a_ladder_that_only_software_may_encode_is_not_kept_apart() -> None:
    """A GPU's limits are not its concern."""
    found = await place_ladder(PlacingPool(l4(3)).preview, "ladder", renditions(encoder=EncoderChoice.SOFTWARE))
    assert (found.apart, found.kind) == ("", None)


async def test_a_ladder_without_renditions_has_no_place() -> None:
    """There is nothing to decide."""
    assert (await place_ladder(LocalPool().preview, "ladder", [])).apart == ""


def test_the_rendition_with_the_most_work_gives_the_segments() -> None:
    """A rendition that went on from its journal has fewer of them."""
    first, *others = renditions(3)
    whole = demand_of_all("ladder", [replace(first, segments=(25,)), *others])
    assert whole is not None
    assert (len(whole.segments), whole.job, len(whole.renditions)) == (50, "ladder", 3)
    assert demand_of_all("ladder", []) is None


@pytest.mark.parametrize(
    ("choice", "kind", "chooses"), [(EncoderChoice.AUTO, None, True), (EncoderChoice.NVENC, ADA, False)]
)
def test_a_rendition_in_software_stays_there(choice: EncoderChoice, kind: EncoderKind | None, *, chooses: bool) -> None:
    """Also if another rendition has NVENC, or may still get it."""
    one = demand("one", encoder=choice, renditions=(rendition(kind=kind),))
    whole = demand_of_all("ladder", [one, demand("two", encoder=EncoderChoice.SOFTWARE)])
    assert whole is not None
    assert (whole.encoder, whole.chooses_encoder) == (choice, chooses)
    assert [each.kind for each in whole.renditions] == [kind, SOFTWARE]
    (lane, *_) = place([whole], l4(None), start_rates(), Policy()).lanes
    assert lane.kinds[1] == SOFTWARE
