"""Tenants of a queue: who comes next, and what a policy allows."""

import json
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.queue.deciding import CLAIM_S, allow, chosen
from codecfleet.cluster.queue.running import _run_end
from codecfleet.cluster.queue.tenants import (
    QueuePolicy,
    TenantQuota,
    load_queue_policy,
    new_token,
    policy_of_text,
    read_token,
)
from codecfleet.cluster.queue.values import NO_USAGE, QueuedCommand, QueuedJob, RunEnd, TenantUse, Usage
from codecfleet.errors import QueueUnavailable, Retry, TenantRefused, UsageError

COMMAND = QueuedCommand(("verify", "a", "b"), "/")


def job(number: int, tenant: str, priority: int = 0, due_s: float | None = None) -> QueuedJob:
    """Return a queued job."""
    return QueuedJob(
        job_id=str(number),
        number=number,
        command=COMMAND,
        tenant=tenant,
        priority=priority,
        due_s=due_s,
        submitted_s=0.0,
    )


def tenants_of(jobs: list[QueuedJob]) -> str:
    """Return the tenants of jobs, in order."""
    return "".join(job.tenant for job in jobs)


@given(data=st.data(), count=st.integers(2, 6), most=st.integers(1, 4))
def test_a_tenant_with_one_job_never_waits_for_more_than_one_claim_of_each_other_tenant(
    data: st.DataObject, count: int, most: int
) -> None:
    """Whatever the others have queued and used: a tenant that has used nothing waits for count - 1 claims at most."""
    others = [chr(ord("a") + number) for number in range(count - 1)]
    waiting = [job(number, others[number % len(others)], due_s=0.0) for number in range(40)]
    waiting.append(job(99, "z"))
    uses = {name: TenantUse(0, data.draw(st.floats(0, 1e6))) for name in others}
    waits = 0
    while True:
        found = chosen(waiting, uses, QueuePolicy(), most)
        if "z" in tenants_of(found):
            assert waits + tenants_of(found).index("z") <= count - 1
            return
        waits += len(found)
        for each in found:
            waiting.remove(each)
            use = uses[each.tenant]
            uses[each.tenant] = TenantUse(use.running + 1, use.used_s + CLAIM_S + data.draw(st.floats(0, 100)))


@given(shares=st.lists(st.integers(1, 9), min_size=2, max_size=5), claims=st.integers(1, 60))
def test_busy_tenants_get_their_shares(shares: list[int], claims: int) -> None:
    """Two tenants that always have jobs are never further apart than one claim by the smaller share."""
    names = [chr(ord("a") + number) for number in range(len(shares))]
    quotas = {name: TenantQuota(share=share) for name, share in zip(names, shares, strict=True)}
    waiting = [job(number, names[number % len(names)]) for number in range(claims * len(names))]
    got = tenants_of(chosen(waiting, {}, QueuePolicy(tenants=quotas), claims))
    parts = [got.count(name) / share for name, share in zip(names, shares, strict=True)]
    assert max(parts) - min(parts) <= 1 / min(shares) + 1e-9


@given(
    jobs=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 1), st.sampled_from([None, 1.0])), max_size=12),
    running=st.integers(0, 3),
    most=st.integers(0, 9),
)
def test_limits_and_priorities_hold(jobs: list[tuple[str, int, float | None]], running: int, most: int) -> None:
    """No tenant runs more than its limit, priorities never fall, and no place stays free that a job could have."""
    waiting = [job(number, *each) for number, each in enumerate(jobs)]
    policy = QueuePolicy(default=TenantQuota(running_max=2), tenants={"c": TenantQuota(running_max=0)})
    found = chosen(waiting, {"a": TenantUse(running, 5.0)}, policy, most)
    room = {"a": max(0, 2 - running), "b": 2, "c": 0}
    assert len(found) == min(most, sum(min(room[name], sum(each[0] == name for each in jobs)) for name in room))
    assert all(tenants_of(found).count(name) <= room[name] for name in room)
    assert [each.priority for each in found] == sorted((each.priority for each in found), reverse=True)


