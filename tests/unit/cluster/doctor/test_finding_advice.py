"""What findings advise: commands that can be typed, for the right device and no other."""

from dataclasses import replace
from typing import Any

import pytest

from codecfleet.cluster.doctor.findings import Weight, verdicts
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import DeviceReport
from codecfleet.cluster.probes.report.engines import How
from codecfleet.cluster.probes.report.verdict import Grade

from ..finding_nodes import ABSENT, CONTAINER, cuda, gpus, node, titled, with_gpu, with_health

RESET = "stop the work on it, then reset it: sudo nvidia-smi --gpu-reset -i 0"


REBOOT = "stop the work on this node, then restart the machine"


@pytest.mark.parametrize(
    ("changes", "words", "weight", "fix"),
    [
        ({"lost": "it fell off the bus"}, "is lost", Weight.BROKEN, f"{RESET}; if it stays lost, restart the machine"),
        ({"recovery_action": "reset"}, "wants recovery", Weight.BROKEN, RESET),
        ({"recovery_action": "drain and reset"}, "wants recovery", Weight.BROKEN, RESET),
        ({"recovery_action": "reboot"}, "wants recovery", Weight.BROKEN, REBOOT),
        ({"recovery_action": "bus reset"}, "wants recovery", Weight.BROKEN, REBOOT),
        (
            {"recovery_action": "drain"},
            "wants recovery",
            Weight.BROKEN,
            "start no new work on it until the GPUs linked",
        ),
        ({"recovery_action": "recover IMEX domain"}, "wants recovery", Weight.BROKEN, "systemctl restart nvidia-imex"),
        ({"ecc_uncorrected": 2}, "memory is damaged", Weight.BROKEN, RESET),
        ({"retirement_pending": True}, "reset is pending", Weight.LIMITED, RESET),
        ({"remapped_rows_pending": True}, "reset is pending", Weight.LIMITED, RESET),
        ({"xids": (48,)}, "Xid 48", Weight.BROKEN, RESET),
        ({"xids": (79,)}, "Xid 79", Weight.BROKEN, REBOOT),
        ({"xids": (31,)}, "Xid 31", Weight.NOTE, ""),
    ],
)
def test_what_to_do_about_a_sick_gpu_can_be_typed(
    changes: dict[str, Any], words: str, weight: Weight, fix: str
) -> None:
    """Each sign of trouble is a finding of its weight, with the command for that very GPU, or says to restart."""
    found = titled(with_health(node("rtx-4090"), **changes), words)
    assert (found.weight, found.about) == (weight, "GPU 0 (NVIDIA GeForce RTX 4090)")
    assert fix in found.fix


def test_a_second_gpu_is_reset_by_its_own_number() -> None:
    """A reset without a number would take the neighbours along."""
    report = node("h200-l40s")
    assert isinstance(report.nvml, NvmlReport)
    third = replace(gpus(report)[3], health=replace(gpus(report)[3].health, ecc_uncorrected=1))
    devices = (*gpus(report)[:3], third, *gpus(report)[4:])
    found = titled(replace(report, nvml=replace(report.nvml, devices=devices)), "memory is damaged")
    assert found.fix.endswith("sudo nvidia-smi --gpu-reset -i 3")


def test_slices_that_may_not_be_seen_are_not_to_be_taken_away() -> None:
    """MIG instances that are refused for permission are there: the advice is not to create some or to turn MIG off."""

    def unseen(gpu: DeviceReport) -> DeviceReport:
        assert not isinstance(gpu.mig, Unavailable)
        refused = Unavailable(Absence.NO_PERMISSION, "the user may not ask for MIG instances")
        return replace(gpu, mig=replace(gpu.mig, slices=(), slices_refused=refused))

    report = with_gpu(node("a100-mig"), unseen)
    found = titled(report, "instances cannot be seen from here")
    assert (found.weight, found.cause) == (Weight.BROKEN, "the user may not ask for MIG instances")
    assert "--gpus device=<MIG UUID>" in found.fix
    assert "-mig 0" not in found.fix
    assert "-cgi" not in found.fix


def test_mig_without_instances_is_repaired_on_that_gpu() -> None:
    """Nothing to work on is broken, and both ways out name the GPU; a pending change is a limit."""

    def emptied(gpu: DeviceReport) -> DeviceReport:
        assert not isinstance(gpu.mig, Unavailable)
        return replace(gpu, mig=replace(gpu.mig, slices=(), pending=False))

    report = with_gpu(node("a100-mig"), emptied)
    found = titled(report, "no instance to work on")
    assert found.weight is Weight.BROKEN
    assert "sudo nvidia-smi mig -i 0 -cgi <profile> -C" in found.fix
    assert "sudo nvidia-smi -i 0 -mig 0" in found.fix
    assert titled(report, "MIG will be off").weight is Weight.LIMITED


@pytest.mark.parametrize(("brand", "state"), [("tesla", Grade.OK), ("geforcertx", Grade.LIMITED)])
def test_an_image_that_asks_for_a_brand_is_judged_by_nvmls(brand: str, state: Grade) -> None:
    """What NVML calls the GPU's brand decides about NVIDIA_REQUIRE_CUDA; where it is silent, a note says so."""
    asked = replace(CONTAINER, requirements={"NVIDIA_REQUIRE_CUDA": "brand=tesla"})
    report = replace(node("h200-l40s"), container=asked, cuda=cuda(library=ABSENT))
    branded = with_gpu(report, lambda gpu: replace(gpu, facts={**gpu.facts, "brand": brand}))
    (verdict,) = [found for found in verdicts(branded) if found.subject == "NVIDIA_REQUIRE_CUDA"]
    assert verdict.state is state
    silent = with_gpu(report, lambda gpu: replace(gpu, facts={**gpu.facts, "brand": ABSENT}))
    silent_gpus = tuple(replace(gpu, facts={}) for gpu in gpus(silent)[1:])
    assert isinstance(silent.nvml, NvmlReport)
    silent = replace(silent, nvml=replace(silent.nvml, devices=(gpus(silent)[0], *silent_gpus)))
    found = titled(silent, "NVIDIA_REQUIRE_CUDA: the image's requirement is not checked")
    assert (found.weight, found.cause) == (
        Weight.NOTE,
        "what it depends on cannot be checked here: brand=tesla",
    )


def test_codec_libraries_that_decoded_are_not_called_broken() -> None:
    """A trial that worked outranks the rule that libraries are of the driver's version."""
    report = node("h200-l40s")
    tried = tuple(
        replace(device, trials=tuple(replace(trial, how=How.TRIED) for trial in device.trials))
        for device in report.devices
    )
    strange = cuda(codec_libraries={"libnvcuvid.so.1": "/usr/lib/libnvcuvid.so.575.57.08"})
    untried = replace(report, cuda=strange)
    assert [found.state for found in verdicts(untried) if found.subject == "codec libraries"] == [Grade.BROKEN]
    worked = replace(untried, devices=tried)
    assert [found.state for found in verdicts(worked) if found.subject == "codec libraries"] == [Grade.OK]
