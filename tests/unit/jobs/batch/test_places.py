"""The files of folders, patterns, prefixes and lists."""

import io
import os
from pathlib import Path

import fsspec
import pytest

from codecfleet.errors import InputNotFound, UsageError
from codecfleet.jobs.batch.listed.places import Listed, list_inputs


def paths(found: "list[Listed]") -> list[str]:
    """Return the relative names."""
    return [each.name.path for each in found]


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder with films, other files, hidden files, and leftovers of a batch."""
    for name in ("b.mkv", "a/c.mp4", "a/d.srt", ".hidden.mp4", "a/.b.mp4.codecfleet/owner", "e.MOV"):
        path = tmp_path / "films" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(name))
    (tmp_path / "films/link").symlink_to(tmp_path / "films/a")
    return tmp_path / "films"


def test_a_folder_is_searched_to_its_bottom_in_order(films: Path) -> None:
    """A folder is searched in order, without hidden files, unfinished work and linked folders."""
    found = list(list_inputs([str(films)]))
    assert paths(found) == ["a/c.mp4", "a/d.srt", "b.mkv", "e.MOV"]
    assert [each.is_video for each in found] == [True, False, True, True]
    assert [each.size_bytes for each in found] == [7, 7, 5, 5]
    assert found[0].source == str(films / "a/c.mp4")


def test_a_pattern_counts_from_its_fixed_part(films: Path) -> None:
    """Wildcards may match folders, and names count from the fixed part of the pattern."""
    assert paths(list(list_inputs([f"{films}/**/*.m*"]))) == ["a/c.mp4", "b.mkv"]
    assert paths(list(list_inputs([f"{films}/a/*"]))) == ["c.mp4", "d.srt"]


def test_links_that_lead_in_circles_are_not_followed(films: Path) -> None:
    """Links in circles are not followed, neither below a folder nor by a pattern."""
    for name in ("a/up", "a/again"):
        (films / name).symlink_to(films)
    assert paths(list(list_inputs([f"{films}/**/c.mp4"]))) == ["a/c.mp4"]
    assert paths(list(list_inputs([f"{films}/*/c.mp4"]))) == ["a/c.mp4"]
    assert paths(list(list_inputs([f"file://{films}/**"]))) == ["a/c.mp4", "a/d.srt", "b.mkv", "e.MOV"]
    assert paths(list(list_inputs([str(films)]))) == ["a/c.mp4", "a/d.srt", "b.mkv", "e.MOV"]


def test_a_link_that_leads_nowhere_is_an_input_that_is_not_there(films: Path) -> None:
    """A dangling link is an input that fails and is reported; a device is left out."""
    (films / "gone.mkv").symlink_to("nothing.mkv")
    (films / "self.mkv").symlink_to("self.mkv")
    (films / "null.mkv").symlink_to("/dev/null")
    expected = [("b.mkv", 5), ("gone.mkv", None), ("self.mkv", None)]
    for place in (str(films), f"{films}/*.mkv"):
        found = [each for each in list_inputs([place]) if each.name.suffix == ".mkv"]
        assert [(each.name.path, each.size_bytes) for each in found] == expected


def test_relative_names_count_from_the_current_folder(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative names count from the current folder; names elsewhere keep their whole path."""
    monkeypatch.chdir(films)
    (films / "list.txt").write_text(f"a/c.mp4\n{films.parent}/other/x.mkv\n../y.mkv\n")
    found = list(list_inputs(["list.txt", "b.mkv"]))
    above = str(films.parent).lstrip("/")
    assert paths(found) == ["a/c.mp4", f"{above}/other/x.mkv", f"{above}/y.mkv", "b.mkv"]
    assert found[0].source == str(films / "a/c.mp4")
    assert [each.size_bytes for each in found] == [7, None, None, 5]


