"""Inverse kinematics by mink, pink and OptIK, in an environment of their own: one line of JSON
asks, one answers.

A robot comes as URDF without shapes. mink and pink have no search: from a start, steps of half a
second are taken until both errors are below 1e-6, at most `STEPS`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time

import mink
import mujoco
import numpy as np
import optik
import pink
import pinocchio as pin

STEPS, NEAR = 100, 1e-6
MUJOCO = (
    '<mujoco><compiler fusestatic="false" discardvisual="true" balanceinertia="true"'
    ' boundmass="1e-6" boundinertia="1e-9"/></mujoco>'
)


class Mink:
    def __init__(self, urdf: str, frame: str, names: list[str], weight: float):
        body = urdf.index(">", urdf.index("<robot")) + 1
        self.model = mujoco.MjModel.from_xml_string(urdf[:body] + MUJOCO + urdf[body:])
        self.order = [self.model.joint(name).qposadr[0] for name in names]
        self.now = mink.Configuration(self.model)
        self.task = mink.FrameTask(
            frame_name=frame, frame_type="body", position_cost=1.0, orientation_cost=1.0
        )
        self.posture = mink.PostureTask(self.model, cost=weight**0.5)
        self.velocity = None

    def limits(self, fastest: list[float], names: list[str]) -> None:
        limit = mink.VelocityLimit(self.model, dict(zip(names, fastest, strict=True)))
        self.velocity = [mink.ConfigurationLimit(self.model, gain=1.0), limit]

    def begin(self, q: list[float]) -> None:
        place = np.zeros(self.model.nq)
        place[self.order] = q
        self.now.update(place)
        self.posture.set_target(place)

    def aim(self, T: np.ndarray) -> None:
        self.task.set_target(mink.SE3.from_matrix(T))

    def step(self, dt: float, limited: bool) -> None:
        tasks, limits = (
            ([self.task, self.posture], self.velocity) if limited else ([self.task], None)
        )
        v = mink.solve_ik(self.now, tasks, dt, solver="daqp", damping=1e-8, limits=limits)
        self.now.integrate_inplace(v, dt)

    def begin_example(self, q: list[float], posture: float) -> None:
        self.task.lm_damping = 1.0
        self.posture = mink.PostureTask(self.model, cost=posture)
        self.begin(q)

    def step_example(self, dt: float, damping: float) -> None:
        tasks = [self.task, self.posture]
        v = mink.solve_ik(self.now, tasks, dt, solver="daqp", damping=damping)
        self.now.integrate_inplace(v, dt)

    def near(self) -> bool:
        return bool(np.abs(self.task.compute_error(self.now)).max() < NEAR)

    def q(self) -> list[float]:
        return self.now.q[self.order].tolist()


class Pink:
    def __init__(self, urdf: str, frame: str, names: list[str], weight: float):
        self.model = pin.buildModelFromXML(urdf)
        self.data = self.model.createData()
        self.now = pink.Configuration(self.model, self.data, pin.neutral(self.model))
        self.task = pink.tasks.FrameTask(frame, position_cost=1.0, orientation_cost=1.0)
        self.posture = pink.tasks.PostureTask(cost=weight**0.5)

    def limits(self, fastest: list[float], names: list[str]) -> None:
        self.model.velocityLimit[:] = fastest
        self.now = pink.Configuration(self.model, self.data, pin.neutral(self.model))

    def begin(self, q: list[float]) -> None:
        self.now.update(np.array(q))
        self.posture.set_target(np.array(q))

    def aim(self, T: np.ndarray) -> None:
        self.task.set_target(pin.SE3(T))

    def step(self, dt: float, limited: bool) -> None:
        tasks = [self.task, self.posture] if limited else [self.task]
        v = pink.solve_ik(self.now, tasks, dt, solver="daqp", damping=1e-8, safety_break=False)
        self.now.integrate_inplace(v, dt)

    def begin_example(self, q: list[float], posture: float) -> None:
        self.task.lm_damping = 1.0
        self.posture = pink.tasks.PostureTask(cost=posture)
        self.begin(q)

    def step_example(self, dt: float, damping: float) -> None:
        tasks = [self.task, self.posture]
        v = pink.solve_ik(self.now, tasks, dt, solver="daqp", damping=damping)
        self.now.integrate_inplace(v, dt)

    def near(self) -> bool:
        return bool(np.abs(self.task.compute_error(self.now)).max() < NEAR)

    def q(self) -> list[float]:
        return self.now.q.tolist()


class Server:
    def open(self, urdf, base, frame, names, weight, fastest):
        self.urdf, self.names = urdf, names
        self.solvers = {
            "mink": Mink(urdf, frame, names, weight),
            "pink": Pink(urdf, frame, names, weight),
        }
        for solver in self.solvers.values():
            solver.limits(fastest, names)
        with tempfile.NamedTemporaryFile("w", suffix=".urdf") as file:
            file.write(urdf)
            file.flush()
            self.optik = optik.Robot.from_urdf_file(file.name, base, frame)
        self.optik.set_parallelism(1)
        return {}

    def reach(self, peer, targets, starts):
        """Seconds of CPU, and what was found."""
        found = []
        gc.collect()
        begin = time.process_time()
        if peer == "optik":
            config = optik.SolverConfig(
                solution_mode="speed", max_time=0.5, tol_f=1e-13, tol_df=-1.0, tol_dx=-1.0
            )
            for T, q in zip(targets, starts, strict=True):
                answer = self.optik.ik(config, T, q)
                found.append(None if answer is None else list(answer[0]))
        else:
            solver = self.solvers[peer]
            for T, q in zip(targets, starts, strict=True):
                solver.begin(q)
                solver.aim(np.array(T))
                for _ in range(STEPS):
                    solver.step(0.5, False)
                    if solver.near():
                        break
                found.append(solver.q())
        return {"seconds": time.process_time() - begin, "q": found}

    def follow(self, peer, targets, start, dt):
        solver = self.solvers[peer]
        solver.begin(start)
        path = []
        gc.collect()
        begin = time.process_time()
        for T in targets:
            solver.aim(np.array(T))
            solver.step(dt, True)
            path.append(solver.q())
        return {"seconds": time.process_time() - begin, "q": path}

    def example(self, peer, targets, start, dt, posture, damping, most, near):
        """As the peer's own example of an arm sets it up: a frame with Levenberg-Marquardt damping
        and a posture, the peer's own limits, and up to `most` steps for each target.
        """
        solver, path, steps = self.solvers[peer], [], 0
        solver.begin_example(start, posture)
        gc.collect()
        begin = time.process_time()
        for T in targets:
            solver.aim(np.array(T))
            for _ in range(most):
                solver.step_example(dt, damping)
                steps += 1
                error = solver.task.compute_error(solver.now) if most > 1 else None
                if most > 1 and max(np.linalg.norm(error[:3]), np.linalg.norm(error[3:])) <= near:
                    break
            path.append(solver.q())
        return {"seconds": time.process_time() - begin, "q": path, "steps": steps}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    server = Server()
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(getattr(server, request.pop("do"))(**request)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
