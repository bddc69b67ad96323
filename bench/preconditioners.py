"""Preconditioners of direct trajectory optimisation: the study of Plancher 2022, section 6.3.1, on
its four systems, and what it leads to.

Eigenvalues and condition numbers of the preconditioned Schur complement, iterations of conjugate
gradients, levels of red-black reduction, polynomials; and with `--parts solve` the time of a whole
solve by each linear solver. What differs from the dissertation stands in DIFFERENCES, which goes
into the results.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import numpy as np
import report
from control_cases import ARM_GOAL, ARM_OPTIMA, ARM_START, ARM_WEIGHTS, Arm, Weights
from dynamics import say

import rigidgrad as rg
from rigidgrad import charts
from rigidgrad.control.direct import Direct, Run
from rigidgrad.control.linear import blocks, pcg, preconditioners
from rigidgrad.control.linear.lq import LQ
from rigidgrad.control.linear.reduction import Reduction
from rigidgrad.control.linear.solvers import linear_solver
from rigidgrad.control.system import CustomSystem
from rigidgrad.scalars import sincos

TOLERANCE = 1e-6  # of η = rᵀΦ⁻¹r, as in Algorithm 1
# those of Figures 6.1 to 6.3
SHOWN = ("none", "jacobi", "block_jacobi", "alternating", "overlapping", "symmetric_stair")
STUDY_WEIGHTS = Weights(0.1, 0.01, 1e-3, 1000.0)  # of the arm in 6.3.1
PARTS = ("study", "reduction", "polynomial", "solve")
# (condition number, iterations) by a NumPy prototype that shares no code with this; the order of
# SHOWN
PROTOTYPE = {
    "double integrator": ((730, 19), (538, 17), (533, 17), (187, 10), (193, 11), (132, 9)),
    "pendulum": ((1533, 43), (1184, 42), (950, 40), (321, 28), (329, 30), (237, 20)),
    "cart-pole": (
        (1.89e6, 300),
        (2.29e5, 164),
        (2.2e5, 160),
        (8.1e4, 103),
        (8.2e4, 106),
        (5.5e4, 80),
    ),
    "arm": ((1.2e8, 1725), (1.6e5, 292), (1.04e5, 202), (3.65e4, 125), (3.7e4, 130), (2.6e4, 101)),
}
PROTOTYPE_LEVELS = (476, 227, 110, 54, 26, 12)
# what the text of 6.3.1 says of the symmetric stair, lowest and highest over the four systems:
# times better than …
CLAIMS = {
    "condition, none": (4.5, 443.5),
    "condition, overlapping": (2.0, 2.8),
    "iterations, none": (1.9, 3.1),
    "iterations, overlapping": (1.3, 1.6),
}

DIFFERENCES = (
    (
        "Signs: S = C G⁻¹ Cᵀ is positive definite, with one sign in (6.4)-(6.8); the printed"
        " equations mix two. Every off-diagonal block of Φ⁻¹ is -θ⁻¹φθ⁻¹."
    ),
    (
        "Overlapping: the sum of the inverses of all 2 x 2 diagonal blocks, as the text describes"
        " it. Against it the symmetric stair's condition is 1.4 to 1.5 times better here, not 2.0"
        " to 2.8. The published code's one is not this sum, and indefinite on the pendulum."
        " Iterations, 1.2 to 1.4 times fewer, come near the text's 1.3 to 1.6."
    ),
    (
        "Against no preconditioner, the arm's condition improves by 4,700 times here, not by 443.5"
        " at most, and its iterations by 28 times, not 3.1: conjugate gradients without one need"
        " ten times as many iterations as S has rows. The text does not say whether it limits them,"
        " nor which inertias its arm has; this is the published iiwa14.urdf."
    ),
    (
        "Spectral radius: that the symmetric stair keeps it at 1 or below holds for every S, not"
        " only for these systems; block Jacobi's stays below 2."
    ),
    (
        "Figure 6.3 averages over a whole solve. Here stand both the first LQ problem (x ≡ start, u"
        " ≡ 0, for the arm gravity compensation) and the mean over those of a solve by rigidgrad's"
        " line search; each starts from λ = 0. Ratios of iterations are those of the means."
    ),
    (
        "Weights: those of 6.3.1 exist in the text only; the arm is given with the weights of 4.3.2"
        " too, the text's and the published code's. Masses and lengths of pendulum and cart-pole"
        " are not in the text: all are 1."
    ),
    (
        "The symmetric stair is the polynomial of order 1 over block Jacobi, (I + Ψ⁻¹R)Ψ⁻¹ in"
        " (2.16): condition and iterations are the same to the last digit."
    ),
)


@dataclass(frozen=True)
class Task:
    """One of the study's problems, from rest at a guess that does not move."""

    system: Any
    start: tuple[float, ...]
    goal: tuple[float, ...]
    steps: int
    dt: float
    weight: tuple[float, ...]
    control: float
    final: float

    def problem(self) -> rg.Problem:
        costs = [
            rg.costs.State(self.goal, weight=np.array(self.weight), final=self.final),
            rg.costs.Effort(self.control),
        ]
        return rg.Problem(
            self.system,
            start=self.start,
            steps=self.steps,
            dt=self.dt,
            integrator="euler",
            costs=costs,
        )


