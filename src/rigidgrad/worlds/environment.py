"""Worlds as a Gymnasium `VectorEnv`: what a TOML file says is observed, rewarded, randomised, and
when a run ends.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np

from rigidgrad.errors import InputError, RigidgradError, unknown_name
from rigidgrad.robot import Robot
from rigidgrad.worlds.hills import Hills
from rigidgrad.worlds.making import posture_of
from rigidgrad.worlds.smooth import VARIED
from rigidgrad.worlds.terms import ENDS, OBSERVATIONS, REWARDS
from rigidgrad.worlds.worlds import Worlds

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
except ImportError:
    raise RigidgradError("environments need Gymnasium: pip install rigidgrad[worlds]") from None

_OBSERVED = 100.0  # observations are cut off here
_FROM_BORDER = 1.0  # metres between a start and the border of a terrain
# where a robot stands on it, around its base
_FOOTPRINT = np.array(
    [(x, y) for x in np.linspace(-0.4, 0.4, 9) for y in np.linspace(-0.3, 0.3, 7)]
)


class Environment(VectorEnv[Any, Any, Any]):  # type: ignore[misc]
    """`count` worlds: `reset()`, `step(actions (count, nu))`. A world whose run ends begins again
    in the same step; what it saw last is in `info["final_obs"]`.

    `.worlds` are the worlds, `.model` is their MjModel, `.command` (count, 3) velocities forward
    and sideways, in m/s, and of turning, in rad/s; both may be written to.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": [],
    }

    def __init__(
        self,
        task: dict[str, Any],
        model: Any,
        robot: Robot | None,
        count: int,
        *,
        seed: int | None,
        threads: int | None,
        dtype: str,
        name: str,
    ):
        self.task, self.name, self.num_envs = task, name, count
        varied = task.get("randomise", {})
        push = varied.get("push")
        ground = task.get("ground", {})
        feet = tuple(
            model.geom(g).name for g in range(model.ngeom) if model.geom(g).name.startswith("foot:")
        )
        self.worlds = Worlds(
            model,
            count,
            task.get("dt", 0.002),
            vary=[x for x in VARIED if x in varied],
            push=push["body"] if push else None,
            touch=feet if ground and "stepping" in task.get("rewards", {}) else (),
            threads=threads,
            dtype=dtype,
        )
        self.steps = int(task.get("steps", 4))
        self.period = self.steps * self.worlds.dt
        self.model, self._robot = model, robot
        self.hills = Hills.of(task["terrain"]) if "terrain" in task else None
        self._layout()
        self._rng = np.random.default_rng(seed)
        self.command = np.zeros((count, 3), np.float32)
        self.target = np.zeros((count, 3))
        self.action, self.before = (np.zeros((count, self.worlds.nu), np.float32) for _ in "ab")
        self.air: np.ndarray = np.zeros(self.worlds.touch.shape)
        self.landed: np.ndarray = np.zeros(self.worlds.touch.shape)
        self._pushed = np.zeros(count)
        self._rewards = {
            name: self._term(REWARDS, "reward", name, x)
            for name, x in task.get("rewards", {}).items()
        }
        self._ends = {
            name: self._term(ENDS, "end", name, x) for name, x in task.get("ends", {}).items()
        }
        chosen = task.get("observations", {}).get("terms", ["positions", "velocities"])
        for term in chosen:
            if term not in OBSERVATIONS:
                raise unknown_name("observation", term, OBSERVATIONS)
        self._observations = [OBSERVATIONS[term] for term in chosen]
        self._begin(np.ones(count, bool))
        size = self.observe(False).shape[1]
        self.single_observation_space = spaces.Box(-_OBSERVED, _OBSERVED, (size,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (self.worlds.nu,), np.float32)
        batched = gymnasium.vector.utils.batch_space
        self.observation_space = batched(self.single_observation_space, count)
        self.action_space = batched(self.single_action_space, count)

    # --- what Gymnasium calls ---------------------------------------------------------------------

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)  # type: ignore[arg-type]
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        self._begin(np.asarray(mask, bool))
        return self.observe(), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        controls = self.act(actions)
        self._push()
        lost = self.worlds.lost.copy()
        self.worlds.step(controls, self.steps)
        self._feel()
        parts = {name: weight * f(self) for name, (weight, f) in self._rewards.items()}
        reward = self.period * sum(parts.values(), np.zeros(self.num_envs))
        terminated = self.worlds.lost > lost
        for _, f in self._ends.values():
            terminated |= f(self)
        truncated = self.worlds.time >= float(self.task.get("seconds", 10.0)) - 1e-9
        reward[self.worlds.lost > lost] = 0.0
        over = terminated | truncated
        observation = self.observe()
        info: dict[str, Any] = {"rewards": parts}
        if over.any():
            info["final_obs"], info["_final_obs"] = observation.copy(), over
            self._begin(over)
            observation[over] = self.observe()[over]
        return observation, reward, terminated, truncated & ~terminated, info

    def close_extras(self, **kwargs: Any) -> None:
        """Nothing is held that Python does not let go."""

    # --- the model --------------------------------------------------------------------------------

    def _layout(self) -> None:
        m, start = self.model, self.task.get("start", {})
        self.worlds.start[:] = posture_of(m, start.get("posture", {}))
        if m.nkey:
            self.worlds.start[:] = m.key_qpos[0]
        driven = [int(j) for j in m.actuator_trnid[:, 0]]
        self.driven_q = np.array([m.jnt_qposadr[j] for j in driven], int)
        self.driven_v = np.array([m.jnt_dofadr[j] for j in driven], int)
        self.home = self.worlds.start[self.driven_q]
        without = self.task.get("observations", {}).get("without", [])
        hidden = {self.place_of(name)[0] for name in without}
        scan = self.task.get("scan", {})
        ahead, left = scan.get("forward", [0.0]), scan.get("left", [0.0])
        self.scanned = np.array([(x, y) for x in ahead for y in left], float)
        self.observed = np.array([k for k in range(m.nq) if k not in hidden])
        gravity = np.array(m.opt.gravity)
        self.down = gravity / max(float(np.linalg.norm(gravity)), 1e-9)
        kinds = {"position", "force", "control"}
        kind = self.task.get("action", {}).get("kind", "control")
        if kind not in kinds:
            raise unknown_name("kind of action", kind, kinds)
        target = self.task.get("target")
        self._place = None
        if target is not None:
            if self._robot is None:
                raise InputError("a target is for a frame of a robot, not of an mjcf")
            self._place = self._robot.compile("frame_placement", frame=target["frame"])

    def place_of(self, joint: str) -> tuple[int, int]:
        """Where a joint's numbers begin in qpos and qvel."""
        if joint not in self.worlds.joints:
            raise unknown_name("joint", joint, self.worlds.joints)
        j = self.worlds.joints.index(joint)
        return int(self.model.jnt_qposadr[j]), int(self.model.jnt_dofadr[j])

    def place(self) -> np.ndarray:
        """Of the frame that has a target, (count, 3)."""
        assert self._place is not None
        found: np.ndarray = self._place(self.worlds.qpos.astype(float))[:, :3, 3]
        return found

    def ground(self) -> np.ndarray:
        """How high the ground below the base is (count,)."""
        if self.hills is None:
            return np.zeros(self.num_envs)
        x, y = self.worlds.qpos[:, :2].T.astype(float)
        return self.worlds.ground_at(x, y)

    def efforts(self) -> np.ndarray:
        """Forces of actuators, as they would be without limits."""
        a = self.task.get("servos")
        u = self.worlds.u.astype(float)
        if a is None:
            return u
        q, v = self.worlds.qpos[:, self.driven_q], self.worlds.qvel[:, self.driven_v]
        found: np.ndarray = float(a["kp"]) * (u - q) - float(a["kd"]) * v
        return found

    def act(self, actions: Any) -> np.ndarray:
        """The controls (count, nu) of actions, which are cut off at ±1 and remembered: for plants
        other than these worlds, which `step` moves.
        """
        given = np.asarray(actions, np.float32)
        if given.shape != self.action.shape:
            raise InputError(f"actions are {self.action.shape}, not {given.shape}")
        self.before[:] = self.action
        np.clip(np.nan_to_num(given), -1.0, 1.0, out=self.action)
        return self.controls(self.action)

    def controls(self, action: np.ndarray) -> np.ndarray:
        """What actuators are told for actions."""
        table = self.task.get("action", {})
        scale = float(table.get("scale", 1.0))
        if table.get("kind") == "position":
            return np.asarray(self.home + scale * action)
        return np.asarray(scale * action)

    @staticmethod
    def _term(known: dict[str, Any], kind: str, name: str, table: Any) -> tuple[float, Any]:
        if name not in known:
            raise unknown_name(kind, name, known)
        if not isinstance(table, dict):
            return float(table), known[name]
        numbers = dict(table)
        return float(numbers.pop("weight", 1.0)), partial(known[name], **numbers)

    # --- runs -------------------------------------------------------------------------------------

    def _begin(self, mask: np.ndarray) -> None:
        n = int(mask.sum())
        if not n:
            return
        rng, worlds, start = self._rng, self.worlds, self.task.get("start", {})
        q = np.tile(worlds.start, (n, 1))
        spread = float(start.get("positions", 0.0))
        hinges = [
            int(self.model.jnt_qposadr[j])
            for j in range(self.model.njnt)
            if self.model.jnt_type[j] > 1
        ]
        q[:, hinges] += rng.uniform(-spread, spread, (n, len(hinges)))
        for joint, value in start.get("offset", {}).items():
            q[:, self.place_of(joint)[0]] += value
        if self.hills is not None:
            room = np.maximum(0.5 * np.array(self.hills.size) - _FROM_BORDER, 0.0)
            q[:, :2] += rng.uniform(-room, room, (n, 2))
            x, y = (q[:, k, None] + _FOOTPRINT[:, k] for k in range(2))
            q[:, 2] += self.worlds.ground_at(x, y).max(axis=1).clip(0.0)
        speed = float(start.get("velocities", 0.0))
        worlds.reset(mask, q, rng.uniform(-speed, speed, (n, worlds.nv)))
        wanted: dict[str, np.ndarray] = {"command": self.command, "target": self.target}
        for name, array in wanted.items():
            if name in self.task:
                low = np.asarray(self.task[name]["low"], float)
                high = np.asarray(self.task[name]["high"], float)
                array[mask] = low + (high - low) * rng.random((n, 3))
        varied = self.task.get("randomise", {})
        for name in VARIED:
            if name in varied:
                factors: np.ndarray = getattr(worlds, name)
                least, most = (float(x) for x in varied[name])
                factors[mask] = least + (most - least) * rng.random(factors[mask].shape)
        kept: tuple[np.ndarray, ...] = (self.action, self.before, self.air, self.landed)
        for numbers in (*kept, self._pushed):
            numbers[mask] = 0.0
        # so that not all are pushed, and end, at once
        if "push" in varied:
            self._pushed[mask] = -rng.uniform(0, varied["push"]["every"], n)

    def _push(self) -> None:
        table = self.task.get("randomise", {}).get("push")
        if table is None:
            return
        self._pushed += self.period
        begins = self._pushed >= table["every"]
        n = int(begins.sum())
        if n:
            angle = self._rng.uniform(0, 2 * np.pi, n)
            force = self._rng.uniform(0, table["force"], n)
            self.worlds.push[begins, 0] = force * np.cos(angle)
            self.worlds.push[begins, 1] = force * np.sin(angle)
            self._pushed[begins] = 0.0
        ends = (self._pushed >= table["lasts"]) | (self._pushed < 0)
        self.worlds.push[ends] = 0.0

    def _feel(self) -> None:
        """How long each foot was in the air, and which one landed."""
        if not self.air.shape[1]:
            return
        down = self.worlds.touch > 1.0
        self.air[self.landed > 0] = 0.0
        self.air += self.period
        self.landed = (down & (self.air > 1.5 * self.period)).astype(float)
        self.air[down & (self.landed == 0)] = 0.0

    def observe(self, noise: bool = True) -> np.ndarray:
        """What a policy sees of the worlds as they are."""
        found = np.concatenate([f(self) for f in self._observations], axis=1)
        level = float(self.task.get("observations", {}).get("noise", 0.0)) if noise else 0.0
        if level:
            found = found + self._rng.normal(0, level, found.shape)
        seen: np.ndarray = np.clip(found, -_OBSERVED, _OBSERVED).astype(np.float32)
        return seen
