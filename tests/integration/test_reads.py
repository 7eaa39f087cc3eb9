"""All reading comes first: afterwards a plan needs none of the files."""

from pathlib import Path

import pytest

from codecfleet.errors import InputNotFound
from codecfleet.jobs.plan.plan import Plan, plan_of
from codecfleet.jobs.plan.reads import read_for
from codecfleet.jobs.request.spec import TranscodeSpec
from tests.pngs import write_png

from .test_burn import film, font, text_film


def spec(source: Path, **options: object) -> TranscodeSpec:
    """Return a job's request."""
    return TranscodeSpec.model_validate({"source": str(source), "output": "out.mkv", "crop": "auto", **options})


def everything(plan: Plan) -> tuple[object, ...]:
    """Return all decisions of a plan."""
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