def cartpole(x: tuple, u: tuple) -> tuple:
    """Cart and pole of 1 kg each, a pole of 1 m that hangs at θ = 0."""
    s, c = sincos(x[1])
    swing = x[3] * x[3] * s
    below = 1.0 + s * s
    return (
        x[2],
        x[3],
        (u[0] + swing + 9.81 * (s * c)) / below,
        -((u[0] + swing) * c + 19.62 * s) / below,
    )


def arm(steps: int, dt: float, weights: Weights) -> Task:
    rest = (0.0,) * 7
    state = (weights.q,) * 7 + (weights.v,) * 7
    return Task(
        rg.load("iiwa14"),
        (*ARM_START, *rest),
        (*ARM_GOAL, *rest),
        steps,
        dt,
        state,
        weights.u,
        weights.final,
    )


def tasks() -> dict[str, Task]:
    integrator = CustomSystem(lambda x, u: (x[1], u[0]), 2, 1, name="double_integrator")
    pendulum = CustomSystem(
        lambda x, u: (x[1], u[0] - 9.81 * sincos(x[0])[0]), 2, 1, name="pendulum"
    )
    pole = CustomSystem(cartpole, 4, 1, name="cartpole")
    found = {
        "double integrator": Task(
            integrator, (0.0, 0.0), (1.0, 0.0), 9, 0.1, (0.01, 0.01), 1e-4, 10.0
        ),
        "pendulum": Task(pendulum, (0.0, 0.0), (math.pi, 0.0), 19, 0.1, (1.0, 1.0), 0.1, 100.0),
        "cart-pole": Task(
            pole,
            (0.0,) * 4,
            (0.0, math.pi, 0.0, 0.0),
            39,
            0.0125,
            (1.0, 1.0, 0.1, 0.1),
            1e-3,
            1000.0,
        ),
        "arm": arm(19, 0.025, STUDY_WEIGHTS),
    }
    return found | {
        f"arm, {name} weights of 4.3.2": arm(19, 0.025, w) for name, w in ARM_WEIGHTS.items()
    }


# --- the study ------------------------------------------------------------------------------------


class Recorded(Run):
    """A solve that keeps its LQ problems; the first guess is not simulated."""

    def __init__(self, problem: rg.Problem):
        problem.update(guess=(np.tile(problem.start, (problem.steps + 1, 1)), problem.guess))
        super().__init__(problem, Direct())
        self.problems: list[LQ] = []

    def linearize(self) -> LQ:
        self.problems.append(super().linearize())
        return self.problems[-1]

    def first(self) -> LQ:
        self.begin()
        return self.linearize()


