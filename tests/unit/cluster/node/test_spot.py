"""What the metadata servers of AWS and Google Cloud mean, whatever they answer."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.node.spot import (
    SAFE_S,
    Aws,
    Gcp,
    MetadataAnswer,
    MetadataQuestion,
    NotHere,
    Notice,
    Spot,
    clouds,
)

ACTION = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
PERMIT = "/latest/api/token"
DATE = {"date": "Tue, 29 Sep 2026 08:20:00 GMT"}
GOOGLE = {"metadata-flavor": "Google"}


class _Asking(list[str]):
    """The paths that were asked; calling it asks."""

    def __init__(self, answers: Mapping[str, MetadataAnswer | None]) -> None:
        super().__init__()
        self.answers = dict(answers)

    def __call__(self, question: MetadataQuestion) -> MetadataAnswer | None:
        path = question.path.removeprefix("/computeMetadata/v1/instance/")
        self.append(path)
        return self.answers.get(path, MetadataAnswer(404))


def aws(body: str, headers: Mapping[str, str] | None = None) -> _Asking:
    """Return a server with an interruption notice."""
    return _Asking(
        {PERMIT: MetadataAnswer(200, "token"), ACTION: MetadataAnswer(200, body, DATE if headers is None else headers)}
    )


def noticed(ends: str, headers: Mapping[str, str] | None = None) -> Notice | None:
    """Return the notice of an end at this time."""
    return Aws().look(aws(json.dumps({"action": "terminate", "time": ends}), headers))


@pytest.mark.parametrize(
    ("ends", "left_s"),
    [
        ("2026-09-29T08:22:00Z", 120 - SAFE_S),
        ("2026-09-29T08:20:40Z", 40 - SAFE_S),
        ("2026-09-29T08:19:00Z", 1),
        ("2026-09-30T08:20:00Z", 120 - SAFE_S),
        ("soon", 60 - SAFE_S),
    ],
    ids=["two minutes", "late", "past", "tomorrow", "unreadable"],
)
def test_the_time_left_is_counted_on_the_clock_of_aws(ends: str, left_s: int) -> None:
    """The notice and the answer's date are by one clock; at most two minutes are left, and at least a second."""
    assert noticed(ends) == Notice(left_s, "AWS will terminate this spot instance")


@pytest.mark.parametrize("headers", [{}, {"date": "now"}, {"date": "Tue, 29 Sep 2026 08:20:00 -0000"}])
def test_an_answer_without_a_date_leaves_a_minute(headers: Mapping[str, str]) -> None:
    """The machine's own clock is never compared."""
    found = noticed("2026-09-29T08:22:00Z", headers)
    assert found is not None
    assert found.left_s == 60 - SAFE_S


def test_a_machine_that_stays_has_no_notice() -> None:
    """Without a notice there is an error 404, and the token is asked for once."""
    ask, cloud = _Asking({PERMIT: MetadataAnswer(200, "token")}), Aws()
    assert (cloud.look(ask), cloud.look(ask), cloud.interval_s) == (None, None, 5.0)
    assert ask == [PERMIT, ACTION, REBALANCE, ACTION, REBALANCE]


def test_a_rebalance_recommendation_makes_the_looks_frequent() -> None:
    """The machine may stay for hours, so it goes on working."""
    ask, cloud = _Asking({PERMIT: MetadataAnswer(200, "token"), REBALANCE: MetadataAnswer(200, "{}")}), Aws()
    assert (cloud.look(ask), cloud.interval_s, cloud.look(ask)) == (None, 1.0, None)
    assert ask.count(REBALANCE) == 1


@pytest.mark.parametrize("status", [0, 401, 403, 404, 405, 500])
def test_a_refused_token_means_that_this_is_not_aws(status: int) -> None:
    """Without a token the first version of the service is not tried."""
    ask = _Asking({PERMIT: MetadataAnswer(status, "token") if status else None})
    with pytest.raises(NotHere):
        Aws().look(ask)
    assert ask == [PERMIT]


@pytest.mark.parametrize("token", ["", "a\r\nb: c", "ü", "t" * 5000])
def test_a_token_that_is_none_is_not_sent(token: str) -> None:
    """A header could be smuggled in."""
    with pytest.raises(NotHere):
        Aws().look(_Asking({PERMIT: MetadataAnswer(200, token)}))


