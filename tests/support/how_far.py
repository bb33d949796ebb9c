"""How far the tests go: `make test` takes the first of many cases and some by a seed.

`make test-all` (`pytest --all`) runs the same tests, each with every case, but some where each case
kills a JVM. `--seed N`, printed at the head of each run, takes the same cases again.

Of groups of expensive tests a quick run takes one. Of the groups below it takes so from two, and
always these tests, which are of the same code:

kills of what makes tables:
`tests/spark/test_compact_positions.py::test_broken_off_before_its_commit_and_after_it_the_next_run_ends_as_an_unbroken_one`
`tests/unit/test_publishing_again.py::test_killed_between_two_transactions_the_next_run_removes_the_rest`
`tests/unit/test_rejected_letters.py::test_killed_in_or_between_batches_each_letter_is_sent_once`
`tests/unit/test_rebuild_again.py::test_killed_before_the_commit_a_rebuild_stands_where_it_was`
`tests/unit/test_rebuild_again.py::test_a_swap_that_was_killed_after_its_commit_is_ended_by_its_repetition`
`tests/unit/test_follower.py::test_the_older_one_ends_when_a_younger_follows`
`tests/broker/test_locks_on_a_store.py::test_a_halted_holder_that_was_taken_over_deletes_nothing_more`

kills of what sends:
`tests/broker/test_sending.py::test_a_run_that_was_killed_leaves_its_sending_unknown`
`tests/broker/test_broken_mail_server.py::test_a_sender_that_was_halted_amid_a_mail_sends_it_only_if_the_shard_is_still_its_own`
`tests/unit/test_processes.py::test_ctrl_c_reaches_nobody_but_the_command_which_ends_the_job_in_silence`
and one of two imports that are broken off within the process (tests/spark/test_import_positions.py)

histories cut into any runs (each is held against the fold by `agree`, as most tests of Spark are):
`tests/unit/test_who_holds.py::test_at_every_snapshot_layered_tables_have_the_rows_of_the_fold`
`tests/unit/test_maintenance_of_pruned.py::test_random_histories_with_prunings_and_maintenance_between_any_two_runs`
`tests/unit/test_engine_views.py::test_views_have_what_the_tables_have_whenever_they_were_printed`

contacts that stay erased:
`tests/unit/test_erased_contacts.py::test_its_contact_goes_and_all_else_stays`
`tests/unit/test_erased_beside.py::test_it_leaves_the_tables_in_use_and_those_beside`

sweeps that are ended:
`tests/unit/test_sweep_partition.py::test_a_sweep_that_dies_is_finished_by_the_next`

weeks in trouble:
`tests/unit/test_resolve.py::test_what_a_killed_run_was_sending_is_unknown_and_can_be_decided`
`tests/unit/test_delivery_status_late.py::test_it_is_the_difference_of_two_folds`

lives of a broker:
`tests/unit/test_moving_leaders.py::test_while_brokers_restart_it_is_asked_again`
`tests/unit/test_lag_model.py::test_the_warning_is_never_later_than_the_loss`

whole systems, three brokers:
`tests/unit/test_topic_plan.py::test_a_cluster_of_three_of_which_one_is_away_has_three`
`tests/unit/test_moving_leaders.py::test_a_partition_whose_leader_moves_is_asked_again`

stacks:
`tests/broker/test_stack.py::test_a_broker_that_lives_and_does_not_answer_is_unhealthy`
`tests/broker/test_stack.py::test_a_server_that_is_not_ours_is_neither_started_nor_stopped`
and tests/e2e, whose stack is up and leaves no process when it is down

run requests in an Airflow:
`tests/broker/test_run_requests.py::test_a_thousand_requests_of_eight_producers_over_a_hundred_keys_give_a_hundred_runs`
`tests/unit/test_dispatch_model.py::test_any_interleaving_ends_as_the_plain_model_says`
"""

import random
import zlib
from collections.abc import Sequence
from typing import TypeVar

import hypothesis
import pytest

T = TypeVar("T")

QUICK_EXAMPLES, EVERY_EXAMPLE = 15, 40  # of each property


class _Extent:
    """What the command line says; set before the first test module is imported."""

    is_all = False
    is_on_store = False
    seed = 0


def add_options(parser: pytest.Parser) -> None:
    """Declare `--all`, `--on-store` and `--seed`."""
    parser.addoption("--all", action="store_true", help="every case, not the first and some")
    parser.addoption("--on-store", action="store_true", help="with --all: only on a store")
    parser.addoption("--seed", type=int, help="which cases are taken; printed by each run")


def configure(config: pytest.Config) -> None:
    """Take over the options; processes of one run have one seed."""
    seed = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    _Extent.is_all, _Extent.is_on_store = config.option.all, config.option.on_store
    _Extent.seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    examples = EVERY_EXAMPLE if _Extent.is_all else QUICK_EXAMPLES
    # How long an example takes is the machine's affair.
    hypothesis.settings.register_profile("shardpost", deadline=None, max_examples=examples)
    hypothesis.settings.load_profile("shardpost")


def give_seed(workerinput: dict[str, object]) -> None:
    """Have a process that runs tests take the cases that this one names."""
    workerinput["seed"] = _Extent.seed


