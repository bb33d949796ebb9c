"""What a person sees of a task's log in Airflow's UI, where groups of lines are closed at first."""

from collections.abc import Iterable


def visible(lines: Iterable[str]) -> list[str]:
    """Return the lines outside of groups, and the names of the outer groups as `▶ name`.

    As the UI of Airflow 3.3 does it: a group begins at a line with `::group::`, ends at one with
    `::endgroup::`, and an end without a beginning is nothing.
    """
    depth, shown = 0, []
    for line in lines:
        if "::group::" in line:
            if depth == 0:
                shown.append(f"▶ {line.split('::group::')[1]}")
            depth += 1
        elif "::endgroup::" in line:
            depth = max(0, depth - 1)
        elif depth == 0:
            shown.append(line)
    return shown