def schur(lq: LQ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The blocks D, E of the Schur complement and its right-hand side."""
    solver = linear_solver("block_cholesky", *lq.sizes)
    if not solver.solve(lq).solved:
        raise SystemExit("a Schur complement is not positive definite")
    return solver.D, solver.E, solver.gamma


def iterations(
    D: np.ndarray,
    E: np.ndarray,
    gamma: np.ndarray,
    name: str,
    polynomial: int = 0,
    tolerance: float = TOLERANCE,
) -> int:
    p = preconditioners.build(name, D, E, polynomial)
    work = pcg.workspace(*gamma.shape)
    arrays = D, E, gamma, np.zeros_like(gamma), p.shape, p.P, p.O, p.scale
    count, _, end = pcg.pcg(*arrays, polynomial, tolerance, 0.0, 1_000_000, work, np.empty(0))
    if end != pcg.CONVERGED:
        raise SystemExit(f"conjugate gradients with {name} broke down")
    return count


def eigenvalues(D: np.ndarray, E: np.ndarray, name: str, polynomial: int = 0) -> np.ndarray:
    """Of Φ⁻¹S, ascending; the plain stair is not symmetric, yet they are real."""
    S = blocks.dense(D, E)
    base = preconditioners.build(name, D, E, polynomial).dense()
    inverse, power = base, base
    for _ in range(polynomial):
        power = (np.eye(len(S)) - base @ S) @ power
        inverse = inverse + power
    if name == "stair":
        return np.sort(np.linalg.eigvals(inverse @ S).real)
    L = np.linalg.cholesky(S)
    return np.linalg.eigvalsh(L.T @ inverse @ L)


def study() -> dict:
    found = {}
    for name, task in tasks().items():
        say(f"{name}: solving")
        run = Recorded(task.problem())
        solution = run.solve()
        systems = [schur(lq) for lq in run.problems]
        D, E, gamma = systems[0]
        rows = {}
        for p in preconditioners.PRECONDITIONERS:
            say(f"{name}: {p}")
            values = eigenvalues(D, E, p)
            counts = [iterations(*system, p) for system in systems]
            rows[p] = {
                "condition": float(values[-1] / values[0]),
                "eigenvalues": [float(f"{v:.6g}") for v in values],
                "iterations": counts[0],
                "iterations_mean": float(np.mean(counts)),
            }
        lq = run.problems[0]
        solve = {
            "status": solution.status,
            "iterations": solution.iterations,
            "cost": solution.cost,
        }
        found[name] = {
            "states": lq.sizes[0] + 1,
            "rows": int(gamma.size),
            "solve": solve,
            "preconditioners": rows,
        }
    return found


def reduction() -> dict:
    """Iterations left after each level of cyclic reduction, for the arm with 64 states."""
    found = {}
    weights = {"6.3.1": STUDY_WEIGHTS} | {f"4.3.2, {name}": w for name, w in ARM_WEIGHTS.items()}
    for name, w in weights.items():
        D, E, gamma = schur(Recorded(arm(63, 0.5 / 63, w).problem()).first())
        levels = Reduction(len(D), D.shape[1])
        if not levels.factor(D, E):
            raise SystemExit("cyclic reduction broke down")
        levels.reduce(gamma)
        found[name] = {
            f"{p}, {tolerance:g}": [
                iterations(levels.D[i], levels.E[i], levels.gamma[i], p, tolerance=tolerance)
                for i in range(len(levels.sizes) - 1)
            ]
            for p in ("block_jacobi", "symmetric_stair")
            for tolerance in (TOLERANCE, 1e-12)
        }
    return found


def polynomial() -> dict:
    """Condition and iterations by the order of the polynomial; a product with S or Φ⁻¹ is the unit
    of work.
    """
    found: dict[str, dict] = {}
    for name, task in tasks().items():
        if name in PROTOTYPE:
            system = schur(Recorded(task.problem()).first())
            for p in ("block_jacobi", "symmetric_stair"):
                rows = []
                for order in range(4):
                    values, count = (
                        eigenvalues(*system[:2], p, order),
                        iterations(*system, p, order),
                    )
                    row = {
                        "order": order,
                        "condition": float(values[-1] / values[0]),
                        "iterations": count,
                        "products": (2 * order + 2) * count,
                    }
                    rows.append(row)
                found.setdefault(name, {})[p] = rows
    return found


# --- whole solves ---------------------------------------------------------------------------------


WAYS: dict[str, dict[str, Any]] = {
    "riccati": {"linear_solver": "riccati"},
    "block_cholesky": {"linear_solver": "block_cholesky"},
    "cyclic_reduction": {"linear_solver": "cyclic_reduction"},
    **{
        f"pcg, {p}": {"linear_solver": "pcg", "preconditioner": p}
        for p in preconditioners.PRECONDITIONERS
    },
    "pcg, symmetric_stair, order 1": {"linear_solver": "pcg", "polynomial": 1},
    **{
        f"red_black, {p}": {"linear_solver": "red_black", "preconditioner": p}
        for p in ("block_jacobi", "symmetric_stair")
    },
    "red_black, 3 levels": {"linear_solver": "red_black", "reductions": 3},
    "kkt": {"linear_solver": "kkt"},
}


SLOW = ("pcg, none", "kkt")


def settled(costs: list[float], optimum: float, accuracy: float) -> int | None:
    """Iterations after which the cost stays this near to the optimum, from either side:
    trajectories with defects may cost less.
    """
    away = [k for k, cost in enumerate(costs) if abs(cost - optimum) > accuracy * optimum]
    last = away[-1] + 1 if away else 0
    return last if last < len(costs) else None


def solve(core: int, rounds: int = 12) -> dict:
    """The arm across its workspace, code weights, by each linear solver: iterations, and
    milliseconds of one.

    In turns, so that a slow moment of the machine hits all; minima of CPU time. The slowest take
    part in two rounds.
    """
    machine.pin_to(core)
    runs = {label: Run(Arm("code").problem(), Direct(**options)) for label, options in WAYS.items()}
    lq, optimum = Recorded(Arm("code").problem()).first(), ARM_OPTIMA["code", "semi_implicit_euler"]
    solutions, whole, single = {}, dict.fromkeys(runs, math.inf), dict.fromkeys(runs, math.inf)
    for turn in range(rounds):
        for label, run in runs.items():
            if turn < 2 or label not in SLOW:
                say(f"whole solve, turn {turn + 1} of {rounds}: {label}")
                taken, solutions[label] = timed(run.solve)
                whole[label] = min(whole[label], taken / solutions[label].iterations)
                single[label] = min(
                    single[label], *(timed(run.linear.solve, lq)[0] for _ in range(3))
                )
    machine.pin_to(None)
    return {
        label: {
            "status": s.status,
            "iterations": s.iterations,
            "iterations_to_1e-6": settled(s.stats["history"], optimum, 1e-6),
            "error": s.cost / optimum - 1,
            "ms_per_iteration": 1e3 * whole[label],
            "lq_ms": 1e3 * single[label],
            "inner_iterations": float(np.mean(s.stats["linear_iterations"])),
        }
        for label, s in solutions.items()
    }


def timed(function: Any, *arguments: Any) -> tuple[float, Any]:
    begin = time.process_time()
    result = function(*arguments)
    return time.process_time() - begin, result


# --- output ---------------------------------------------------------------------------------------


def short(x: float) -> str:
    return f"{x:.0f}" if x < 1e4 else f"{x:.3g}".replace("e+0", "e")


def print_study(found: dict) -> None:
    print(
        "Condition number | iterations to η < 1e-6 of the first LQ problem [mean over a solve]; in"
        " brackets below, the prototype's\n"
    )
    rows = []
    for name, result in found.items():
        p = result["preconditioners"]
        cells = [
            f"{short(p[k]['condition'])}|{p[k]['iterations']} [{p[k]['iterations_mean']:.0f}]"
            for k in (*SHOWN, "stair")
        ]
        rows.append([name, str(result["states"]), *cells])
        if name in PROTOTYPE:
            rows.append(["", "", *(f"({short(c)}|{n})" for c, n in PROTOTYPE[name]), ""])
    print(report.table(["system", "states", *SHOWN, "stair"], rows))
    rows = []
    for name, result in found.items():
        p = result["preconditioners"]
        ends = [
            f"{p[k]['eigenvalues'][0]:.2g}-{p[k]['eigenvalues'][-1]:.3g}" for k in (*SHOWN, "stair")
        ]
        rows.append([name, str(result["rows"]), *ends])
    print(
        "\nEigenvalues, from the smallest to the largest\n\n"
        + report.table(["system", "rows", *SHOWN, "stair"], rows)
    )
    print("\nThe symmetric stair is better by (dissertation: lowest to highest)\n")
    rows = [[what, f"{low}-{high}x", *gains(found, what)] for what, (low, high) in CLAIMS.items()]
    print(report.table(["than", "dissertation", *PROTOTYPE], rows))


def gains(found: dict, what: str) -> list[str]:
    quantity, other = what.split(", ")
    key = "condition" if quantity == "condition" else "iterations_mean"
    return [
        f"{found[n]['preconditioners'][other][key] / found[n]['preconditioners']['symmetric_stair'][key]:.3g}x"
        for n in PROTOTYPE
    ]


def print_rest(result: dict) -> None:
    if "reduction" in result:
        print(
            "\nThe arm with 64 states: iterations after 0, 1, 2, … levels of red-black reduction"
            " (prototype:",
            *PROTOTYPE_LEVELS,
            ")\n",
        )
        rows = [
            [w, how, " → ".join(map(str, counts))]
            for w, ways in result["reduction"].items()
            for how, counts in ways.items()
        ]
        print(report.table(["weights", "preconditioner, η", "iterations"], rows))
    if "polynomial" in result:
        print(
            "\nPolynomials of order 0, 1, 2, 3: condition | iterations | products with S or Φ⁻¹\n"
        )
        rows = [
            [n, p, *(f"{short(r['condition'])}|{r['iterations']}|{r['products']}" for r in orders)]
            for n, ways in result["polynomial"].items()
            for p, orders in ways.items()
        ]
        print(report.table(["system", "preconditioner", "0", "1", "2", "3"], rows))
    if "solve" in result:
        print(
            "\nThe arm across its workspace (63 steps, code weights, semi-implicit Euler), one"
            " core\n"
        )
        rows = [
            [
                label,
                r["status"],
                str(r["iterations"]),
                str(r["iterations_to_1e-6"]),
                f"{r['error']:+.0e}",
                f"{r['ms_per_iteration']:.2f}",
                f"{r['lq_ms']:.2f}",
                f"{r['inner_iterations']:.0f}",
            ]
            for label, r in result["solve"].items()
        ]
        print(
            report.table(
                [
                    "linear solver",
                    "status",
                    "iterations",
                    "to 1e-6",
                    "error",
                    "ms each",
                    "first LQ, ms",
                    "inner",
                ],
                rows,
            )
        )
    print("\nWhere this differs from the dissertation, and why:")
    for line in DIFFERENCES:
        print(f"- {line}")


def boxes(title: str, series: dict[str, list[float]]) -> str:
    """Quartiles, and whiskers to the farthest eigenvalue within 1.5 times their distance; the
    others as dots (Figure 6.1).
    """
    everything = [x for values in series.values() for x in values]
    axes = charts.Axes(
        title,
        "",
        "eigenvalues",
        (0.0, float(len(series))),
        (min(everything), max(everything)),
        log=True,
    )
    parts = axes.frame(label_x=False)
    for k, (label, values) in enumerate(series.items()):
        color = charts.COLORS[1 if label == "none" else 2 if label == "symmetric_stair" else 0]
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
        inside = [v for v in values if low - 1.5 * (high - low) <= v <= high + 1.5 * (high - low)]
        (x0, top), (x1, bottom) = axes.at(k + 0.25, high), axes.at(k + 0.75, low)
        x = (x0 + x1) / 2
        for v, w in ((min(inside), low), (high, max(inside))):
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.at(k, v)[1]:.1f}"'
                f' y2="{axes.at(k, w)[1]:.1f}" stroke="{color}"/>'
            )
        parts.append(
            f'<rect x="{x0:.1f}" y="{top:.1f}" width="{x1 - x0:.1f}"'
            f' height="{max(1.0, bottom - top):.1f}" fill="{color}" fill-opacity=".55"/>'
        )
        y = axes.at(k, middle)[1]
        parts.append(
            f'<line x1="{x0:.1f}" x2="{x1:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{color}"'
            ' stroke-width="2"/>'
        )
        parts += [
            f'<circle cx="{x:.1f}" cy="{axes.at(k, v)[1]:.1f}" r="1.5" fill="{color}"/>'
            for v in values
            if v < min(inside) or v > max(inside)
        ]
        words = label.split("_")
        for line, word in enumerate(words):
            y = charts.HEIGHT - charts.BOTTOM + 14 + 11 * line
            parts.append(
                f'<text x="{x:.1f}" y="{y}" text-anchor="middle"'
                f' style="font-size:9.5px">{word}</text>'
            )
    return "".join(parts)


def picture(found: dict, date: str) -> str:
    drawn = [
        boxes(name, {p: found[name]["preconditioners"][p]["eigenvalues"] for p in SHOWN})
        for name in PROTOTYPE
    ]
    return charts.page(
        "Eigenvalues of the preconditioned Schur complement",
        drawn,
        f"{date}; bench/preconditioners.py",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the results; without a file, print them instead of tables",
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the eigenvalues")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--core",
        type=int,
        default=(os.cpu_count() or 1) - 1,
        help="the core to time whole solves on",
    )
    options = parser.parse_args()
    chosen = [part.strip() for part in options.parts.split(",") if part.strip()]
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(PARTS)}")
    result: dict[str, Any] = {
        "machine": machine.describe({}),
        "tolerance": TOLERANCE,
        "claims": CLAIMS,
        "differences": DIFFERENCES,
    }
    make = {
        "study": study,
        "reduction": reduction,
        "polynomial": polynomial,
        "solve": lambda: solve(options.core),
    }
    for part in PARTS:
        if part in chosen:
            result[part] = make[part]()
    say("")
    if options.json == "-":
        print(json.dumps(result, ensure_ascii=False))
        return
    if options.json:
        Path(options.json).write_text(json.dumps(result, ensure_ascii=False) + "\n")
    if options.svg and "study" in result:
        Path(options.svg).write_text(picture(result["study"], result["machine"]["date"][:10]))
    if "study" in result:
        print_study(result["study"])
    print_rest(result)


if __name__ == "__main__":
    main()