def header() -> str:
    """Return what a run says of itself."""
    cases = "every case" if _Extent.is_all else "some cases (all: --all)"
    return f"{cases}, --seed {_Extent.seed}"


def some(cases: Sequence[T], more: int = 1) -> list[T]:
    """Return the first case and `more` others by the seed, in order; all with `--all`."""
    return [cases[0], *drawn(cases[1:], more)]


def drawn(cases: Sequence[T], count: int = 1, *, every: int | None = None) -> list[T]:
    """Return `count` cases by the seed, in order; with `--all` all.

    Of kills of real processes, which cost a JVM each, `every` with `--all`; all with `--on-store`.
    """
    if _Extent.is_all and (every is None or _Extent.is_on_store):
        return [*cases]
    wanted = every if _Extent.is_all and every else count
    chosen = by_seed(cases).sample(range(len(cases)), min(wanted, len(cases)))
    return [cases[at] for at in sorted(chosen)]


def by_seed(what: object) -> random.Random:
    """Return what draws by the seed of this run; another one for each thing that is drawn."""
    return random.Random(_Extent.seed ^ zlib.crc32(repr(what).encode()))  # noqa: S311 - no secret


def declare_markers(config: pytest.Config) -> None:
    """Declare `one_of` and `also_on_store`."""
    config.addinivalue_line(
        "markers",
        "one_of(name): of the files with tests of that name one is drawn by the seed, and of these"
        " one, or none where others cover them; or all are taken",
    )
    config.addinivalue_line(
        "markers", "also_on_store: it runs on an object store, too; of these some are taken, or all"
    )


# How many tests a quick run takes on an object store in place of a home, and how many one of every
# case takes once more there: of the unit tests, and of the others, which are long.
QUICK_ON_STORE = 2
EVERY_SHORT_ON_STORE, EVERY_LONG_ON_STORE = 40, 2
# The fixture that says where the tables are, and its values.
TABLES_AT, HOME, STORE = "tables_at", "home", "store"


def generate(metafunc: pytest.Metafunc) -> None:
    """Have a test that is marked so run twice: with its tables in its home, and on a store.

    A unit test does so in a run of every case only: else it needs nothing.
    """
    is_marked = metafunc.definition.get_closest_marker("also_on_store")
    if is_marked and (_Extent.is_all or metafunc.definition.path.parent.name != "unit"):
        metafunc.parametrize(TABLES_AT, [HOME, STORE], indirect=True)


# Groups of which the tests above are always taken; how many of them a quick run draws from.
ALWAYS_COVERED = {
    "kills of what makes tables",
    "kills of what sends",
    "histories cut into any runs",
    "contacts that stay erased",
    "sweeps that are ended",
    "weeks in trouble",
    "lives of a broker",
    "whole systems",
    "three brokers",
    "stacks",
    "run requests in an Airflow",
}
QUICK_GROUPS = 2


def _is_on_store(item: pytest.Item) -> bool:
    params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    return params.get(TABLES_AT) == STORE


def left_out(items: list[pytest.Item]) -> set[str]:
    """Return the ids of tests that this run leaves out: of each `one_of`, all but one, or all.

    Of those on a store, all but some, which are not run with their tables in a home then. A run of
    every case takes more of these, beside those in a home; with `--on-store` all, and no other.
    """
    if _Extent.is_all:
        return _left_out_of_all(items)
    groups: dict[str, list[str]] = {}
    for item in items:
        if marker := item.get_closest_marker("one_of"):
            groups.setdefault(marker.args[0], []).append(item.nodeid)
    covered = sorted(ALWAYS_COVERED & {*groups})
    passed_over = {*covered} - {*drawn(covered, QUICK_GROUPS)}
    taken_of_groups = {_one(ids) for name, ids in groups.items() if name not in passed_over}
    left = {left for ids in groups.values() for left in {*ids} - taken_of_groups}
    stored = sorted({item.nodeid for item in items if _is_on_store(item)} - left)
    taken = drawn(stored, QUICK_ON_STORE)
    at_home = {HOME.join(nodeid.rsplit(STORE, 1)) for nodeid in taken}
    return left | ({*stored} - {*taken}) | at_home


def _one(ids: list[str]) -> str:
    """Draw a file, then one of its tests: a file with few is drawn as often as one with many."""
    [file] = drawn(sorted({one.partition("::")[0] for one in ids}))
    [chosen] = drawn(sorted(one for one in ids if one.startswith(f"{file}::")))
    return chosen


def _left_out_of_all(items: list[pytest.Item]) -> set[str]:
    stored = sorted(item.nodeid for item in items if _is_on_store(item))
    if _Extent.is_on_store:
        return {item.nodeid for item in items} - {*stored}
    short = [nodeid for nodeid in stored if nodeid.startswith("tests/unit/")]
    long = [nodeid for nodeid in stored if nodeid not in short]
    taken = [
        *by_seed("store").sample(short, min(len(short), EVERY_SHORT_ON_STORE)),
        *by_seed("store").sample(long, min(len(long), EVERY_LONG_ON_STORE)),
    ]
    return {*stored} - {*taken}


def is_every() -> bool:
    """Tell whether each case is taken."""
    return _Extent.is_all


def up_to(every: int, quick: int) -> int:
    """Return how many: of examples, records or turns; `every` with `--all`."""
    return every if _Extent.is_all else quick
