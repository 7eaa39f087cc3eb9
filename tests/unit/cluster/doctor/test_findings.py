"""What is wrong on a machine: one report per finding, each with its cause and its fix."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.doctor.findings import Weight, findings, needs_repair, verdicts
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.node.report import DeviceTrials, ProbeProblem
from codecfleet.cluster.probes.nvml.use import RECOVERY_ACTIONS
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import DeviceReport
from codecfleet.cluster.probes.report.engines import Engine, EngineCount, How, MediaCodec
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report

from ..finding_nodes import ABSENT, CONTAINER, FLEETS, PACKAGE, cuda, node, titled, with_gpu, with_health, with_trials


def test_no_driver_is_no_fault() -> None:
    """A laptop is healthy: software engines will be used, and which is said."""
    found = findings(node("laptop"))
    assert not needs_repair(found)
    (only,) = found
    assert only.weight is Weight.NOTE
    assert only.title == "software engines will be used: libx264, libx265, libsvtav1, libvpx-vp9"
    assert "--gpus all" in only.fix


def test_a_gpu_without_an_encoder_is_a_note_with_what_happens() -> None:
    """On an H200 NVDEC decodes and the processor encodes; nothing needs a fix."""
    report = node("h200-l40s")
    found = titled(report, "no NVENC")
    assert (found.weight, found.fix) == (Weight.NOTE, "")
    assert "NVDEC decodes here, and this machine's 192 cores encode" in found.title
    assert "8 x NVIDIA H200" in found.cause
    assert not needs_repair(findings(report))


def test_encoder_capacity_is_not_believed() -> None:
    """NVML reports capacity on GPUs without an encoder; where there is one, nothing is said."""
    assert "NVIDIA H200 reports capacity for h264, hevc" in titled(node("h200-l40s"), "not believed").cause
    assert not [finding for finding in findings(node("h200-l40s", 1)) if "not believed" in finding.title]


def test_a_lost_gpu_is_broken_and_nothing_else_is_said_of_it() -> None:
    """What a lost GPU answers is not news; that it is lost comes first."""
    report = with_health(node("rtx-4090"), lost="it fell off the bus", ecc_uncorrected=5)
    first, *_ = findings(report)
    assert (first.weight, first.title, first.cause) == (Weight.BROKEN, "the GPU is lost", "it fell off the bus")
    assert "uncorrected" not in str(findings(report))


def test_a_healthy_gpu_has_no_findings() -> None:
    """Nothing is made up."""
    assert findings(node("rtx-4090")) == ()


def test_decoders_that_all_fail_are_told_once() -> None:
    """A GPU that decodes nothing for a reason that can be fixed is broken; one finding for all its cases."""
    changes = {"works": False, "how": How.TRIED, "reason": "no CUDA device answers", "fix": "give it all GPUs"}
    found = titled(with_trials(node("rtx-4090"), Engine.NVDEC, **changes), "decodes nothing")
    assert (found.weight, found.cause, found.fix) == (Weight.BROKEN, "no CUDA device answers", "give it all GPUs")


def test_decoders_that_the_driver_denies_may_be_hidden() -> None:
    """A GPU of which the driver says that it decodes nothing may be hidden from the codec library."""
    changes = {"works": False, "how": How.ASKED, "reason": "the driver says no", "fix": ""}
    found = titled(with_trials(node("rtx-4090"), Engine.NVDEC, **changes), "decodes nothing")
    assert found.weight is Weight.LIMITED
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility" in found.fix


def test_an_encoder_that_should_work_is_broken() -> None:
    """Session limits and old drivers are to be fixed; a missing block is not."""
    changes = {"works": False, "reason": "no more encoder sessions", "fix": "close other encoder sessions"}
    found = titled(with_trials(node("rtx-4090"), Engine.NVENC, **changes), "encoder does not work")
    assert (found.weight, found.fix) == (Weight.BROKEN, "close other encoder sessions")


def test_an_encoder_that_fails_on_its_own_frame_is_broken() -> None:
    """Others of its kind encode, so its reason is its own, also where the driver names no cause that has a fix."""
    report = with_trials(node("rtx-4090"), Engine.NVENC, works=False, reason="NVENC failed", fix="")
    smoke = next(each for each in report.devices[0].trials if each.engine is Engine.NVENC)
    found = titled(replace(report, devices=(replace(report.devices[0], smoke_encode=smoke),)), "encoder does not work")
    assert (found.weight, found.cause, "Xid" in found.fix) == (Weight.BROKEN, "NVENC failed", True)


def test_one_case_that_fails_beside_others_is_a_limit() -> None:
    """A wrong picture in one sample format limits; the others go on."""
    report = node("rtx-4090")
    first = report.devices[0]
    trials = tuple(
        replace(t, works=False, how=How.TRIED, reason="its picture is not software's", fix="newer driver")
        if (t.case.codec, t.case.bit_depth, t.engine) == (MediaCodec.HEVC, 10, Engine.NVDEC)
        and t.case.chroma == "4:2:0"
        else t
        for t in first.trials
    )
    found = titled(replace(report, devices=(replace(first, trials=trials),)), "hevc 10-bit 4:2:0 decode does not work")
    assert (found.weight, found.cause) == (Weight.LIMITED, "its picture is not software's")


def test_a_device_that_fails_where_its_kind_works_is_broken() -> None:
    """A failed smoke decode names the device, not the kind."""
    report = node("h200-l40s")
    third = report.devices[3]
    smoke = replace(third.trials[0], works=False, reason="no CUDA device answers", fix="")
    devices = tuple(replace(d, smoke=smoke) if d is third else d for d in report.devices)
    found = titled(replace(report, devices=devices), "though others of its kind do")
    assert (found.weight, found.about) == (Weight.BROKEN, "GPU 3 (NVIDIA H200)")
    assert "--gpus all" in found.fix


def test_slices_without_a_decoder_are_counted() -> None:
    """MIG slices that no video work goes to are a note per GPU and profile, with the profile that would do."""
    report = node("a100-mig")
    notes = [finding for finding in findings(report) if "no video work" in finding.title]
    assert [note.title for note in notes] == [
        "no video work goes to 1 instance of 1g.5gb",
        "no video work goes to 6 instances of 1g.5gb",
        "no video work goes to 7 instances of 1g.5gb",
    ]
    assert all(note.weight is Weight.NOTE and "+me" in note.fix for note in notes)


def test_a_vgpu_is_known_by_its_bus_id() -> None:
    """A guest's UUID is random, and that is said."""
    assert titled(node("vgpu", 1), "PCI bus id").weight is Weight.NOTE


