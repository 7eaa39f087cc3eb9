"""Every action of the log's vocabulary happens somewhere."""

from pathlib import Path

from codecfleet.cluster.logs.actions import LogAction

ROOMS = ("cluster", "codecfleet", "jobs")


def test_every_action_is_logged_somewhere(repository: Path) -> None:
    """A word that nothing writes would mislead those who look for it."""
    own = repository / "cluster" / "logs" / "actions.py"
    paths = [path for room in ROOMS for path in (repository / room).rglob("*.py") if path != own]
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    assert [action.word for action in LogAction if f"LogAction.{action.name}," not in code] == []
