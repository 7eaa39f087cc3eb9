"""The layout in which audio is encoded, and the speakers that are then mixed."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.tracks.downmix import encoded_layout, mix_matrix, mixed_speakers
from codecfleet.actors.tracks.speakers import STATED, is_same_room, speakers, usual_layout

LAYOUTS = (
    *("mono", "stereo", "2.1", "3.0", "3.0(back)", "4.0", "quad", "quad(side)", "3.1", "5.0", "5.0(side)", "4.1"),
    *("5.1", "5.1(side)", "6.0", "6.0(front)", "3.1.2", "hexagonal", "6.1", "6.1(back)", "6.1(front)", "7.0"),
    *("7.0(front)", "7.1", "7.1(wide)", "7.1(wide-side)", "5.1.2", "5.1.2(back)", "octagonal", "cube", "5.1.4"),
    *("7.1.2", "7.1.4", "7.2.3", "9.1.4", "9.1.6", "hexadecagonal", "binaural", "downmix", "22.2"),
)


@pytest.mark.parametrize(
    ("layouts", "aac", "opus"),
    [
        (["stereo"], "stereo", "stereo"),
        (["2.1"], "2.1", "5.1"),
        (["3.0(back)"], "3.0(back)", "6.1"),
        (["quad(side)"], "quad", "quad"),
        (["5.1(side)"], "5.1", "5.1"),
        (["hexagonal"], "5.0", "6.1"),
        (["7.0"], "7.1", "7.1"),
        (["16 channels"], "7.1", "7.1"),
        (["9 channels"], "mono", "mono"),
        (["mono", "stereo"], "stereo", "stereo"),
        (["stereo", "5.1(side)", "mono"], "5.1", "5.1"),
        (["3.0", "3.0(back)"], "4.0", "6.1"),
    ],
)
def test_the_layout_keeps_most_speakers(layouts: list[str], aac: str, opus: str) -> None:
    """The smallest layout that keeps all speakers, or else most of them, is chosen; mono fits any layout."""
    assert encoded_layout(layouts, STATED["aac"]) == aac
    assert encoded_layout(layouts, STATED["opus"]) == opus


@pytest.mark.parametrize(
    ("layout", "mixed"),
    [("4.1", ("BC",)), ("6.1", ("BC",)), ("7.1(wide)", ("FLC", "FRC")), ("7.1.2", ("TFL", "TFR")), ("2.1", ())],
)
def test_mixed_speakers_are_named(layout: str, mixed: tuple[str, ...]) -> None:
    """Mixing one more speaker is preferred to leaving out low-frequency effects."""
    target = encoded_layout([layout], STATED["aac"])
    assert mixed_speakers(speakers(layout), speakers(target)) == mixed


@pytest.mark.parametrize(("layout", "codec"), [*product(LAYOUTS, STATED)])
def test_every_layout_is_mixed(layout: str, codec: str) -> None:
    """Each speaker except LFE is heard, none is clipped, and a kept speaker is alone in one channel."""
    target = encoded_layout([layout], STATED[codec])
    matrix = np.array(mix_matrix(speakers(layout), speakers(target)))
    mixed = mixed_speakers(speakers(layout), speakers(target))

    assert matrix.sum(axis=1).max() == pytest.approx(1)
    for name, column in zip(speakers(layout), matrix.T, strict=True):
        assert column.any() or name == "LFE"
        assert name in mixed or np.count_nonzero(column) == 1
    assert mixed or len(speakers(layout)) == 1 or set(matrix.ravel()) <= {0, 1}


@given(st.lists(st.sampled_from(LAYOUTS), min_size=1, max_size=4), st.sampled_from(sorted(STATED)))
def test_the_order_of_formats_does_not_matter(layouts: list[str], codec: str) -> None:
    """Neither the order of layouts nor repetitions matter."""
    assert encoded_layout(layouts, STATED[codec]) == encoded_layout([*reversed(layouts), *layouts], STATED[codec])


def test_nameless_channels_have_the_usual_names() -> None:
    """Channels without names count as FFmpeg's usual layout of that size, if there is one."""
    assert usual_layout("6 channels") == "5.1"
    assert usual_layout("11 channels") == "11 channels"
    assert speakers("11 channels") == ("FC",) * 11
    assert speakers("stereo") == ("FL", "FR")


def test_surrounds_at_the_side_and_the_back_are_one_pair() -> None:
    """Surrounds at the side and at the back are the same pair, unless a layout has both."""
    assert is_same_room("5.1(side)", "5.1", speakers("5.1"))
    assert is_same_room("7.1", "7.1", speakers("7.1"))
    assert not is_same_room("6.1", "7.0", speakers("7.0"))
    assert not is_same_room("3 channels", "3.0", speakers("3.0"))
