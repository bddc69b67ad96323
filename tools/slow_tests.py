"""Which tests are slow, from measured CPU times:

    pytest -p no:xdist --cpu-times times.txt && python tools/slow_tests.py times.txt

writes tests/slow.txt. Files without a measured test count as slow as a whole. All cases of a
function together may take 0.3 s to be quick; of a slower one its cheapest case is quick, if that
takes 0.5 s at most. `make quick` runs what is quick.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

ALL, ONE = 0.3, 0.5  # seconds of CPU
CHEAP = {
    f"test_{name}.py"
    for name in (
        *("layers", "mjcf", "pddp", "robot", "search", "sources", "target_names", "tasks", "terms"),
        *("tool_frame", "urdf", "urdf_hostile", "words"),
    )
}  # quick whether they are measured or not, since they catch much
TARGET = Path(__file__).parents[1] / "tests" / "slow.txt"
HEAD = """\
# Made by tools/slow_tests.py: functions that take long, and the one case that is quick all the same.
"""


def main(file: Path) -> None:
    cases: dict[str, dict[str, float]] = defaultdict(dict)
    for line in file.read_text().splitlines():
        seconds, name = line.split(" ", 1)
        function, bracket, case = name.removeprefix("tests/").partition("[")
        cases[function][bracket + case] = float(seconds)  # the last run counts
    rows, quick, spent = [], 0, 0.0
    for function, times in sorted(cases.items()):
        cheapest = min(times, key=lambda case: times[case])
        if sum(times.values()) <= ALL:
            quick, spent = quick + len(times), spent + sum(times.values())
        elif cheapest and times[cheapest] <= ONE:
            rows.append(f"{function} {cheapest}")
            quick, spent = quick + 1, spent + times[cheapest]
        else:
            rows.append(function)
    measured = {function.partition("::")[0] for function in cases}
    files = {path.name for path in TARGET.parent.glob("test_*.py")}
    rows = sorted([*rows, *(files - measured - CHEAP)])
    TARGET.write_text(HEAD + "\n".join(rows) + "\n")
    count = sum(map(len, cases.values()))
    print(f"{len(rows)} slow functions; quick: {quick} of {count} tests, {spent:.0f} s of CPU")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
