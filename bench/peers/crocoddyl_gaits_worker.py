"""Crocoddyl as a server of its own gait problems: crocoddyl.utils' quadrupeds and biped, with the
arguments of its example unless told otherwise. Run by crocoddyl_process.py in an environment of its
own.
"""

import crocoddyl
import example_robot_data
import numpy as np
import pinocchio
from crocoddyl.utils.biped import SimpleBipedGaitProblem
from crocoddyl.utils.quadruped import SimpleQuadrupedalGaitProblem
from crocoddyl_worker import Shooting, serve

KINDS = {  # its builder of problems, the posture to start from, feet in the builder's order
    "hyq": (SimpleQuadrupedalGaitProblem, "standing", ("lf_foot", "rf_foot", "lh_foot", "rh_foot")),
    "anymal": (
        SimpleQuadrupedalGaitProblem,
        "standing",
        ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT"),
    ),
    "talos_legs": (SimpleBipedGaitProblem, "half_sitting", ("right_sole_link", "left_sole_link")),
}
QUADRUPED = {  # Crocoddyl's examples/quadrupedal_gaits.py
    "walking": {
        "stepLength": 0.25,
        "stepHeight": 0.15,
        "timeStep": 1e-2,
        "stepKnots": 25,
        "supportKnots": 2,
    },
    "trotting": {
        "stepLength": 0.15,
        "stepHeight": 0.1,
        "timeStep": 1e-2,
        "stepKnots": 25,
        "supportKnots": 2,
    },
    "pacing": {
        "stepLength": 0.15,
        "stepHeight": 0.1,
        "timeStep": 1e-2,
        "stepKnots": 25,
        "supportKnots": 5,
    },
    "bounding": {
        "stepLength": 0.15,
        "stepHeight": 0.1,
        "timeStep": 1e-2,
        "stepKnots": 25,
        "supportKnots": 5,
    },
    "jumping": {
        "jumpHeight": 0.15,
        "jumpLength": (0.0, 0.3, 0.0),
        "timeStep": 1e-2,
        "groundKnots": 10,
        "flyingKnots": 20,
    },
}
BIPED = {  # Crocoddyl's examples/bipedal_walk.py
    "walking": {
        "stepLength": 0.6,
        "stepHeight": 0.1,
        "timeStep": 0.03,
        "stepKnots": 35,
        "supportKnots": 10,
    },
}
EXAMPLE = {"hyq": QUADRUPED, "anymal": QUADRUPED, "talos_legs": BIPED}
MODELS = {}


class Gait(Shooting):
    """A gait of a robot. `command` replaces some of the example's arguments, `start` is added to
    the joints of the standing posture.
    """

    def __init__(self, robot, gait, command=None, start=None):
        if robot not in MODELS:
            MODELS[robot] = example_robot_data.load(robot).model
        self.model = MODELS[robot]
        builder, posture, feet = KINDS[robot]
        q = self.model.referenceConfigurations[posture].copy()
        q[7:] += 0.0 if start is None else np.array(start)
        x = np.r_[q, np.zeros(self.model.nv)]
        asked = EXAMPLE[robot][gait] | (command or {})
        if "jumpLength" in asked:
            asked["jumpLength"] = np.array(asked["jumpLength"])  # which the constructor changes
        # a new one each time: it remembers that it took its first step
        fresh = builder(self.model, *feet)
        problem = getattr(fresh, f"create{gait.capitalize()}Problem")(x, **asked)
        super().__init__(
            problem, [x] * (problem.T + 1), problem.quasiStatic([x] * problem.T), False
        )

    def cost(self, x, u):
        """Of a trajectory, and its largest gap f(x, u) ⊖ x⁺."""
        knots = list(self.problem.runningModels)
        xs, us = (
            [np.array(row) for row in x],
            [np.array(row)[: k.nu] for row, k in zip(u, knots, strict=True)],
        )
        cost = self.problem.calc(xs, us)
        state = self.problem.terminalModel.state
        gaps = [
            state.diff(x, data.xnext)
            for x, data in zip(xs[1:], self.problem.runningDatas, strict=True)
        ]
        return {"cost": cost, "gap": float(np.abs(gaps).max())}

    def numbers(self):
        """The problem as numbers, knot by knot."""
        return {
            "x0": self.problem.x0.tolist(),
            "knots": [
                self.knot(m) for m in [*self.problem.runningModels, self.problem.terminalModel]
            ],
        }

    def knot(self, model):
        def frames(touching):
            return [
                self.frame(getattr(item, "contact", None) or item.impulse)
                for item in touching.values()
            ]

        if isinstance(model, crocoddyl.ActionModelImpulseFwdDynamics):
            dynamics = {
                "impulse": frames(model.impulses.impulses.todict()),
                "damping": model.JMinvJt_damping,
                "restitution": model.r_coeff,
            }
        else:
            dynamics = {"dt": model.dt}
            model = model.differential
            dynamics["contacts"] = frames(model.contacts.contacts.todict())
        costs = [
            self.term(name, item)
            for name, item in sorted(model.costs.costs.todict().items())
            if item.active
        ]
        return dynamics | {"costs": costs}

    def term(self, name, item):
        residual, activation = item.cost.residual, item.cost.activation
        kind = type(residual).__name__.removeprefix("ResidualModel")
        found = {"name": name, "kind": kind, "weight": item.weight}
        if hasattr(residual, "id"):
            found["frame"] = self.frame(residual)
        if kind in ("ContactFrictionCone", "ContactWrenchCone"):
            found["A"] = residual.reference.A.tolist()
        else:
            found["reference"] = getattr(
                residual.reference, "homogeneous", residual.reference
            ).tolist()
        if isinstance(activation, crocoddyl.ActivationModelWeightedQuad):
            found["weights"] = activation.weights.tolist()
        elif isinstance(activation, crocoddyl.ActivationModelQuadraticBarrier):
            found |= {
                "lower": activation.bounds.lb.tolist(),
                "upper": activation.bounds.ub.tolist(),
            }
        return found

    def body(self):
        """The robot as numbers: joints with what they carry, and frames."""
        m = self.model
        joints = [
            {
                "name": m.names[k],
                "kind": m.joints[k].shortname(),
                "parent": m.parents[k],
                "placement": m.jointPlacements[k].homogeneous.tolist(),
                "inertia": m.inertias[k].toDynamicParameters().tolist(),
                "armature": m.armature[
                    m.joints[k].idx_v : m.joints[k].idx_v + m.joints[k].nv
                ].tolist(),
            }
            for k in range(1, m.njoints)
        ]
        frames = [
            {"name": f.name, "joint": f.parentJoint, "placement": f.placement.homogeneous.tolist()}
            for f in m.frames
            if f.type == pinocchio.FrameType.BODY
        ]
        return {"joints": joints, "frames": frames}

    def frame(self, of):
        return self.model.frames[of.id].name


if __name__ == "__main__":
    serve(Gait)
