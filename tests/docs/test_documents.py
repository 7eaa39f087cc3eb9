"""The documents against the code: what they show runs, what they name exists, and every page can be found."""

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from codecfleet import transcode
from tests.docs.option_tables import all_commands

REPOSITORY = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code: its language, its text, and where it stands."""

    path: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """The block's document and line, as a test's name."""
        return f"{self.path.name}:{self.line}"


def documents() -> list[Path]:
    """Return every Markdown file of the repository, except those that git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        return sorted(REPOSITORY / name for name in listed.stdout.splitlines() if (REPOSITORY / name).is_file())
    folders = ("docs", "examples", "benchmarks", "deploy", "configs", "players")  # an sdist is not a git checkout
    return sorted([*REPOSITORY.glob("*.md"), *(p for folder in folders for p in (REPOSITORY / folder).rglob("*.md"))])


def blocks(path: Path, language: str) -> list[Block]:
    """Return the blocks of ``language`` in a document."""
    text = path.read_text(encoding="utf-8")
    found = [(text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in _BLOCK.finditer(text)]
    return [Block(path, line, kind, body) for line, kind, body in found if kind == language]


def links(path: Path) -> list[str]:
    """Return the targets of a document's links, code left out."""
    return _LINK.findall(_BLOCK.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """Return the anchors that a document's headings make."""
    headings = _HEADING.findall(_BLOCK.sub("", path.read_text(encoding="utf-8")))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


PYTHON = [block for path in documents() for block in blocks(path, "python")]
SHELL = [block for path in documents() for block in blocks(path, "sh")]


@pytest.mark.ray
@pytest.mark.usefixtures("private_ray")
@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_shown_python_runs(block: Block, films: Path) -> None:
    """A Python block runs unchanged in a folder that has the files that the block names."""
    _, spec, *_ = [toml.text for toml in blocks(REPOSITORY / "docs" / "config.md", "toml")]
    (films / "small.toml").write_text(spec, encoding="utf-8")
    if "verify(" in block.text:
        transcode("film.mkv", "film.mp4", preset=1)
    exec(compile(block.text, block.name, "exec"), {"__name__": "__main__"})  # noqa: S102 - our own documents


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link names a file that exists; if the link has an anchor, the file has that heading."""
    for link in links(path):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        found = path if not target else (path.parent / target).resolve()
        assert found.exists(), f"{link} leads nowhere"
        assert found.is_relative_to(REPOSITORY), f"{link} leads out of the repository"
        assert not anchor or anchor in anchors(found), f"{found.name} has no heading for {link}"


def test_every_page_can_be_found() -> None:
    """Links lead from docs/README.md to every page in docs/, and from the README to docs/README.md."""
    docs = REPOSITORY / "docs"
    seen, waiting = set(), [docs / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.is_relative_to(docs):
            continue
        seen.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
    assert set(docs.rglob("*.md")) - seen == set()
    assert "docs/README.md" in links(REPOSITORY / "README.md")


def _commands(block: Block) -> list[list[str]]:
    lines = block.text.replace("\\\n", " ").splitlines()
    words = (shlex.split(line, comments=True) for line in lines if line.strip())
    return [each[: each.index("--")] if "--" in each else each for each in words]  # what follows is another program's


def _targets() -> set[str]:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.name)
def test_shown_commands_exist(block: Block) -> None:
    """A shell block calls codecfleet with commands and options that it has, and make with targets that it has."""
    known_commands = all_commands()
    for words in _commands(block):
        if words[:1] == ["make"]:
            assert {word for word in words[1:] if "=" not in word} <= _targets()
        elif words[:1] == ["codecfleet"] and not words[1].startswith("-"):
            # After `submit` comes one of the other commands, and after `node` one of its own.
            named = [*words, " ".join(words[1:3])]
            commands = [known_commands[name] for name in named if name in known_commands]
            known = {name for command in commands for parameter in command.params for name in parameter.opts}
            assert {word for word in words[2:] if word.startswith("--")} <= known | {"--help"}


def test_inline_commands_exist() -> None:
    """Options and commands that the README names in passing exist too."""
    commands = all_commands()
    options = {name for command in commands.values() for parameter in command.params for name in parameter.opts}
    text = _BLOCK.sub("", (REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert set(re.findall(r"`(--[a-z][a-z-]*)", text)) <= options
    assert set(re.findall(r"`codecfleet ([a-z]+)", text)) <= set(commands)
    assert set(re.findall(r"`make ([a-z-]+)", text)) <= _targets()
