"""Which faults the rounds of consecutive seeds bring."""

from .schedule import Shape, possible, round_of


def test_consecutive_seeds_bring_every_shape_and_every_fault() -> None:
    """Six seeds have all shapes, the default seeds each fault of each shape, and a seed has one round."""
    rounds = [round_of(seed) for seed in range(300)]
    assert [plan.shape for plan in rounds[: len(Shape)]] == list(Shape)
    for shape in Shape:
        faults = {strike.fault for plan in rounds if plan.shape is shape for strike in plan.strikes}
        assert faults == set(possible(shape))
    assert rounds[17] == round_of(17)
