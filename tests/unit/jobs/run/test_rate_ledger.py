"""The passes' book: which encodings count once segments are merged."""

from fractions import Fraction

from codecfleet.jobs.rate.passes import FILM, SAMPLE, RatePass
from codecfleet.jobs.run.rate_ledger import RateLedger

CRF, OTHER_CRF = Fraction(20), Fraction(22)


def sampled() -> RateLedger:
    """Return a ledger whose sample has encoded three segments, and then merged the second into the first."""
    ledger = RateLedger(None)
    ledger.begin(RatePass(SAMPLE, dict.fromkeys(range(3), CRF)))
    for segment in range(3):
        ledger.note(segment, segment, 100)
    ledger.note(0, 1, 200)
    return ledger


def test_a_segment_merged_in_the_sample_is_not_of_the_film() -> None:
    """Its pictures belong to its left neighbour, whose encoding counts if the film has the sample's CRF."""
    ledger = sampled()
    ledger.begin(RatePass(FILM, dict.fromkeys(range(3), CRF)))
    assert ledger.of_film() == [0, 2]


def test_with_another_crf_all_are_encoded_again() -> None:
    """What the sample has encoded with another CRF is no part of the film."""
    ledger = sampled()
    ledger.begin(RatePass(FILM, dict.fromkeys(range(3), OTHER_CRF)))
    assert ledger.of_film() == []
    ledger.note(0, 1, 150)
    assert ledger.of_film() == [0]