def test_nvml_that_does_not_answer_beside_a_driver_is_broken() -> None:
    """With a kernel driver loaded, a silent NVML is a fault with NVML's own fix; without any, it is not."""
    problem = Unavailable(Absence.FAILED, "the versions of driver and library differ")
    silent = NvmlReport(
        driver_version=problem,
        nvml_version=problem,
        cuda_driver_version=problem,
        library_problem=problem,
        fix="reboot",
        devices=(),
    )
    found = titled(replace(node("laptop"), nvml=silent, cuda=cuda()), "NVML does not answer")
    assert (found.weight, found.fix) == (Weight.BROKEN, "reboot")
    missing = replace(silent, library_problem=ABSENT)
    assert not needs_repair(findings(replace(node("laptop"), nvml=missing)))


def test_a_driver_that_is_stuck_is_broken_and_not_absent() -> None:
    """Where NVML gives no answer in time, a driver that is here is broken; one that CUDA hides too is not denied."""
    stuck = Unavailable(Absence.TIMED_OUT, "no answer within 15 s")
    silent = replace(node("laptop"), simulated="", nvml=stuck)
    beside = titled(replace(silent, cuda=cuda()), "NVML does not answer")
    assert (beside.weight, beside.cause) == (Weight.BROKEN, "no answer within 15 s")
    assert "sudo dmesg" in beside.fix
    cut_off = findings(replace(silent, cuda=stuck))
    assert needs_repair(cut_off)
    assert not any("no NVIDIA driver" in finding.cause for finding in cut_off)
    without = replace(silent, cuda=cuda(kernel_module=ABSENT, library=ABSENT))
    assert not any(finding.title.startswith("NVML does not answer") for finding in findings(without))


def test_every_advice_of_the_driver_has_a_fix_in_words() -> None:
    """What the driver calls an action is not what a user does: known ones have a sentence, others a source."""
    for action in {*RECOVERY_ACTIONS.values(), "action 99"} - {"none"}:
        found = titled(with_health(node("rtx-4090"), recovery_action=action), "wants recovery")
        assert found.fix
        assert ("look the advice up" in found.fix) == (action == "action 99")


