"""Blocking calls, and their asynchronous forms."""

import asyncio
import inspect
from pathlib import Path

import pytest

import codecfleet
from codecfleet import TranscodeSpec, frames, plan_transcode, probe, transcode, transcode_async, verify
from codecfleet.errors import InputNotFound, UsageError
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .frame_streams import workers

WAITING = ("plan_transcode", "probe", "transcode", "verify")


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a film of twelve frames."""
    return make_clip(tmp_path_factory.mktemp("film") / "film.mkv", Clip(times=constant_times(12)))


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_has_a_form_to_await(name: str) -> None:
    """Each blocking call has a public ``_async`` form with the same parameters."""
    waits, awaited = getattr(codecfleet, name), getattr(codecfleet, f"{name}_async")
    assert awaited.__name__ == f"{name}_async"
    assert {name, awaited.__name__} <= set(codecfleet.__all__)
    assert inspect.signature(awaited).parameters == inspect.signature(waits).parameters
    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(waits)


async def test_the_answers_are_the_same(film: Path) -> None:
    """Both forms return the same values and raise the same errors."""
    spec = TranscodeSpec(source=film, output=film.with_name("out.mp4"))
    assert (await codecfleet.probe_async(film)).model_dump(exclude={"wall_s"}) == probe(film).model_dump(
        exclude={"wall_s"}
    )
    assert (await codecfleet.plan_transcode_async(spec)).segments == plan_transcode(spec).segments
    assert (await codecfleet.verify_async(film, film)).lossless
    assert verify(film, film).lossless
    with pytest.raises(InputNotFound):
        await codecfleet.probe_async(film.with_name("absent.mkv"))


async def test_options_are_checked_before_anything_is_awaited_for_long() -> None:
    """A wrong option of ``transcode_async`` is a UsageError, as with ``transcode``."""
    with pytest.raises(UsageError, match="did you mean bitrate_bps"):
        await transcode_async("a.mkv", "b.mp4", bitrate="4M")


async def test_a_call_that_waits_names_the_one_to_await() -> None:
    """In an event loop, ``transcode`` and a plain loop over frames name the form to await."""
    with pytest.raises(UsageError, match="await transcode_async"):
        transcode("a.mkv", "b.mp4")
    with pytest.raises(UsageError, match="async for"):
        iter(frames("a.mkv"))


def test_frames_are_the_same_without_an_event_loop(film: Path) -> None:
    """A plain loop gives the frames of an asynchronous one, in order, and the report counts them."""

    async def awaited() -> list[bytes]:
        return [frame.to_ndarray().tobytes() async for frame in frames(film)]

    stream = frames(film)
    assert [frame.to_ndarray().tobytes() for frame in stream] == asyncio.run(awaited())
    assert stream.report.frames == 12


def test_leaving_a_loop_over_frames_ends_its_threads(film: Path) -> None:
    """Leaving a loop over frames closes the stream, and no thread decodes any more."""
    for frame in frames(film):
        assert frame.index == 0
        break
    assert not workers()
