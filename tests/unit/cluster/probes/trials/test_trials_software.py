"""Real trials of software codecs, and the result of cases that fail or kill their process."""

from collections.abc import Callable, Mapping
from typing import Any

import av
import numpy as np
import pytest

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.report.engines import Direction, How, MediaCodec
from codecfleet.cluster.probes.trials.cases import (
    SAMPLES,
    SOFTWARE_DECODERS,
    SOFTWARE_ENCODERS,
)
from codecfleet.cluster.probes.trials.software import (
    decode_luma,
    mean_difference,
    probe_software,
    ready_streams,
    trial_luma,
    try_software,
)

from .fake_nvcodec import outcome_of, software


class InProcess:
    """Replaces ``run_in_child``: runs the probe in this process, and ends it at ``deadly`` cases."""

    def __init__(self, deadly: Mapping[str, ChildOutcome]) -> None:
        self.deadly = deadly
        self.children = 0

    def __call__(
        self, probe: Callable[..., Any], arguments: Mapping[str, Any], limit_s: float, environment: Mapping[str, str]
    ) -> ChildOutcome:
        assert (probe, bool(environment), limit_s) == (try_software, True, arguments["limit_s"])
        self.children += 1
        return outcome_of(probe(**arguments), self.deadly)


def test_a_real_child_tries_every_case_that_has_a_bitstream() -> None:
    """With PyAV's own wheel, every case that can be tried works, and only VC-1 is left out."""
    found = software()
    assert [trial.case.name for trial in found.trials if not trial.works] == []
    assert found.problems == ()
    assert {trial.how for trial in found.trials} == {How.TRIED}
    assert len({trial.case for trial in found.trials}) == len(found.trials)
    assert set(found.streams) == {sample.name for sample in SAMPLES if sample.codec is not MediaCodec.VC1}


def test_every_sample_format_that_codecfleet_encodes_is_tried() -> None:
    """The trials cover each pixel format in the encoder tables except planar RGB and 4:4:0, which have no case."""
    encodes = (trial for trial in software().trials if trial.case.direction is Direction.ENCODE)
    tried = {(trial.implementation, trial.case.chroma, trial.case.bit_depth) for trial in encodes}
    offered = {
        (profile.implementation, pix_fmt)
        for profile in PROFILES.values()
        for pix_fmt in profile.pix_fmts
        if not pix_fmt.startswith(("gbr", "yuv440"))
    }
    assert len(tried) == len(offered)
    assert {implementation for implementation, _, _ in tried} == set(SOFTWARE_ENCODERS.values())


def test_a_case_that_kills_its_process_costs_itself_alone() -> None:
    """A case that kills its process fails with that reason; the others are tried in a new child."""
    run = InProcess({"hevc 8-bit 4:2:0": ChildOutcome(ChildEnd.KILLED, detail="the process was killed by SIGSEGV")})
    found = probe_software(run=run)
    failed = [trial for trial in found.trials if not trial.works]
    assert {trial.case.name for trial in failed} == {"hevc 8-bit 4:2:0 decode", "hevc 8-bit 4:2:0 encode"}
    assert all("SIGSEGV" in trial.reason and trial.fix for trial in failed)
    assert run.children == 2
    assert len(found.streams) == len(SAMPLES) - 2


def test_a_child_that_never_begins_is_one_problem() -> None:
    """If PyAV cannot be imported, this is reported once, not for every case."""

    def run(*_: object, **__: object) -> ChildOutcome:
        return ChildOutcome(ChildEnd.RAISED, (), "ImportError: no av")

    found = probe_software(run=run)
    assert found.trials == ()
    assert found.problems == (f"{len(SAMPLES)} software trials were not run: ImportError: no av",)


@pytest.mark.parametrize("name", sorted(ready_streams()))
def test_a_ready_stream_is_the_trial_picture(name: str) -> None:
    """Each constant bitstream decodes to the ramp, in the sample format in its name."""
    sample = next(sample for sample in SAMPLES if sample.name == name)
    luma = decode_luma(sample, [ready_streams()[name]])
    assert mean_difference(luma, trial_luma(sample.bit_depth), sample) < 1.0


def test_a_stream_has_the_profile_that_its_sample_names() -> None:
    """Each stream has the profile of its sample, or is of HEVC's range extensions."""
    for sample in SAMPLES:
        if sample.name not in software().streams:
            continue
        decoder = av.CodecContext.create(SOFTWARE_DECODERS[sample.codec], "r")
        for data in software().streams[sample.name].packets:
            packet = av.Packet(len(data))
            packet.update(data)
            decoder.decode(packet)  # type: ignore[attr-defined]
        decoder.decode(None)  # type: ignore[attr-defined]
        said = (decoder.profile or "").lower().removesuffix(" profile")
        assert said in (sample.profile, "rext"), sample.name
        assert said != "rext" or sample.codec is MediaCodec.HEVC


def test_a_wrong_picture_is_far_from_the_ramp() -> None:
    """A grey picture and an inverted ramp differ too much from the ramp."""
    sample = SAMPLES[0]
    ramp = trial_luma(8)
    assert mean_difference(np.full_like(ramp, 128), ramp, sample) > 10
    assert mean_difference(ramp[::-1], ramp, sample) > 10