def test_stdin_is_a_plain_list() -> None:
    """A dash reads a plain list from stdin."""
    found = list(list_inputs(["-"], stdin=io.StringIO("s3://b/x/y.mkv\n")))
    assert [(each.source, each.name.path) for each in found] == [("s3://b/x/y.mkv", "b/x/y.mkv")]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("https://me:secret@host/x.mkv", "host/x.mkv"),
        ("ftp://:p@h/x.mkv", "h/x.mkv"),
        ("s3://b/a:b@c.mkv", "b/a:b@c.mkv"),
        ("https://host/x.mkv?X-Amz-Signature=se.cret#t=1", "host/x.mkv"),
        ("s3://b/why?.mkv", "b/why?.mkv"),
    ],
)
def test_names_have_no_password_and_no_signature(source: str, path: str, tmp_path: Path) -> None:
    """Names of outputs have no password and no signature, because others can read them."""
    listed = tmp_path / "films.txt"
    listed.write_text(source, encoding="utf-8")
    assert [(each.source, each.name.path) for each in list_inputs([str(listed)])] == [(source, path)]


def test_a_web_address_is_a_file_and_its_query_no_pattern() -> None:
    """A web address is one file, without a request to its server; a server that is away fails only this file."""
    url = "https://no-such-host.invalid/films/x.mkv?X-Amz-Signature=secret"
    assert [(each.source, each.name.path) for each in list_inputs([url])] == [(url, "no-such-host.invalid/films/x.mkv")]


def test_a_prefix_of_a_store_is_listed_with_its_sizes() -> None:
    """A prefix or pattern of a store is listed with sizes; a single object is listed itself."""
    store = fsspec.filesystem("memory")
    for name in ("bucket/in/a/b.mkv", "bucket/in/c.mp4", "bucket/in/d.txt", "bucket/other.mp4"):
        store.pipe_file(f"/{name}", b"xyz")
    found = list(list_inputs(["memory://bucket/in/"]))
    assert paths(found) == ["a/b.mkv", "c.mp4", "d.txt"]
    assert found[0].source == "memory://bucket/in/a/b.mkv"
    assert [each.size_bytes for each in found] == [3, 3, 3]
    assert paths(list(list_inputs(["memory://bucket/in/*.mp4"]))) == ["c.mp4"]
    assert [each.source for each in list_inputs(["memory://bucket/other.mp4"])] == ["memory://bucket/other.mp4"]
    store.pipe_file("/bucket/list.csv", b"source,quality\nmemory://bucket/other.mp4,30\n")
    (listed,) = list_inputs(["memory://bucket/list.csv"])
    assert listed.row.overrides == '{"quality": "30"}'
    store.rm("/bucket", recursive=True)


def test_steps_in_a_key_are_not_hidden() -> None:
    """An object with . or .. in its key is listed, and encoded or refused by name."""
    store = fsspec.filesystem("memory")
    for name in ("./y.mp4", "a/../x.mp4", ".hidden/z.mp4"):
        store.pipe_file(f"/steps/in/{name}", b"xyz")
    assert paths(list(list_inputs(["memory://steps/in/"]))) == ["./y.mp4", "a/../x.mp4"]
    store.rm("/steps", recursive=True)


@pytest.mark.parametrize("place", ["missing", "missing/*.mkv", "memory://missing/", "memory://missing/*.mkv"])
def test_a_place_with_nothing_is_an_error(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place without any file is an error, not an empty batch."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputNotFound):
        list(list_inputs([place]))


def test_a_name_that_is_not_text_is_kept(tmp_path: Path) -> None:
    """A list may have file names that are not UTF-8."""
    film = os.fsencode(tmp_path) + b"/\xff.mkv"
    Path(os.fsdecode(film)).write_bytes(b"x")
    (tmp_path / "list.txt").write_bytes(film + b"\n")
    (found,) = list_inputs([str(tmp_path / "list.txt")])
    assert os.fsencode(found.source) == film
    assert found.size_bytes == 1


def test_an_unknown_key_of_a_list_is_refused_in_its_place(tmp_path: Path) -> None:
    """An unknown key in a list is refused with file, line and the nearest key."""
    (tmp_path / "list.csv").write_text("source,qualiti\na,1\n")
    with pytest.raises(UsageError, match=r"list.csv:1: .* Did you mean quality"):
        list(list_inputs([str(tmp_path / "list.csv")]))
