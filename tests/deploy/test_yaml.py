"""YAML that every parser reads alike."""

from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(DEPLOY.rglob("*.yaml"))


class _Strict(yaml.SafeLoader):
    """Refuses a key that a mapping has twice: parsers take one or the other."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 - PyYAML's
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            message = f"the key {twice[0]} stands twice"
            raise yaml.constructor.ConstructorError(problem=message, problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_yaml_is_strict_and_clean(path: Path) -> None:
    """Each document is a mapping with each key once; no tab, no line's end in spaces, no line above 120 characters."""
    text = path.read_text(encoding="utf-8")
    assert all(isinstance(document, dict) for document in yaml.load_all(text, Loader=_Strict))
    assert text.endswith("\n")
    assert [line for line in text.splitlines() if "\t" in line or line != line.rstrip() or len(line) > 120] == []
