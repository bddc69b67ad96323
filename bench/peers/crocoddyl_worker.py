"""Crocoddyl as a server of solves: a request a line on stdin, an answer a line on stdout, both
JSON. Run by crocoddyl_process.py in an environment of its own.
"""

import gc
import json
import os
import sys
import time

import crocoddyl
import numpy as np
import pinocchio

SOLVERS = {"DDP": crocoddyl.SolverDDP, "FDDP": crocoddyl.SolverFDDP}
PIECES = ("calc", "calcDiff", "backwardPass", "forwardPass")
NEVER = 1e-300  # a threshold for stopping early that is not met


class Shooting:
    """A shooting problem on one thread, its first guess and Crocoddyl's solvers of it. `feasible`:
    whether the guess is a motion.
    """

    def __init__(self, problem, xs, us, feasible):
        self.problem, self.xs, self.us, self.feasible = problem, vectors(xs), vectors(us), feasible
        self.problem.nthreads = 1
        self.solvers = {name: kind(self.problem) for name, kind in SOLVERS.items()}

    def solve(self, method, iterations, stop=NEVER, fresh=False):
        """From the first guess; by the solver at hand or a `fresh` one."""
        solver = SOLVERS[method](self.problem) if fresh else self.solvers[method]
        solver.th_stop = stop
        solver.solve(self.xs, self.us, iterations, self.feasible)
        return solver

    def history(self, method, iterations, stop):
        """Costs before the first iteration and after each, and what is compared after each with the
        threshold for stopping.
        """
        log = crocoddyl.CallbackLogger()
        self.solvers[method].setCallbacks([log])
        before = self.problem.calc(list(self.xs), list(self.us))
        solver = self.solve(method, iterations, stop)
        solver.setCallbacks([])
        return {"costs": [before, *map(float, log.costs)], "stops": list(map(float, log.stops))}

    def pieces(self, method, repeats):
        """Mean microseconds of the parts of an iteration, at the last solution, wall time: all
        evaluations, all derivatives, the backward pass, a roll-out with its costs.
        """
        solver = self.solvers[method]
        solver.computeDirection(True)
        xs, us = vectors(solver.xs), vectors(solver.us)
        calls = {
            "calc": lambda: self.problem.calc(xs, us),
            "calcDiff": lambda: self.problem.calcDiff(xs, us),
            "backwardPass": solver.backwardPass,
            "forwardPass": lambda: solver.forwardPass(1.0),
        }
        taken = dict.fromkeys(PIECES, 0)
        for _ in range(repeats):
            for name in PIECES:
                start = time.perf_counter_ns()
                calls[name]()
                taken[name] += time.perf_counter_ns() - start
        return {name: 1e-3 * spent / repeats for name, spent in taken.items()}


class Arm(Shooting):
    """One shooting problem of a fixed-base robot: Crocoddyl's symplectic Euler, torques as
    controls.
    """

    def __init__(self, urdf, start, goal, weights, steps, dt):
        model = pinocchio.buildModelFromUrdf(urdf)
        self.state = crocoddyl.StateMultibody(model)
        self.actuation = crocoddyl.ActuationModelFull(self.state)
        self.goal = np.array(goal)
        nv = model.nv
        x = np.array(start)
        by_state = np.r_[np.full(nv, weights["q"]), np.full(nv, weights["v"])]
        # Crocoddyl multiplies running costs by the time step; the problem's are per knot
        running = self.action(by_state / dt, weights["u"] / dt, dt)
        final = self.action(np.full(2 * nv, weights["final"]), 0.0, 0.0)
        hold = pinocchio.computeGeneralizedGravity(model, model.createData(), x[: model.nq])
        # the guess holds the start and is therefore feasible
        super().__init__(
            crocoddyl.ShootingProblem(x, [running] * steps, final),
            [x] * (steps + 1),
            [hold] * steps,
            True,
        )

    def action(self, by_state, by_control, dt):
        costs = crocoddyl.CostModelSum(self.state, self.actuation.nu)
        at_goal = crocoddyl.ResidualModelState(self.state, self.goal, self.actuation.nu)
        weighted = crocoddyl.ActivationModelWeightedQuad(by_state)
        costs.addCost("state", crocoddyl.CostModelResidual(self.state, weighted, at_goal), 1.0)
        if by_control:
            effort = crocoddyl.ResidualModelControl(self.state, self.actuation.nu)
            costs.addCost("effort", crocoddyl.CostModelResidual(self.state, effort), by_control)
        dynamics = crocoddyl.DifferentialActionModelFreeFwdDynamics(
            self.state, self.actuation, costs
        )
        # without residuals, which nobody reads: a little faster
        return crocoddyl.IntegratedActionModelEuler(dynamics, dt, False)

    def cost(self, u):
        """Of the trajectory that these controls lead to."""
        us = [np.array(row) for row in u]
        return {"cost": self.problem.calc(self.problem.rollout(us), us)}


def vectors(rows):
    result = crocoddyl.StdVec_VectorXs()
    for row in rows:
        result.append(np.array(row))
    return result


class Server:
    """Answers for shooting problems of one kind."""

    def __init__(self, kind):
        self.kind, self.opened = kind, []

    def open(self, **task):
        self.opened.append(self.kind(**task))
        return {"problem": len(self.opened) - 1}

    def history(self, problem, method, iterations, stop):
        return self.opened[problem].history(method, iterations, stop)

    def cost(self, problem, **trajectory):
        return self.opened[problem].cost(**trajectory)

    def numbers(self, problem):
        return self.opened[problem].numbers()

    def body(self, problem):
        return self.opened[problem].body()

    def pieces(self, problem, method, repeats):
        return self.opened[problem].pieces(method, repeats)

    def time(self, method, work, repeats, fresh=False):
        """Seconds of `repeats` times all of `work`: problems, each with its most iterations and its
        threshold for stopping, 0 for never.
        """
        gc.collect()
        gc.disable()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(repeats):
            for problem, iterations, stop in work:
                self.opened[problem].solve(method, iterations, stop or NEVER, fresh)
        taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
        gc.enable()
        return taken


def serve(kind):
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    server = Server(kind)
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(getattr(server, request.pop("do"))(**request)) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(Arm)
