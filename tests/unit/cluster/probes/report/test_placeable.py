"""One rule decides which health keeps work away; doctor advises draining exactly these devices. Xids are ranked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.doctor.findings import Weight, findings
from codecfleet.cluster.placement.build import node_of_report
from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import Health, why_unplaceable
from codecfleet.cluster.probes.report.xids import XidAction, worst_action, xid_rule, xid_rules
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report

HIDDEN = Unavailable(Absence.NO_PERMISSION, "the driver tells only privileged users")
WELL = Health(
    ecc_uncorrected=0,
    retirement_pending=False,
    remapped_rows_pending=False,
    recovery_action="none",
)


@pytest.mark.parametrize(
    ("health", "reason"),
    [
        (WELL, ""),
        (replace(WELL, ecc_uncorrected=HIDDEN, recovery_action=HIDDEN, remapped_rows_pending=HIDDEN), ""),
        (replace(WELL, xids=(45, 63)), ""),
        (replace(WELL, ecc_uncorrected=1), "its memory is damaged: 1 error could not be corrected"),
        (replace(WELL, retirement_pending=True), "a reset is pending"),
        (replace(WELL, remapped_rows_pending=True), "a reset is pending"),
        (replace(WELL, recovery_action="drain and reset"), "its driver advises: drain and reset"),
        (replace(WELL, xids=(68, 48)), "Xid 48, double-bit ECC error"),
        (replace(WELL, lost="the GPU has fallen off the bus"), "the GPU has fallen off the bus"),
    ],
)
def test_health_keeps_work_away_exactly_where_doctor_says_drain(health: Health, reason: str) -> None:
    """The inventory and doctor agree; unknown health keeps no work away."""
    assert why_unplaceable(health).startswith(reason)
    assert bool(why_unplaceable(health)) == bool(reason)
    report = simulated_report(load_fleet("h200-l40s").nodes[0])
    assert isinstance(report.nvml, NvmlReport)
    sick = replace(report.nvml.devices[0], health=health)
    report = replace(report, nvml=replace(report.nvml, devices=(sick, *report.nvml.devices[1:])))
    device = node_of_report(report).devices[0]
    assert (device.state is DeviceState.QUARANTINED) == bool(reason)
    about = [each for each in findings(report) if each.about.startswith("GPU 0 ") and each.weight is not Weight.NOTE]
    assert bool(about) == bool(reason)
    assert all("drain" in each.fix or "reset" in each.fix for each in about)


def test_an_unknown_xid_is_noted() -> None:
    """An unknown Xid is noted; tests/golden/remedies.txt has the known ones."""
    assert xid_rule(9999).action is XidAction.NOTE


@given(st.lists(st.sampled_from([*xid_rules(), 9999])), st.sampled_from([*xid_rules(), 9999]))
def test_one_more_xid_never_asks_for_less(xids: list[int], more: int) -> None:
    """Of several Xids the most severe rule applies, in whatever order they came."""
    order = list(XidAction)
    before, after = worst_action(xids), worst_action([more, *xids])
    assert order.index(after) == max(order.index(before), order.index(xid_rule(more).action))
