"""Which number formats of the gradient still solve a trajectory problem (the study of Plancher
2022, Figure C.1).

    python bench/data_types.py [--quick] [--json bench/results/data_types.json] [--plot
    bench/results/data_types.svg]

The arm crosses its workspace (Plancher 2022, section 4.3.2; weights of the published code,
semi-implicit Euler). A plain iLQR runs in float64, but the gradient of forward dynamics comes from
the Program that the circuit computes, in the format under study: q, v, a and M⁻¹ are rounded to it
on the way in. float32 and float64 run the same Program. A type passes if it reaches the cost of
float64 within 0.1 %.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import numpy as np

import rigidgrad as rg
from rigidgrad.fixed import Fixed
from rigidgrad.fixed.ranges import constant_bits
from rigidgrad.fixed.vector import run
from rigidgrad.program.nesting import flatten, nest
from rigidgrad.program.program import Program
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets.verilog.lower import Delays, lower

STEPS, H = 63, 0.5 / 63
START = math.pi * np.array([-0.5, 0.25, 0.167, -0.167, 0.125, 0.167, 0.5])
GOAL = math.pi * np.array([0.0, 0.0, 0.0, -0.25, 0.0, 0.25, 0.5])
Q = np.concatenate([np.full(7, 0.1), np.full(7, 0.001)])
R, Q_FINAL = 1e-4, 1000.0
STEP_SIZES = 0.5 ** np.arange(10)
ITERATIONS, TOLERANCE, SAME = 60, 1e-7, 1e-3

Gradient = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def gradient_in(format: Fixed, program: Program) -> Gradient:
    def gradient(
        q: np.ndarray, v: np.ndarray, a: np.ndarray, minv: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        d = run(
            program,
            format,
            {"sin": np.sin(q), "cos": np.cos(q), "v": v, "a": a, "minv": minv.reshape(len(q), -1)},
        )
        return d["dq"], d["dv"]

    return gradient


def gradient_of_floats(dtype: type, program: Program) -> Gradient:
    def gradient(
        q: np.ndarray, v: np.ndarray, a: np.ndarray, minv: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        given = {
            "sin": np.sin(q),
            "cos": np.cos(q),
            "v": v,
            "a": a,
            "minv": minv.reshape(len(q), -1),
        }
        columns = {
            name: nest([np.ascontiguousarray(c, dtype) for c in given[name].T], shape)
            for name, shape in program.inputs.items()
        }
        flat = np.stack(
            [np.broadcast_to(x, (len(q),)) for x in flatten(program.interpret(columns))], axis=1
        ).astype(np.float64)
        return flat[:, :49].reshape(-1, 7, 7), flat[:, 49:].reshape(-1, 7, 7)

    return gradient


class Arm:
    """Dynamics and cost of the problem."""

    def __init__(self) -> None:
        self.robot = rg.load("iiwa14")
        self.goal = np.concatenate([GOAL, np.zeros(7)])
        self.start = np.concatenate([START, np.zeros(7)])

    def step(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        v = x[..., 7:] + H * self.robot.aba(x[..., :7], x[..., 7:], u)
        return np.concatenate([x[..., :7] + H * v, v], axis=-1)

    def cost(self, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        e = x - self.goal
        running = 0.5 * np.sum(Q * e[..., :-1, :] ** 2, axis=(-1, -2)) + 0.5 * R * np.sum(
            u**2, axis=(-1, -2)
        )
        return running + 0.5 * Q_FINAL * np.sum(e[..., -1, :] ** 2, axis=-1)

    def linearised(
        self, x: np.ndarray, u: np.ndarray, gradient: Gradient
    ) -> tuple[np.ndarray, np.ndarray]:
        q, v = x[:-1, :7], x[:-1, 7:]
        a, minv = self.robot.aba(q, v, u), self.robot.minv(q)
        dq, dv = gradient(q, v, a, minv)
        rate = np.concatenate([H * dq, np.eye(7) + H * dv], axis=2)
        A = np.concatenate(
            [
                np.concatenate([np.broadcast_to(np.eye(7), dq.shape), np.zeros_like(dq)], axis=2)
                + H * rate,
                rate,
            ],
            axis=1,
        )
        B = np.concatenate([H * H * minv, H * minv], axis=1)
        return A, B


def solve(arm: Arm, gradient: Gradient) -> dict[str, Any]:
    """iLQR with a line search and a regularised backward pass, from holding the start against
    gravity.
    """
    x = np.broadcast_to(arm.start, (STEPS + 1, 14)).copy()
    u = np.broadcast_to(arm.robot.gravity_torque(START), (STEPS, 7)).copy()
    cost, costs, damping = float(arm.cost(x, u)), [], 0.0
    costs.append(cost)
    status = "iterations ran out"
    for _ in range(ITERATIONS):
        A, B = arm.linearised(x, u, gradient)
        passed = backward(arm, x, u, A, B, damping)
        if passed is None:
            damping = max(10 * damping, 1e-6)
            if damping > 1e6:
                status = "no descent"
                break
            continue
        new_x, new_u, new_cost = line_search(arm, x, u, *passed)
        if not new_cost < cost:
            damping = max(10 * damping, 1e-6)
            if damping > 1e3:
                status = "no descent"
                break
            continue
        done = cost - new_cost < TOLERANCE * cost
        x, u, cost, damping = new_x, new_u, new_cost, damping / 10 if damping > 1e-7 else 0.0
        costs.append(cost)
        if done:
            status = "converged"
            break
    return {"cost": cost, "iterations": len(costs) - 1, "status": status, "costs": costs}


def backward(
    arm: Arm, x: np.ndarray, u: np.ndarray, A: np.ndarray, B: np.ndarray, damping: float
) -> tuple[np.ndarray, np.ndarray] | None:
    Vx, Vxx = Q_FINAL * (x[-1] - arm.goal), Q_FINAL * np.eye(14)
    k, K = np.zeros((STEPS, 7)), np.zeros((STEPS, 7, 14))
    for t in reversed(range(STEPS)):
        Qx, Qu = Q * (x[t] - arm.goal) + A[t].T @ Vx, R * u[t] + B[t].T @ Vx
        Qxx, Quu, Qux = (
            np.diag(Q) + A[t].T @ Vxx @ A[t],
            R * np.eye(7) + B[t].T @ Vxx @ B[t],
            B[t].T @ Vxx @ A[t],
        )
        try:
            np.linalg.cholesky(Quu + damping * np.eye(7))
        except np.linalg.LinAlgError:
            return None
        k[t], K[t] = (
            np.linalg.solve(Quu + damping * np.eye(7), -Qu),
            np.linalg.solve(Quu + damping * np.eye(7), -Qux),
        )
        Vx = Qx + K[t].T @ Quu @ k[t] + K[t].T @ Qu + Qux.T @ k[t]
        Vxx = Qxx + K[t].T @ Quu @ K[t] + K[t].T @ Qux + Qux.T @ K[t]
        Vxx = 0.5 * (Vxx + Vxx.T)
    return (k, K) if np.all(np.isfinite(k)) and np.all(np.isfinite(K)) else None


def line_search(
    arm: Arm, x: np.ndarray, u: np.ndarray, k: np.ndarray, K: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """All step sizes at once; the cheapest trajectory."""
    n = len(STEP_SIZES)
    new_x, new_u = np.zeros((n, STEPS + 1, 14)), np.zeros((n, STEPS, 7))
    new_x[:, 0] = x[0]
    with np.errstate(all="ignore"):
        for t in range(STEPS):
            new_u[:, t] = u[t] + STEP_SIZES[:, None] * k[t] + (new_x[:, t] - x[t]) @ K[t].T
            new_x[:, t + 1] = arm.step(new_x[:, t], new_u[:, t])
        costs = np.nan_to_num(arm.cost(new_x, new_u), nan=np.inf)
    best = int(np.argmin(costs))
    return new_x[best], new_u[best], float(costs[best])


def formats(quick: bool) -> list[Fixed]:
    totals = (16, 24, 32) if quick else (12, 16, 18, 20, 24, 28, 32, 36, 40)
    integers = (12, 16) if quick else (6, 8, 10, 11, 12, 13, 14, 16, 18, 20, 24)
    published = Fixed(12, 5)  # the narrowest that the dissertation names
    return [
        published,
        *(Fixed(i, total - i) for total in totals for i in integers if 1 <= total - i <= 30),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    results = Path(__file__).parent / "results"
    parser.add_argument("--json", type=Path, default=results / "data_types.json")
    parser.add_argument("--plot", type=Path, default=results / "data_types.svg")
    arguments = parser.parse_args()
    arm = Arm()
    program = lower(
        program_of(arm.robot.model, "fused_gradient"), trig="inputs", lanes=16, delays=Delays()
    )
    rows = []
    for name, dtype in (("float64", np.float64), ("float32", np.float32)):
        rows.append({"type": name} | solve(arm, gradient_of_floats(dtype, program)))
        print(
            rows[-1]["type"],
            rows[-1]["cost"],
            rows[-1]["iterations"],
            rows[-1]["status"],
            flush=True,
        )
    target = rows[0]["cost"]
    for plain in formats(arguments.quick):
        fixed = Fixed(
            plain.integer_bits,
            plain.fraction_bits,
            constant_bits=constant_bits(program, plain.width),
        )
        found = {
            "type": str(plain),
            "integer_bits": plain.integer_bits,
            "fraction_bits": plain.fraction_bits,
        } | solve(arm, gradient_in(fixed, program))
        rows.append(found)
        print(found["type"], found["cost"], found["iterations"], found["status"], flush=True)
    for row in rows:
        row["same"] = bool(row["cost"] <= target * (1 + SAME))
        row["to_same"] = next(
            (k for k, c in enumerate(row["costs"]) if c <= target * (1 + SAME)), None
        )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(
        json.dumps({"machine": machine.describe({}), "optimum": target, "types": rows}, indent=1)
        + "\n"
    )
    arguments.plot.write_text(plot(rows))


def plot(rows: list[dict[str, Any]]) -> str:
    """Formats by integer and fraction bits: green where the cost is that of float64, with the
    iterations it took; orange elsewhere.
    """
    fixed = [r for r in rows if "integer_bits" in r]
    xs, ys = sorted({r["fraction_bits"] for r in fixed}), sorted({r["integer_bits"] for r in fixed})
    cell, left, top = 34, 60, 50
    width, height = left + cell * len(xs) + 20, top + cell * len(ys) + 60
    floats = ", ".join(
        f"{r['type']}: {r['to_same']} iterations" for r in rows if "integer_bits" not in r
    )
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            ' font-family="sans-serif" font-size="11">'
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        (
            '<text x="10" y="18">Iterations to the cost of float64 within 0.1 % (green), or not'
            " reached (orange)</text>"
        ),
        f'<text x="10" y="34" fill="#666666">{floats}</text>',
    ]
    for r in fixed:
        x, y = (
            left + cell * xs.index(r["fraction_bits"]),
            top + cell * (len(ys) - 1 - ys.index(r["integer_bits"])),
        )
        colour = "#7bb661" if r["same"] else "#e69138"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" fill="{colour}"/>'
        )
        parts.append(
            f'<text x="{x + cell / 2 - 1}" y="{y + cell / 2 + 4}"'
            f' text-anchor="middle">{r["to_same"] if r["same"] else ""}</text>'
        )
    for k, f in enumerate(xs):
        parts.append(
            f'<text x="{left + cell * k + cell / 2}" y="{top + cell * len(ys) + 16}"'
            f' text-anchor="middle">{f}</text>'
        )
    for k, i in enumerate(ys):
        parts.append(
            f'<text x="{left - 8}" y="{top + cell * (len(ys) - 1 - k) + cell / 2 + 4}"'
            f' text-anchor="end">{i}</text>'
        )
    parts.append(
        f'<text x="{left}" y="{top + cell * len(ys) + 36}">fraction bits; upwards: integer bits,'
        " sign included</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
