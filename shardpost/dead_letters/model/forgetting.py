"""Which letters the table may forget: those that no list of open letters depends on."""

from collections.abc import Collection, Sequence

from shardpost.dead_letters.model.letter_history import (
    Generations,
    Step,
    newest_steps,
    own_names,
)


def may_be_forgotten(
    names: Collection[str], steps: Sequence[Step], generations: Generations
) -> set[str]:
    """Return the names of these letters that can go: without them the same letters are open.

    `steps` are all of the letters that may be open, and of those of which others depend.
    """
    is_open = _open(steps, generations)
    found = set(names) - is_open
    without = [step for step in steps if step.id not in found]
    # A letter that was renamed is open only if its later name is unknown.
    opened = _open(without, generations) - is_open
    return found - {name for step in without if step.id in opened for name in own_names(step)}


def _open(steps: Sequence[Step], generations: Generations) -> set[str]:
    newest = newest_steps(steps, generations)
    return {name for name, step in newest.items() if step.is_in_topic}
