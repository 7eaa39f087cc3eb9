"""Templates name outputs below the root only."""

import posixpath

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codecfleet.errors import UsageError
from codecfleet.jobs.batch.listed.template import InputName, Template, below_root

PARTS = st.text(alphabet=st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("template", "path", "output"),
    [
        ("{dir}/{stem}.{ext}", "a/b/film.mkv", "a/b/film.mkv"),
        ("{dir}/{stem}.{ext}", "film.avi", "film.mp4"),
        ("{dir}/{stem}.{ext}", "film.MOV", "film.mov"),
        ("{stem}.webm", "a/b.c/film.x.mkv", "film.x.webm"),
        ("new/{dir}/{stem}.{{1}}.mp4", "a/film.mkv", "new/a/film.{1}.mp4"),
        ("{dir}//./{stem}.mp4", "a/film", "a/film.mp4"),
    ],
)
def test_a_template_names_the_output(template: str, path: str, output: str) -> None:
    """Fields are the input's folder, stem and a container's extension; braces can be doubled."""
    assert Template.parse(template).output(InputName.of(path)) == output


@pytest.mark.parametrize(
    "template", ["{stem", "stem}", "{name}.mp4", "film.mp4", "/out/{stem}.mp4", "s3://b/{stem}.mp4", "{}", "{stem!r}"]
)
def test_a_template_that_makes_no_sense_is_refused_with_how_to_write_one(template: str) -> None:
    """A nonsensical template is refused before any work, in one line."""
    with pytest.raises(UsageError, match="output-template"):
        Template.parse(template)


@given(
    st.lists(PARTS | st.just(".."), max_size=4), st.lists(PARTS | st.just("..") | st.just(""), min_size=1, max_size=5)
)
def test_no_input_and_no_template_leave_the_root(folders: list[str], template: list[str]) -> None:
    """An accepted template gives a path below the root, whatever the input's name."""
    text = "/".join(part.replace("{", "{{").replace("}", "}}") for part in template) + "/{dir}/{stem}.mp4"
    assume(not text.startswith("/") and "://" not in text)
    try:
        output = Template.parse(text).output(InputName("/".join(folders), "film", ".mkv"))
    except UsageError:
        assert ".." in folders or ".." in template
        return
    whole = posixpath.normpath(posixpath.join("/root/out", output))
    assert whole == posixpath.join("/root/out", output)
    assert whole.startswith("/root/out/")


@pytest.mark.parametrize("path", ["", "/", ".", "a/", "a/..", "../a", "a/../../b", "a\0b"])
def test_what_is_not_a_file_below_the_root_is_refused(path: str) -> None:
    """A template that leads upwards or names a folder is refused."""
    with pytest.raises(UsageError):
        below_root(path, path)