@pytest.mark.parametrize("status", [401, 500, None])
def test_a_token_that_has_run_out_is_replaced(status: int | None) -> None:
    """After a failure the next look asks for another token."""
    ask, cloud = (
        _Asking({PERMIT: MetadataAnswer(200, "token"), ACTION: None if status is None else MetadataAnswer(status)}),
        Aws(),
    )
    with pytest.raises(NotHere):
        cloud.look(ask)
    ask.answers[ACTION] = MetadataAnswer(404)
    assert cloud.look(ask) is None
    assert ask == [PERMIT, ACTION, PERMIT, ACTION, REBALANCE]


@pytest.mark.parametrize(
    "body", ["", "<html>", "[]", '{"time": "2026-09-29T08:22:00Z"}', '{"action": 1}', "[" * 60_000]
)
def test_garbage_drains_no_node(body: str) -> None:
    """A notice has an action, else it is none."""
    with pytest.raises(NotHere):
        Aws().look(aws(body))


@pytest.mark.parametrize(
    ("preempted", "event", "left_s"),
    [
        ("FALSE", "NONE", None),
        ("FALSE\n", "MIGRATE_ON_HOST_MAINTENANCE", None),
        ("TRUE", "NONE", 30 - SAFE_S),
        ("FALSE", "TERMINATE_ON_HOST_MAINTENANCE", 60 - SAFE_S),
    ],
)
def test_google_announces_preemption_and_maintenance(preempted: str, event: str, left_s: int | None) -> None:
    """A machine that only moves to another host stays."""
    answers = {
        "preempted": MetadataAnswer(200, preempted, GOOGLE),
        "maintenance-event": MetadataAnswer(200, event, GOOGLE),
    }
    found = Gcp().look(_Asking(answers))
    assert (None if found is None else found.left_s) == left_s


def test_a_machine_with_gpus_works_until_shortly_before_maintenance() -> None:
    """The notice comes an hour before; an end that is called off is forgotten, and a preemption is still seen."""
    now_s = [0.0]
    told = MetadataAnswer(200, "TERMINATE_ON_HOST_MAINTENANCE", GOOGLE)
    ask = _Asking({"preempted": MetadataAnswer(200, "FALSE", GOOGLE), "maintenance-event": told})
    cloud = Gcp(has_gpus=True, now_s=lambda: now_s[0])

    def left_s(after_s: float) -> int | None:
        now_s[0] += after_s
        found = cloud.look(ask)
        return None if found is None else found.left_s

    assert [left_s(0), left_s(3299), left_s(1), left_s(100)] == [None, None, 300 - SAFE_S, 200 - SAFE_S]
    ask.answers["maintenance-event"] = MetadataAnswer(200, "NONE", GOOGLE)
    assert left_s(1) is None
    ask.answers["maintenance-event"] = told
    assert left_s(1) is None
    ask.answers["preempted"] = MetadataAnswer(200, "TRUE", GOOGLE)
    assert left_s(1) == 30 - SAFE_S


@pytest.mark.parametrize(
    "answer",
    [
        None,
        MetadataAnswer(200, "TRUE"),
        MetadataAnswer(403, "TRUE", GOOGLE),
        MetadataAnswer(200, "yes", GOOGLE),
        MetadataAnswer(200, "", GOOGLE),
    ],
)
def test_what_is_not_google_preempts_nothing(answer: MetadataAnswer | None) -> None:
    """Google names itself in a header of each answer."""
    with pytest.raises(NotHere):
        Gcp().look(_Asking({"preempted": answer}))


ANSWERS = st.none() | st.builds(
    MetadataAnswer,
    st.sampled_from([0, 200, 404, 401, 500]),
    st.text() | st.sampled_from(["TRUE", '{"action": "stop"}']),
    st.dictionaries(st.sampled_from(["date", "metadata-flavor"]), st.text() | st.just("Google")),
)


@given(st.lists(ANSWERS, min_size=4, max_size=4), st.sampled_from([Spot.AWS, Spot.GCP]))
def test_any_answer_has_a_meaning(answers: list[MetadataAnswer | None], spot: Spot) -> None:
    """A look ends with a notice, without one, or with ``NotHere``."""
    (cloud,) = clouds(spot)
    left = iter(answers)
    try:
        found = cloud.look(lambda _: next(left))
    except NotHere:
        return
    assert found is None or found.left_s >= 1


def test_the_users_choice_is_asked() -> None:
    """Both clouds are asked only if none is named."""
    names = {spot: [cloud.name for cloud in clouds(spot)] for spot in Spot}
    assert names == {Spot.AUTO: ["AWS", "Google Cloud"], Spot.AWS: ["AWS"], Spot.GCP: ["Google Cloud"], Spot.OFF: []}
