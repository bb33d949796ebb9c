"""What Airflow's API server answers if a run of weekly_email is triggered with wrong params."""

from typing import Any

import pytest
from airflow.exceptions import ParamValidationError

from tests.dags.conftest import read_back

WEEK, SHARDS = "Invalid input for param week: ", "Invalid input for param shards: "


@pytest.fixture(scope="module")
def params(bag: Any) -> Any:
    """Return the params as the API server reads them back from the database."""
    return read_back(bag.dags["weekly_email"]).params


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"week": "2026-W99"}, f"{WEEK}week 2026-W99: there is no such week in 2026"),
        ({"week": "2025-W53"}, f"{WEEK}week 2025-W53: there is no such week in 2025"),
        ({"week": "W47"}, f"{WEEK}week 'W47': expected an ISO week such as 2026-W47"),
        ({"week": ""}, f"{WEEK}week '': expected an ISO week such as 2026-W47"),
        ({"shards": "x"}, f"{SHARDS}shards 'x': expected a form such as 0-3, 2 or 0,2,5-7"),
        ({"shards": "5-2"}, f"{SHARDS}shards '5-2': expected the lower number first, found 5-2"),
    ],
)
def test_a_typo_is_refused_in_words(params: Any, given: dict[str, object], why: str) -> None:
    with pytest.raises(ParamValidationError) as refused:
        params.deep_merge(given).validate()
    assert str(refused.value) == why


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"week": 47}, "param week: 47 is not of type"),
        ({"on_unknown": "send"}, "param on_unknown: 'send' is not one of"),
        ({"again": "failed"}, "param again: 'failed' is not one of"),
        ({"early": "yes"}, "param early: 'yes' is not of type"),
    ],
)
def test_no_other_value_is_taken(params: Any, given: dict[str, object], why: str) -> None:
    with pytest.raises(ParamValidationError, match=why):
        params.deep_merge(given).validate()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"week": None, "shards": None, "dry_run": None, "early": None},
        {"week": "2020-W53", "shards": "0, 2, 5-7", "dry_run": True},
        {"shards": "", "on_unknown": "resend", "again": "SUPPRESSED"},
    ],
)
def test_what_the_job_takes_is_taken(params: Any, given: dict[str, object]) -> None:
    assert params.deep_merge(given).validate().items() >= given.items()
