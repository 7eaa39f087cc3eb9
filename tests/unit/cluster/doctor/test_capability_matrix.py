"""The matrix of codecs: hardware before software, tried before told, and nothing that no engine can do."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.doctor.capability_matrix import Cell, CodecSupport, MatrixRow, capability_matrix, ways
from codecfleet.cluster.doctor.report_lines import matrix_lines
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial
from codecfleet.cluster.probes.trials.cases import SAMPLES
from codecfleet.testing.fleet.simulated_report import documented_software_trials

CASE = CodecCase(MediaCodec.HEVC, Direction.DECODE, "4:2:0", 10)


def trial(engine: Engine, *, works: bool = True, how: How = How.TRIED, case: CodecCase = CASE) -> Trial:
    """Return a trial."""
    return Trial(case=case, engine=engine, implementation=engine.value, works=works, how=how)


def row(trials: list[Trial]) -> MatrixRow:
    """Return the row of HEVC in 10 bits."""
    return next(
        r for r in capability_matrix(trials) if (r.codec, r.chroma, r.bit_depth) == (MediaCodec.HEVC, "4:2:0", 10)
    )


def test_hardware_goes_before_software() -> None:
    """Where both can, the engine is named; where it fails, the processor is."""
    assert row([trial(Engine.CPU), trial(Engine.NVDEC)]).decode == Cell(CodecSupport.HARDWARE, How.TRIED)
    assert row([trial(Engine.CPU), trial(Engine.NVDEC, works=False)]).decode == Cell(CodecSupport.SOFTWARE, How.TRIED)
    assert row([trial(Engine.NVDEC, works=False)]).decode.way is CodecSupport.NONE


def test_what_was_not_tried_is_marked() -> None:
    """A decoder that was not tried is a question mark; an encoder that no engine offers is a no."""
    empty = row([])
    assert (empty.decode.way, empty.encode.way) == (CodecSupport.UNTRIED, CodecSupport.NONE)
    asked = row([trial(Engine.NVDEC, how=How.ASKED)])
    assert asked.decode == Cell(CodecSupport.HARDWARE, How.ASKED)
    assert any("hardware*" in line for line in matrix_lines([asked]))
    assert not any("hardware*" in line for line in matrix_lines([row([trial(Engine.NVDEC)])]))


@given(st.lists(st.builds(trial, st.sampled_from(Engine), works=st.booleans(), how=st.sampled_from(How)), max_size=6))
def test_the_order_of_trials_does_not_matter(trials: list[Trial]) -> None:
    """The answer depends on what was found, not on which device was asked first."""
    assert ways(trials) == ways(reversed(trials))


def test_every_sample_format_has_its_row() -> None:
    """A machine of which nothing is known still shows what there is to know, in a fixed order."""
    rows = capability_matrix([])
    assert {(r.codec, r.chroma, r.bit_depth) for r in rows} == {(s.codec, s.chroma, s.bit_depth) for s in SAMPLES}
    assert rows == capability_matrix(documented_software_trials()[:0])


def test_the_matrix_fits_on_a_narrow_page() -> None:
    """No line is longer than a hundred columns, whatever stands in it."""
    trials = [trial(Engine.NVENC, how=How.ASKED, case=s.case(way)) for s in SAMPLES for way in Direction]
    assert max(len(line) for line in matrix_lines(capability_matrix(trials))) <= 100
