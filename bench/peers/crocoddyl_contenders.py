"""Crocoddyl as a contender of bench/solvers.py: one problem, or many on several cores."""

from __future__ import annotations

import time

import numpy as np
from control_cases import LONG, TARGET, Arm, needed

from peers.crocoddyl_process import Crocoddyl

BATCH_METHOD = "FDDP"  # from a feasible guess it takes the same steps as DDP, a little faster


class Theirs:
    """One of Crocoddyl's solvers, bound to one problem."""

    def __init__(self, peer: Crocoddyl, task: Arm, method: str, clock: str):
        self.name, self._peer, self._method, self._clock = (
            f"crocoddyl {method}",
            peer,
            method,
            clock,
        )
        self.dtype = "float64"
        self.problem = peer.open(task.as_data())

    def history(self) -> list[float]:
        return self._peer.ask(
            "history", problem=self.problem, method=self._method, iterations=LONG, stop=1e-13
        )["costs"]

    def seconds(self, iterations: int, repeats: int, fresh: bool = False) -> float:
        return self._peer.ask(
            "time",
            method=self._method,
            work=[[self.problem, iterations, 0.0]],
            repeats=repeats,
            fresh=fresh,
        )[self._clock]

    def phases(self) -> dict[str, float]:
        return self._peer.ask("pieces", problem=self.problem, method=self._method, repeats=10)

    def cost(self, u: np.ndarray) -> float:
        """What Crocoddyl's own simulation says that these controls cost."""
        return self._peer.ask("cost", problem=self.problem, u=u.tolist())["cost"]


class TheirBatch:
    """One process a core, and the problems dealt out so that all of those in use have equally much
    to do.
    """

    def __init__(self, python: str, tasks: list[Arm], cores: list[int]):
        self.peers = [Crocoddyl(python, core) for core in cores]
        self.count = len(tasks)
        for peer in self.peers:
            for task in tasks:
                peer.open(task.as_data())
        found = [
            self.peers[0].ask(
                "history", problem=i, method=BATCH_METHOD, iterations=LONG, stop=1e-10
            )
            for i in range(self.count)
        ]
        self.optima = [run["costs"][-1] for run in found]
        self.needed = [
            needed(run["costs"], best, TARGET["float64"]) or LONG
            for run, best in zip(found, self.optima, strict=True)
        ]
        self.stop, self.stopped = self.loosest(found)

    def loosest(self, found: list[dict]) -> tuple[float, list[int]]:
        """The threshold for stopping with which every problem still ends as near its optimum as the
        target says, and the iterations that each takes.
        """
        for stop in (10.0**-k for k in range(2, 11)):
            counts = [
                next(
                    (k for k, value in enumerate(run["stops"], 1) if value < stop),
                    len(run["stops"]),
                )
                for run in found
            ]
            if all(
                run["costs"][k] <= best * (1 + TARGET["float64"])
                for run, k, best in zip(found, counts, self.optima, strict=True)
            ):
                break
        return stop, counts

    def seconds(self, iterations: list[int], stop: float, cores: int, clock: str) -> float:
        """All problems once, at most so many iterations each, on the first so many cores; the CPU
        time is that of the busiest process.
        """
        shares: list[list[tuple]] = [[] for _ in range(cores)]
        for problem in sorted(range(self.count), key=lambda i: -iterations[i]):
            min(shares, key=lambda share: sum(item[1] for item in share)).append(
                (problem, iterations[problem], stop)
            )
        start = time.perf_counter()
        for peer, share in zip(self.peers, shares, strict=False):
            peer.send("time", method=BATCH_METHOD, work=share, repeats=1)
        busiest = max(peer.receive()["cpu"] for peer in self.peers[:cores])
        return busiest if clock == "cpu" else time.perf_counter() - start

    def close(self) -> None:
        for peer in self.peers:
            peer.close()