def test_a_tenants_own_jobs_keep_their_order() -> None:
    """Among jobs of one tenant, the due time and then the age decide."""
    waiting = [job(1, "a"), job(2, "a", due_s=9.0), job(3, "a", due_s=5.0), job(4, "a", 1), job(5, "a")]
    assert [each.number for each in chosen(waiting, {}, QueuePolicy(), 9)] == [4, 3, 2, 1, 5]


def test_a_table_of_a_tenant_replaces_some_keys_of_the_default() -> None:
    """Also after the store has kept the policy as text."""
    policy = QueuePolicy.model_validate({"default": {"queued_max": 5}, "tenants": {"a": {"share": 2}}})
    for each in (policy, policy_of_text(policy.to_text())):
        assert each.quota("a") == TenantQuota(share=2, queued_max=5)
        assert each.quota("b") == TenantQuota(queued_max=5)
    assert policy_of_text("") == QueuePolicy()
    with pytest.raises(QueueUnavailable, match="not one of this version"):
        policy_of_text('{"windows_s": 1}')


def test_the_file_of_all_keys_has_the_defaults() -> None:
    """``configs/queue.toml`` has every key."""
    path = Path(str(files("codecfleet.configs").joinpath("queue.toml")))
    assert load_queue_policy(path) == QueuePolicy()
    assert json.loads(load_queue_policy(path).to_text()) == json.loads(QueuePolicy().model_dump_json())


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ([1.5, 2, 3], Usage(1.5, 2.0, 3)),
        (None, NO_USAGE),
        ([1, 2], NO_USAGE),
        ([1, 2, "many"], NO_USAGE),
        ([float("nan"), 0, 0], NO_USAGE),
        ([-1, 0, 0], NO_USAGE),
        ([0, 0, 1 << 70], NO_USAGE),
    ],
)
def test_what_a_job_tells_is_checked(told: object, used: Usage) -> None:
    """A job that read a hostile film may tell anything; what no store can hold counts as nothing."""
    assert Usage.of(told) == used


def test_a_driver_reads_what_a_command_tells() -> None:
    """What it used, and its failure; what cannot be read counts as nothing."""
    told = json.dumps({"used": [1, 0, 2], "error": "E", "message": "m", "next_step": "", "retry": "anywhere"}).encode()
    used = Usage(1.0, 0.0, 2)
    assert _run_end(4, told) == RunEnd(4, "E", "m", "", Retry.ANYWHERE, used)
    assert _run_end(0, told) == RunEnd(0, used=used)
    assert _run_end(3, told[:20]).error == "WorkError"
    assert _run_end(3, b"[]").error == "WorkError"


def test_a_setting_that_holds_the_token_does_not_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that the setting names a file; another file that cannot be read is named."""
    monkeypatch.chdir(tmp_path)
    token = new_token()
    for value in (token, f" {token}\n", tmp_path / token):
        with pytest.raises(UsageError, match="the token's file cannot be read") as caught:
            read_token(value)
        assert token not in f"{caught.value.message} {caught.value.next_step} {caught.value.__cause__}"
        assert "The setting queue_token names a file" in caught.value.next_step
    with pytest.raises(UsageError, match=r"the token's file films\.token cannot be read"):
        read_token("films.token")


def test_a_priority_above_the_limit_is_refused() -> None:
    """The limit itself is allowed."""
    allow(3, "a", TenantQuota(priority_max=3))
    with pytest.raises(TenantRefused, match="a may give jobs a priority of 3 at most, not 4") as caught:
        allow(4, "a", TenantQuota(priority_max=3))
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("windows_s = 5", "windows_s: extra inputs are not permitted"),
        ("[tenants.a]\nslots = 5", "tenants.a.slots: extra inputs are not permitted"),
        ("[default]\nshare = 0", "default.share: input should be greater than or equal to 0.001"),
        ("[default]\nqueued_max = 1.5", "default.queued_max: input should be a valid integer"),
        ("window_s = nan", "window_s: input should be"),
        ("=", "is not valid TOML"),
    ],
)
def test_a_policy_that_is_wrong_is_refused(text: str, words: str, tmp_path: Path) -> None:
    """The error names the file, the key and what is allowed."""
    path = tmp_path / "queue.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_queue_policy(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message
    assert "configs/queue.toml" in caught.value.next_step
