"""Reading comes first: once all is read, a plan is made without any of the files."""

from pathlib import Path

import pytest

from codecfleet.errors import CodecfleetError, InputNotFound, InputUnreadable, Unsupported
from codecfleet.jobs.plan.plan import Plan, plan_of
from codecfleet.jobs.plan.reads import read_for
from codecfleet.jobs.request.spec import TranscodeSpec
from tests.pngs import write_png

from .test_burn import film, font, text_film


def spec(source: Path, **options: object) -> TranscodeSpec:
    """Return a job's request."""
    return TranscodeSpec.model_validate({"source": str(source), "output": "out.mkv", "crop": "auto", **options})


def everything(plan: Plan) -> tuple[object, ...]:
    """Return what a plan decides."""
    return plan.to_json(), plan.encoder_kind, plan.choices, plan.work("job", 0, len(plan.segments) - 1, 0)


@pytest.mark.parametrize("subtitles", ["bitmaps", "text"])
def test_a_plan_needs_no_file_once_all_is_read(tmp_path: Path, subtitles: str) -> None:
    """Source, overlay, subtitles, font and borders are read before the first decision, and never again."""
    is_text = subtitles == "text"
    source = text_film(tmp_path) if is_text else film(tmp_path)
    laid = {"overlay": write_png(tmp_path / "logo.png"), "burn_subtitles": "eng"}
    request = spec(source, **laid, **({"subtitle_font": font(tmp_path)} if is_text else {}))
    reads = read_for(request)
    before = everything(plan_of(request, reads))
    for each in tmp_path.iterdir():
        each.unlink()
    assert everything(plan_of(request, reads)) == before
    with pytest.raises(InputNotFound):
        read_for(request)


def test_what_cannot_be_read_is_said_where_it_is_needed(tmp_path: Path) -> None:
    """A request that does not fit is refused for that first; then for each missing file, in the plan's order."""
    source = text_film(tmp_path)
    bad = tmp_path / "bad.ttf"
    bad.write_bytes(b"no font")
    missing: dict[str, object] = {"overlay": str(tmp_path / "no.png"), "burn_subtitles": 0, "subtitle_font": str(bad)}
    found = []
    for change in (
        {"start_s": "900"},
        {"crop": (4000, 96, 0, 0)},
        {"pad": (16, 16)},
        {},
        {"overlay": None},
        {"overlay": None, "subtitle_font": None},
        {"overlay": None, "burn_subtitles": 7},
    ):
        request = spec(source, **{**missing, **change})
        reads = read_for(request)
        with pytest.raises(CodecfleetError) as refused:
            plan_of(request, reads)
        found.append((type(refused.value), refused.value.message))
    assert [kind.__name__ for kind, _ in found[:1]] == ["UsageError"]
    assert [kind for kind, _ in found[1:]] == [
        Unsupported,
        Unsupported,
        InputNotFound,
        InputUnreadable,
        *[Unsupported] * 2,
    ]
    words = ("lies behind the end", "reaches outside", "smaller than", "no.png", "bad.ttf", "needs a font", "track 7")
    assert all(word in message for word, (_, message) in zip(words, found, strict=True))
