"""The matrix of codecs: hardware comes before software, and trials before the driver's answers."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.doctor.capability_matrix import Cell, CodecSupport, capability_matrix, matrix_lines, ways
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from codecfleet.cluster.probes.trials.cases import SAMPLES
from codecfleet.testing.fleet.simulated_report import documented_software_trials

CASE = CodecCase(MediaCodec.HEVC, Direction.DECODE, "4:2:0", 10)


def trial(engine: Engine, *, works: bool = True, how: How = How.TRIED, case: CodecCase = CASE) -> Trial:
    """Return a trial."""
    return Trial(case=case, engine=engine, implementation=engine.value, works=works, how=how)


HEVC_10 = (MediaCodec.HEVC, "4:2:0", 10)


def cells(*trials: Trial) -> tuple[Cell, Cell]:
    """Return what decodes and what encodes 10-bit HEVC."""
    return capability_matrix(trials)[HEVC_10]


def test_hardware_goes_before_software() -> None:
    """The engine is named if it works, otherwise the processor."""
    assert cells(trial(Engine.CPU), trial(Engine.NVDEC))[0] == Cell(CodecSupport.HARDWARE, How.TRIED)
    assert cells(trial(Engine.CPU), trial(Engine.NVDEC, works=False))[0] == Cell(CodecSupport.SOFTWARE, How.TRIED)
    assert cells(trial(Engine.NVDEC, works=False))[0].way is CodecSupport.NONE


def test_what_was_not_tried_is_marked() -> None:
    """A decoder that was not tried is a question mark; an encoder that no engine has is a "no"."""
    decode, encode = cells()
    assert (decode.way, encode.way) == (CodecSupport.UNTRIED, CodecSupport.NONE)
    asked, tried = cells(trial(Engine.NVDEC, how=How.ASKED)), cells(trial(Engine.NVDEC))
    assert (asked[0].is_promised, tried[0].is_promised) == (True, False)
    assert any("hardware*" in line for line in matrix_lines({HEVC_10: asked}))


@given(st.lists(st.builds(trial, st.sampled_from(Engine), works=st.booleans(), how=st.sampled_from(How)), max_size=6))
def test_the_order_of_trials_does_not_matter(trials: list[Trial]) -> None:
    """The answer depends on the results, not on which device was queried first."""
    assert ways(trials) == ways(reversed(trials))


def test_every_sample_format_has_its_row() -> None:
    """Even an unknown machine has a row for every sample format, in a fixed order."""
    assert capability_matrix([]).keys() == {(s.codec, s.chroma, s.bit_depth) for s in SAMPLES}
    assert list(capability_matrix([])) == list(capability_matrix(documented_software_trials()))
