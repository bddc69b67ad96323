"""Crocoddyl as a server of its own gait problems: crocoddyl.utils' quadrupeds, with the arguments of its example unless told otherwise. Run by crocoddyl_process.py in an environment of its own."""

import crocoddyl
import example_robot_data
import numpy as np
from crocoddyl.utils.quadruped import SimpleQuadrupedalGaitProblem
from crocoddyl_worker import Shooting, serve

FEET = {
    "hyq": ("lf_foot", "rf_foot", "lh_foot", "rh_foot"),
    "anymal": ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"),
}
EXAMPLE = {  # Crocoddyl's examples/quadrupedal_gaits.py
    "walking": {"stepLength": 0.25, "stepHeight": 0.15, "timeStep": 1e-2, "stepKnots": 25, "supportKnots": 2},
    "trotting": {"stepLength": 0.15, "stepHeight": 0.1, "timeStep": 1e-2, "stepKnots": 25, "supportKnots": 2},
    "pacing": {"stepLength": 0.15, "stepHeight": 0.1, "timeStep": 1e-2, "stepKnots": 25, "supportKnots": 5},
    "bounding": {"stepLength": 0.15, "stepHeight": 0.1, "timeStep": 1e-2, "stepKnots": 25, "supportKnots": 5},
    "jumping": {"jumpHeight": 0.15, "jumpLength": (0.0, 0.3, 0.0), "timeStep": 1e-2, "groundKnots": 10, "flyingKnots": 20},
}
MODELS = {}


class Gait(Shooting):
    """A gait of a robot. `command` replaces some of the example's arguments, `start` is added to the joints of the standing posture."""

    def __init__(self, robot, gait, command=None, start=None):
        if robot not in MODELS:
            MODELS[robot] = example_robot_data.load(robot).model
        self.model = MODELS[robot]
        q = self.model.referenceConfigurations["standing"].copy()
        q[7:] += 0.0 if start is None else np.array(start)
        x = np.r_[q, np.zeros(self.model.nv)]
        asked = EXAMPLE[gait] | (command or {})
        if "jumpLength" in asked:
            asked["jumpLength"] = np.array(asked["jumpLength"])  # which the constructor changes
        kinds = SimpleQuadrupedalGaitProblem(self.model, *FEET[robot])  # a new one each time: it remembers that it took its first step
        problem = getattr(kinds, f"create{gait.capitalize()}Problem")(x, **asked)
        super().__init__(problem, [x] * (problem.T + 1), problem.quasiStatic([x] * problem.T), False)

    def cost(self, x, u):
        """Of a trajectory, and its largest gap f(x, u) ⊖ x⁺; then of the roll-out of its controls with no feedback."""
        knots = list(self.problem.runningModels)
        xs, us = [np.array(row) for row in x], [np.array(row)[: k.nu] for row, k in zip(u, knots, strict=True)]
        cost = self.problem.calc(xs, us)
        state = self.problem.terminalModel.state
        gaps = [state.diff(x, data.xnext) for x, data in zip(xs[1:], self.problem.runningDatas, strict=True)]
        return {"cost": cost, "gap": float(np.abs(gaps).max()), "open_loop": self.problem.calc(self.problem.rollout(us), us)}

    def numbers(self):
        """The problem as numbers, knot by knot."""
        return {"x0": self.problem.x0.tolist(), "knots": [self.knot(m) for m in [*self.problem.runningModels, self.problem.terminalModel]]}

    def knot(self, model):
        def frames(touching):
            return [self.frame(getattr(item, "contact", None) or item.impulse) for item in touching.values()]

        if isinstance(model, crocoddyl.ActionModelImpulseFwdDynamics):
            dynamics = {"impulse": frames(model.impulses.impulses.todict()), "damping": model.JMinvJt_damping, "restitution": model.r_coeff}
        else:
            dynamics = {"dt": model.dt}
            model = model.differential
            dynamics["contacts"] = frames(model.contacts.contacts.todict())
        costs = [self.term(name, item) for name, item in sorted(model.costs.costs.todict().items()) if item.active]
        return dynamics | {"costs": costs}

    def term(self, name, item):
        residual, activation = item.cost.residual, item.cost.activation
        kind = type(residual).__name__.removeprefix("ResidualModel")
        found = {"name": name, "kind": kind, "weight": item.weight}
        if hasattr(residual, "id"):
            found["frame"] = self.frame(residual)
        if kind == "ContactFrictionCone":
            found["A"] = residual.reference.A.tolist()
        else:
            found["reference"] = residual.reference.tolist()
        if isinstance(activation, crocoddyl.ActivationModelWeightedQuad):
            found["weights"] = activation.weights.tolist()
        elif isinstance(activation, crocoddyl.ActivationModelQuadraticBarrier):
            found |= {"lower": activation.bounds.lb.tolist(), "upper": activation.bounds.ub.tolist()}
        return found

    def frame(self, of):
        return self.model.frames[of.id].name


if __name__ == "__main__":
    serve(Gait)