def test_an_unusable_gpu_is_broken() -> None:
    """Without PyNvVideoCodec a GPU is of no use here: the package is named with the command that installs it."""
    report = replace(node("h200-l40s"), cuda=cuda(library=ABSENT), pynvvideocodec=PACKAGE)
    found = titled(report, "PyNvVideoCodec")
    assert (found.weight, found.fix) == (
        Weight.BROKEN,
        'install the extra: pip install "codecfleet[nvidia]"',
    )


def test_verdicts_become_findings_of_their_weight() -> None:
    """What the CUDA rules call broken is broken here, with their cause; the fix is theirs."""
    report = replace(node("h200-l40s"), cuda=cuda(init_code=803))
    broken = [verdict for verdict in verdicts(report) if "803" in verdict.because]
    assert broken
    found = titled(report, "CUDA initialisation")
    assert (found.weight, found.fix) == (Weight.BROKEN, broken[0].fix)


def test_traps_of_containers_are_told() -> None:
    """Little shared memory in a container is a limit, with the flag that fixes it."""
    found = titled(replace(node("laptop"), container=CONTAINER, cuda=cuda(kernel_module=ABSENT)), "shared memory")
    assert found.weight is Weight.LIMITED
    assert "--shm-size" in found.fix


def test_a_software_codec_that_fails_is_told_once_or_by_case() -> None:
    """An encoder that fails in all its cases is broken; one that fails in some is limited."""
    report = node("laptop")
    none = tuple(
        replace(t, works=False, reason="no such encoder", fix="reinstall") if t.implementation == "libx265" else t
        for t in report.software
    )
    assert titled(replace(report, software=none), "libx265 does not work").weight is Weight.BROKEN
    some = tuple(
        replace(t, works=False, reason="no 12 bits", fix="reinstall")
        if (t.implementation, t.case.bit_depth, t.case.chroma) == ("libx265", 12, "4:2:0")
        else t
        for t in report.software
    )
    found = titled(replace(report, software=some), "libx265: hevc 12-bit 4:2:0 encode")
    assert found.weight is Weight.LIMITED
    assert titled(replace(report, software=()), "no software codec was tried").weight is Weight.BROKEN


def test_a_probe_that_was_cut_off_is_told() -> None:
    """What could not be asked is a limit, with the probe's own reason."""
    report = replace(node("laptop"), probe_problems=(ProbeProblem("CUDA", "no answer within 20 s"),))
    found = titled(report, "CUDA: not everything")
    assert (found.weight, found.cause) == (Weight.LIMITED, "no answer within 20 s")


@given(st.permutations(["lost", "xid", "problem"]))
def test_the_gravest_comes_first(order: list[str]) -> None:
    """Whatever is found, broken goes before limited, and limited before notes; nothing is told twice."""
    report = node("h200-l40s")
    for each in order:
        if each == "lost":
            report = with_health(report, lost="gone")
        elif each == "xid":
            report = with_health(report, xids=(48, 48))
        else:
            report = replace(report, probe_problems=(ProbeProblem("NVML", "late"), ProbeProblem("NVML", "late")))
    found = findings(report)
    ranks = [list(Weight).index(finding.weight) for finding in found]
    assert ranks == sorted(ranks)
    assert len(set(found)) == len(found)


def test_a_slice_has_its_own_engines() -> None:
    """A device whose engines are unknown is not taken for one without a decoder."""

    def uncounted(gpu: DeviceReport) -> DeviceReport:
        assert not isinstance(gpu.mig, Unavailable)
        counts = (EngineCount(Engine.OFA, 0, How.ASKED),)
        return replace(gpu, mig=replace(gpu.mig, slices=tuple(replace(s, engines=counts) for s in gpu.mig.slices)))

    notes = [f for f in findings(with_gpu(node("a100-mig"), uncounted)) if "no video work" in f.title]
    assert not any("GPU 0" in note.about for note in notes)


def test_every_fleet_gives_findings_in_sentences() -> None:
    """Titles and causes are one line each, and broken things always say how to fix them."""
    for path in FLEETS.glob("*.toml"):
        for machine in load_fleet(path).nodes[:20]:
            for finding in findings(simulated_report(machine)):
                assert finding.title
                assert finding.cause
                assert "\n" not in finding.title + finding.cause + finding.fix
                assert finding.fix or finding.weight is not Weight.BROKEN


def test_a_device_without_trials_says_nothing() -> None:
    """Where nothing was tried, nothing is concluded about the engines."""
    report = replace(node("rtx-4090"), devices=(DeviceTrials(device="GPU-x", kind="X", trials=()),))
    assert [finding for finding in findings(report) if "decodes" in finding.title] == []
