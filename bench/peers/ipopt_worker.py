"""Solves cases of `constrained_cases.py` with IPOPT. Run by an interpreter that has CasADi: reads
{"number", "seed", "x", "u"} a line, writes what it found.

With x and u it begins there, and stays there if that is an optimum; otherwise with the case's own
first guess.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import casadi as cs
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from constrained_cases import Case, case

MATH = SimpleNamespace(sin=cs.sin, cos=cs.cos, sqrt=cs.sqrt)
OPTIONS = {
    "ipopt.print_level": 0,
    "print_time": 0,
    "ipopt.sb": "yes",
    "ipopt.tol": 1e-9,
    "ipopt.constr_viol_tol": 1e-9,
    "ipopt.max_iter": 2000,
}
# an interior point method first goes away from bounds, and so from an optimum where it begins,
# perhaps to another; with a small barrier it does not
STAY = {
    "ipopt.mu_init": 1e-9,
    **dict.fromkeys(
        [
            f"ipopt.{what}"
            for what in ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac")
        ],
        1e-9,
    ),
}


def step(c: Case, x, u):
    def f(x):
        return cs.vertcat(
            *c.dynamics([x[i] for i in range(c.nx)], [u[i] for i in range(c.nu)], MATH)
        )

    h = c.dt
    if c.integrator == "euler":
        return x + h * f(x)
    k1 = f(x)
    k2 = f(x + h / 2 * k1)
    k3 = f(x + h / 2 * k2)
    k4 = f(x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def uses_control(c: Case, held) -> bool:
    x, u = cs.SX.sym("x", c.nx), cs.SX.sym("u", c.nu)
    r = cs.vertcat(*held.function([x[i] for i in range(c.nx)], [u[i] for i in range(c.nu)], MATH))
    return cs.depends_on(r, u)


class Program:
    """A case as a nonlinear program over all states and controls."""

    def __init__(self, c: Case):
        self.case = c
        x, u = cs.SX.sym("x", c.nx), cs.SX.sym("u", c.nu)
        parts, controls = [x[i] for i in range(c.nx)], [u[i] for i in range(c.nu)]
        F = cs.Function("F", [x, u], [step(c, x, u)])
        X, U = cs.MX.sym("X", c.nx, c.steps + 1), cs.MX.sym("U", c.nu, c.steps)

        def cost(weight, effort, charge):
            l = cs.dot(cs.DM(weight), (x - c.goal) ** 2) / 2 + cs.dot(cs.DM(effort), u**2) / 2
            return l + charge * c.value(parts, controls, MATH) if c.value and charge else l

        running = cs.Function("l", [x, u], [cost(c.weight, c.effort, c.charge)])
        last = cs.Function("l", [x, u], [cost(c.final, 0 * c.effort, 0.0)])
        J = cs.sum2(running.map(c.steps)(X[:, :-1], U)) + last(X[:, -1], np.zeros(c.nu))
        g, low, high = (
            [X[:, 0] - c.start, cs.vec(F.map(c.steps)(X[:, :-1], U) - X[:, 1:])],
            [np.zeros(c.nx * (c.steps + 1))],
            [np.zeros(c.nx * (c.steps + 1))],
        )
        for h in c.held:
            r = cs.Function("r", [x, u], [cs.vertcat(*h.function(parts, controls, MATH))])
            size = r.size1_out(0)
            if h.at == "final":
                g.append(r(X[:, -1], np.zeros(c.nu)))
                count = 1
            elif uses_control(c, h):
                g.append(cs.vec(r.map(c.steps)(X[:, :-1], U)))
                count = c.steps
            else:
                g.append(cs.vec(r.map(c.steps)(X[:, 1:], cs.DM.zeros(c.nu, c.steps))))
                count = c.steps
            low.append(np.tile(np.broadcast_to(h.lower, size), count))
            high.append(np.tile(np.broadcast_to(h.upper, size), count))
        z = cs.vertcat(cs.vec(X), cs.vec(U))
        program = {"x": z, "f": J, "g": cs.vertcat(*g)}
        self.solver, self.staying = (
            cs.nlpsol("s", "ipopt", program, options) for options in (OPTIONS, OPTIONS | STAY)
        )
        self.F, (self.low, self.high) = F, (np.concatenate(low), np.concatenate(high))
        free = np.full(c.nx * (c.steps + 1), np.inf)
        torque = c.torque or (np.full(c.nu, -np.inf), np.full(c.nu, np.inf))
        self.bounds = (
            np.r_[-free, np.tile(torque[0], c.steps)],
            np.r_[free, np.tile(torque[1], c.steps)],
        )

    def first(self):
        c = self.case
        u = np.zeros((c.steps, c.nu)) if c.guess is None else c.guess
        x = [c.start]
        for k in range(c.steps):
            x.append(np.array(self.F(x[-1], u[k])).ravel())
        return np.array(x), u

    def solve(self, x, u, stay: bool):
        c, solver = self.case, self.staying if stay else self.solver
        r = solver(
            x0=np.r_[np.ravel(x), np.ravel(u)],
            lbx=self.bounds[0],
            ubx=self.bounds[1],
            lbg=self.low,
            ubg=self.high,
        )
        z, stats = np.array(r["x"]).ravel(), solver.stats()
        count = c.nx * (c.steps + 1)
        return {
            "cost": float(r["f"]),
            "status": stats["return_status"],
            "iterations": stats["iter_count"],
            "x": z[:count].reshape(-1, c.nx).tolist(),
            "u": z[count:].reshape(-1, c.nu).tolist(),
        }


def main() -> None:
    programs: dict[tuple, Program] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        key = asked["number"], asked["seed"]
        program = programs.setdefault(key, Program(case(*key)))
        start = (np.array(asked["x"]), np.array(asked["u"])) if "x" in asked else program.first()
        print(json.dumps(program.solve(*start, stay="x" in asked)), flush=True)


if __name__ == "__main__":
    main()
