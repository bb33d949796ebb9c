"""Dead letters through the public module `shardpost.tables`, as their topics have them."""

from shardpost import tables
from shardpost.settings import Settings
from shardpost.topics.creation import apply_topics
from tests.support.letter_world import failed, original, put


def test_letters_are_their_latest_steps_before_the_first_sweep_too(settings: Settings) -> None:
    apply_topics(settings)
    assert tables.letters(settings) == []
    records = [failed(settings, original(number)) for number in range(3)]
    put(settings, records)
    found = tables.letters(settings)
    assert sorted(step.id for step in found) == sorted((r.key or b"").decode() for r in records)
    assert {str(step.state) for step in found} == {"waiting"}
    assert [(step.at, step.id) for step in found] == sorted((step.at, step.id) for step in found)
