"""Caps on encoder sessions, learnt from refusals, and policy files."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest

from codecfleet.cluster.placement.model.caps import (
    RETRY_MAX_S,
    RETRY_S,
    KnownCaps,
    LearntCap,
    record_cap,
    record_open,
    relaxed,
    with_caps,
)
from codecfleet.cluster.placement.model.policy import Policy, load_policy
from codecfleet.errors import UsageError

from ..worlds import inventory, node


def _sessions(caps: Mapping[str, LearntCap]) -> dict[str, int]:
    return {name: cap.sessions for name, cap in caps.items()}


NOW_S = 50.0


def test_a_refusal_teaches_the_number_that_was_open() -> None:
    """A device that refused its fourth session gets three."""
    assert _sessions(record_cap({}, "n/gpu0", 3, NOW_S)) == {"n/gpu0": 3}


def test_a_refusal_with_nothing_open_is_no_cap() -> None:
    """A refusal of the first session is not a cap."""
    assert record_cap({}, "n/gpu0", 0, NOW_S) == {}


def _learnt() -> KnownCaps:
    return record_cap(record_cap({}, "n/gpu0", 3, NOW_S), "n", 8, NOW_S)


def test_a_cap_that_was_passed_is_gone() -> None:
    """A cap is lifted if more sessions than the cap work, but not if exactly as many work."""
    caps = _learnt()
    assert record_open(caps, {"n/gpu0": 3, "n": 8}) == caps
    assert record_open(caps, {"n/gpu0": 4, "n": 9}) == {}


def test_one_more_session_is_tried_less_and_less_often() -> None:
    """After five minutes one more session is tried; the pause doubles with each refusal."""
    caps, now_s, waits = _learnt(), NOW_S, []
    for _ in range(6):
        assert relaxed(caps, now_s) == caps
        wait_s = caps["n/gpu0"].retry_at_s - now_s
        waits.append(wait_s)
        now_s += wait_s
        caps = relaxed(caps, now_s)
        assert caps["n/gpu0"].sessions == 4
        for _ in range(3):  # several workers get the same refusal
            caps = record_cap(caps, "n/gpu0", 3, now_s)
        assert caps["n/gpu0"].sessions == 3
    assert waits == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S, 8 * RETRY_S, RETRY_MAX_S, RETRY_MAX_S]


def test_learnt_caps_replace_documented_ones() -> None:
    """The inventory has the learnt caps, and is otherwise unchanged."""
    machines = inventory(node("n", "RTX 4090", system_encoder_sessions_max=12), node("m", "L4"))
    capped = with_caps(machines, record_cap(_learnt(), "m/gpu0", 2, NOW_S))
    assert capped.nodes[0].system_encoder_sessions_max == 8
    assert capped.nodes[1].devices[0].encoder_sessions_max == 2
    assert with_caps(machines, {}) is machines


def test_the_annotated_policy_file_holds_all_defaults() -> None:
    """``configs/policy.toml`` has every key with its default."""
    path = Path(str(files("codecfleet.configs").joinpath("policy.toml")))
    assert load_policy(path) == Policy()
    assert set(tomllib.loads(path.read_text(encoding="utf-8"))) == set(Policy.model_fields)


def test_every_policy_key_is_explained() -> None:
    """``configs/policy.toml`` has a comment beside each key."""
    text = files("codecfleet.configs").joinpath("policy.toml").read_text(encoding="utf-8")
    assert re.findall(r"^(\w+) = .* # \S", text, re.MULTILINE) == re.findall(r"^(\w+) = ", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("warm = 1", "warm: extra inputs"),
        ("gpu_share = 2", "gpu_share: input should be less"),
        ("preemptible = 'maybe'", "preemptible: input should be"),
        ("engines = ['gpu']", "engines.0: input should be"),
        ("gpu_share = ", "is not valid TOML"),
    ],
)
def test_a_wrong_policy_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    """The error names the file, the key, the problem and the documentation."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_policy(path)
    assert said in caught.value.message
    assert "\n" not in str(caught.value)


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    """If the file is missing, this is a usage error, which names the file."""
    with pytest.raises(UsageError, match=r"none\.toml cannot be read"):
        load_policy(tmp_path / "none.toml")
