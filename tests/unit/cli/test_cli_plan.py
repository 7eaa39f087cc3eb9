"""Where ``plan`` places a job."""

import pytest

from codecfleet.cli.app import parse, run
from codecfleet.cli.plan import PlanOn
from codecfleet.cli.services import Answer, Services
from codecfleet.errors import UsageError


def test_the_options_reach_the_service() -> None:
    """Fleet, address, policy and groups arrive as they were typed; without them it is this machine by the defaults."""
    asked: list[PlanOn] = []

    def remember(_spec: object, on: PlanOn) -> Answer:
        asked.append(on)
        return Answer([], {})

    services = Services(plan=remember)
    assert run(["plan", "a.mkv", "--fleet", "h200-l40s", "--policy", "p.toml"], services) == 0
    assert run(["plan", "a.mkv", "--address", "auto"], services) == 0
    assert run(["plan", "a.mkv", "--autoscale", "a.toml"], services) == 0
    assert run(["plan", "a.mkv"], services) == 0
    assert asked == [
        PlanOn(fleet="h200-l40s", policy="p.toml"),
        PlanOn(address="auto"),
        PlanOn(autoscale="a.toml"),
        PlanOn(),
    ]


@pytest.mark.parametrize("other", ["--address", "--autoscale"])
def test_a_fleet_and_a_cluster_exclude_each_other(other: str) -> None:
    """A plan is for one or the other."""
    with pytest.raises(UsageError, match="exclude each other"):
        parse(["plan", "a.mkv", "--fleet", "f.toml", other, "auto"])


@pytest.mark.parametrize("option", ["--fleet", "--address", "--policy", "--autoscale"])
def test_an_empty_value_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An option without a value is a usage error that names it."""
    assert run(["plan", "a.mkv", option, ""], Services(plan=lambda _spec, _on: Answer([], {}))) == 2
    assert f"{option} is empty" in capsys.readouterr().err
