"""Crocoddyl as a server of plans for the figure eight: a request a line on stdin, an answer a line
on stdout, both JSON, arrays as base64. Run by crocoddyl_mpc.py.
"""

import base64
import gc
import json
import os
import sys
import time

import crocoddyl
import numpy as np
import pinocchio


class Tracker:
    """One shooting problem whose start and goals change: symplectic Euler, torques as controls, one
    thread; FDDP, or BoxFDDP where torques are bounded.
    """

    def __init__(self, urdf, frame, point, gravity, weights, steps, dt, bound):
        model = pinocchio.buildModelFromUrdf(urdf)
        model.gravity.linear = np.array([0.0, 0.0, -gravity])
        link = model.getFrameId(frame)
        placement = model.frames[link].placement * pinocchio.SE3(np.eye(3), np.array(point))
        self.tip = model.addFrame(
            pinocchio.Frame(
                "tip", model.frames[link].parentJoint, link, placement, pinocchio.FrameType.OP_FRAME
            )
        )
        self.state, self.gravity, self.bound = crocoddyl.StateMultibody(model), gravity, bound
        self.actuation = crocoddyl.ActuationModelFull(self.state)
        w = weights
        # Crocoddyl multiplies running costs by the time step; the problem's are per knot
        pairs = [self.action(w["point"] / dt, w["v"] / dt, w["u"] / dt, dt) for _ in range(steps)]
        pairs.append(self.action(w["final_point"], w["final_v"], 0.0, 0.0))
        self.goals = [goal for _, goal in pairs]
        models = [action for action, _ in pairs]
        self.problem = crocoddyl.ShootingProblem(self.state.zero(), models[:-1], models[-1])
        self.problem.nthreads = 1
        self.solver = (crocoddyl.SolverFDDP if bound is None else crocoddyl.SolverBoxFDDP)(
            self.problem
        )
        self.solver.th_stop = 1e-300  # as many iterations as asked for

    def action(self, by_point, by_velocity, by_control, dt):
        nu, nv = self.actuation.nu, self.state.nv
        costs = crocoddyl.CostModelSum(self.state, nu)
        goal = crocoddyl.ResidualModelFrameTranslation(self.state, self.tip, np.zeros(3), nu)
        costs.addCost("point", crocoddyl.CostModelResidual(self.state, goal), by_point)
        still = crocoddyl.ActivationModelWeightedQuad(np.r_[np.zeros(nv), np.ones(nv)])
        at_rest = crocoddyl.ResidualModelState(self.state, self.state.zero(), nu)
        costs.addCost(
            "velocity", crocoddyl.CostModelResidual(self.state, still, at_rest), by_velocity
        )
        if by_control:
            effort = (
                crocoddyl.ResidualModelControlGrav
                if self.gravity
                else crocoddyl.ResidualModelControl
            )
            costs.addCost(
                "effort",
                crocoddyl.CostModelResidual(self.state, effort(self.state, nu)),
                by_control,
            )
        dynamics = crocoddyl.DifferentialActionModelFreeFwdDynamics(
            self.state, self.actuation, costs
        )
        action = crocoddyl.IntegratedActionModelEuler(dynamics, dt, False)
        if self.bound is not None:
            action.u_lb, action.u_ub = -np.array(self.bound), np.array(self.bound)
        return action, goal

    def plan(self, start, goals, x, u, gains, iterations):
        """Rolls the shifted plan out, with its feedback, from the start, and improves it."""
        clocks = [clock()]
        for residual, goal in zip(self.goals, goals, strict=True):
            residual.reference = goal
        self.problem.x0 = start
        xs, us = self.follow(start, x, u, gains)
        clocks.append(clock())
        # the same work in C++: what a controller that is all C++ would need
        self.problem.rollout(us)
        clocks.append(clock())
        self.solver.solve(xs, us, iterations, True)
        clocks.append(clock())
        wall, cpu = np.diff(clocks, axis=0).T.tolist()
        answer = {
            "cost": float(self.solver.cost),
            "iterations": int(self.solver.iter) + 1,
            "wall": wall,
            "cpu": cpu,
        }
        K = -np.array(list(self.solver.K))
        return answer | {
            "x": packed(np.array(list(self.solver.xs))),
            "u": packed(np.array(list(self.solver.us))),
            "gains": packed(K),
        }

    def follow(self, start, x, u, gains):
        xs, us = crocoddyl.StdVec_VectorXs(), crocoddyl.StdVec_VectorXs()
        now = start
        xs.append(now)
        for k, (model, data) in enumerate(
            zip(self.problem.runningModels, self.problem.runningDatas, strict=True)
        ):
            control = u[k] + gains[k] @ (now - x[k])
            if self.bound is not None:
                control = np.clip(control, model.u_lb, model.u_ub)
            us.append(control)
            model.calc(data, now, control)
            now = data.xnext.copy()
            xs.append(now)
        return xs, us


def clock():
    return time.perf_counter(), time.process_time()


def packed(array):
    return {
        "shape": array.shape,
        "data": base64.b64encode(np.ascontiguousarray(array, dtype=float).tobytes()).decode(),
    }


def unpacked(value):
    if isinstance(value, dict) and "data" in value:
        return np.frombuffer(base64.b64decode(value["data"])).reshape(value["shape"]).copy()
    return value


def main():
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    tracker = None
    gc.disable()
    for line in sys.stdin:
        request = {key: unpacked(value) for key, value in json.loads(line).items()}
        if request.pop("do") == "open":
            tracker = Tracker(**request)
            answer = {}
        else:
            answer = tracker.plan(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
