"""Writes bench/data: Crocoddyl's gait problems of HyQ, ANYmal and the legs of Talos, every knot as
numbers, and the optima that its FDDP finds.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from gait_cases import DATA, FILE_OF, FILES, GAITS, Gait
from peers import crocoddyl_process


def numbers(peer: crocoddyl_process.Gaits, task: Gait) -> dict[str, Any]:
    """As Crocoddyl's examples solve it; its counter of iterations starts at 0."""
    problem = peer.open(task.as_data())
    found = peer.ask("history", problem=problem, method="FDDP", iterations=100, stop=1e-9)
    costs = found["costs"][1:]
    solved = {
        "converged": found["stops"][-1] < 1e-9,
        "iterations": len(costs) - 1,
        "cost": costs[-1],
        "costs": costs,
    }
    knots = peer.ask("numbers", problem=problem)
    return knots | solved | {"T": len(knots["knots"]) - 1}


def main() -> None:
    with crocoddyl_process.Gaits(crocoddyl_process.interpreter()) as peer:
        for robot, name in FILE_OF.items():
            content = {
                gait: numbers(peer, Gait(robot, gait))
                for gait in (GAITS if robot in FILES else ("walking",))
            }
            if robot not in FILES:
                content["robot"] = peer.ask(
                    "body", problem=peer.open(Gait(robot, "walking").as_data())
                )
            (DATA / name).write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))
            print(f"{DATA / name}: {', '.join(gait for gait in content if gait != 'robot')}")


if __name__ == "__main__":
    main()
