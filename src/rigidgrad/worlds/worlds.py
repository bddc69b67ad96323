"""Many copies of one robot in its surroundings, each with a state of its own."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rigidgrad.errors import InputError, ModelWarning, unknown_name
from rigidgrad.kernels.language import Kernel
from rigidgrad.model import mjcf
from rigidgrad.plants.ground import Ground
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.job import Job, digest
from rigidgrad.worlds.backward import Backward
from rigidgrad.worlds.contacts import Contacts
from rigidgrad.worlds.groups import World
from rigidgrad.worlds.pairs import Pair, find_pairs, geoms_of
from rigidgrad.worlds.patches import Patches
from rigidgrad.worlds.physics import Coupling, read_physics
from rigidgrad.worlds.recording import everything
from rigidgrad.worlds.smooth import VARIED, Smooth, Varied, factor_shapes
from rigidgrad.worlds.sources import compiled_model
from rigidgrad.worlds.step import Step
from rigidgrad.worlds.terrain import Terrain

_TOLERANCE = {"float64": 1e-8, "float32": 1e-7}  # the least one that means something


@dataclass(frozen=True)
class Forward:
    """Accelerations of all worlds (count, nv), as MuJoCo's `qacc`, and their contacts."""

    qacc: np.ndarray
    contacts: Contacts


class Worlds:
    """`count` worlds of one model: a `mujoco.MjModel`, the path or text of an MJCF, or a Robot or
    the path of a URDF with the `ground` that its feet stand on.

    `.qpos` (count, nq), `.qvel` (count, nv) and `.time` (count,) are the state, in MuJoCo's layout
    and order; write into them as you like. `dt` is a step in seconds, None for the model's own.
    `vary` says what differs between worlds: of "mass" (count, bodies), "friction" (count,), "gain",
    "kp", "kd" (count, nu), "damping" and "armature" (count, nv) there is then an array of factors
    of that name. With `push="body"`, `.push`
    (count, 6) is a force and a moment at its centre of mass, along the world's axes; `.applied`
    (count, nv) are joint forces as MuJoCo's qfrc_applied. `touch` names shapes: `.touch` (count,
    shapes) has the normal forces on them in the last step. `imu` names bodies or sites: `.imu`
    (count, names, 6) has the acceleration of each against free fall and its rate of turning, along
    its own axes, at the beginning of the last step, as MuJoCo's sensors after one.

    `slots` is how many contacts a world has at most: of more, the deepest are kept, and `.overflow`
    (count,) counts the others, step by step; None for as many as there can be.

    Newton's method takes at most `iterations` rounds a step (None: the model's), and ends where a
    round promises less than `tolerance`, as MuJoCo's does. Elements of MuJoCo that worlds do not
    know are an error, or with `leave_out` a warning.
    """

    def __init__(
        self,
        model: Any,
        count: int = 4096,
        dt: float | None = 0.002,
        *,
        ground: Ground | None = None,
        dtype: str = "float32",
        threads: int | None = None,
        iterations: int | None = None,
        tolerance: float | None = None,
        vary: Sequence[str] = (),
        push: str | None = None,
        touch: Sequence[str] = (),
        imu: Sequence[str] = (),
        slots: int | None = None,
        leave_out: bool = False,
    ):
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or count < 1:
            raise InputError(f"count is a number of worlds, from 1 on, not {count!r}")
        if dtype not in _TOLERANCE:
            raise InputError(f"dtype is 'float32' or 'float64', not {dtype!r}")
        m = compiled_model(model, ground)
        self.count, self.dtype, self._threads = int(count), np.dtype(dtype), threads
        varied = _varied(m, vary, push)
        self.world = _world(m, dt, dtype, iterations, tolerance, varied, slots, leave_out)
        physics = self.world.physics
        self.dt, self.nq, self.nv, self.nu = physics.dt, physics.nq, physics.nv, physics.nu
        self.actuators = tuple(a.name for a in physics.actuators)
        self.bodies = physics.bodies[1:]
        self.joints = physics.joints
        self._touched = tuple(touch)
        factors = factor_shapes(physics)
        known = {g.name for g in self.world.geoms}
        for name in self._touched:
            if name not in known:
                raise unknown_name("shape", name, known)
        self._carried = tuple(imu)
        for name in self._carried:
            physics.model.frame(name)  # or an error that names those there are
        self._terrain: Terrain | None = None
        self._compiled_from = m
        self.start = np.array(physics.qpos0, self.dtype)
        if m.nkey:
            self.start = np.array(m.key_qpos[0], self.dtype)
        self.qpos = np.tile(self.start, (self.count, 1))
        self.qvel, self.qacc, self.applied = (self._zeros(self.nv) for _ in range(3))
        self.time = np.zeros(self.count)
        self.u = self._zeros(self.nu)
        self.mass, self.gain, self.kp, self.kd, self.damping, self.armature, self.friction = (
            np.ones((self.count, *factors.get(name, (0,))), self.dtype) for name in VARIED
        )
        self.push = self._zeros(6)
        self.touch = self._zeros(len(self._touched))
        self.imu = np.zeros((self.count, len(self._carried), 6), self.dtype)
        self.unfinished = np.zeros(self.count, bool)
        self.lost = np.zeros(self.count, np.int64)
        self._buffers = tuple(np.empty_like(x) for x in (self.qpos, self.qvel, self.qacc))
        self._open = self._zeros(1)
        self.overflow = np.zeros(self.count, np.int64)
        self._over = self._zeros(1)
        self._patches = Patches(m, self.world, self.count, self.dtype) if self.on_fields else None
        self._centres: Compiled | None = None
        self._step = self._compiled("step", touch=self._touched, imu=self._carried)
        self._forward: Compiled | None = None
        self._backward: Compiled | None = None

    def __repr__(self) -> str:
        return (
            f"<{self.count} worlds of {self.world.physics.model.name!r}: nq {self.nq}, nv"
            f" {self.nv}, nu {self.nu}, {len(self.world.owners)} slots of contacts and limits>"
        )

    # --- running ----------------------------------------------------------------------------------

    def step(self, u: Any = None, steps: int = 1) -> None:
        """All worlds, `steps` steps on, with the controls u (count, nu) or (nu,), held.

        A world whose state is not finite any more begins again; `.lost` counts that.
        `.unfinished` says where Newton's method had not ended in the last step.
        """
        self._take(u)
        qpos, qvel, qacc = self._buffers
        out: list[np.ndarray] = [qpos, qvel, qacc, self._open]
        if self.world.overflows:
            out.append(self._over)
        if self._touched:
            out.append(self.touch)
        if self._carried:
            out.append(self.imu)
        for _ in range(steps):
            self._step(*self._inputs(), out=tuple(out))
            self._count_overflow(self._over)
            self.qpos[...], self.qvel[...], self.qacc[...] = qpos, qvel, qacc
            self.time += self.dt
        self.unfinished = self._open[:, 0] > 0.5
        total = self.qpos.sum(axis=1) + self.qvel.sum(axis=1)
        if not np.isfinite(total).all():
            bad = ~np.isfinite(total)
            self.lost[bad] += 1
            self.reset(bad)

    def forward(self, u: Any = None) -> Forward:
        """Accelerations and contacts of the state as it is, as `mj_forward` has them."""
        self._take(u)
        if self._forward is None:
            self._forward = self._compiled("forward", contacts=True, moves=False)
        qacc, open_, *_, contacts = self._forward(*self._inputs())
        self.unfinished = open_[:, 0] > 0.5
        return Forward(qacc, Contacts.of(self.slots, contacts))

    def reset(self, mask: Any = None, qpos: Any = None, qvel: Any = None) -> None:
        """Worlds where the mask (count,) is true, or all: to `.start` and rest, or to the states
        given, (nq,) or one for each world that is reset.
        """
        chosen = np.ones(self.count, bool) if mask is None else np.asarray(mask, bool)
        if chosen.shape != (self.count,):
            raise InputError(f"a mask of worlds is ({self.count},), not {chosen.shape}")
        n = int(chosen.sum())
        for array, value, size, name in (
            (self.qpos, self.start if qpos is None else qpos, self.nq, "qpos"),
            (self.qvel, 0.0 if qvel is None else qvel, self.nv, "qvel"),
        ):
            given = np.asarray(value, self.dtype)
            if given.ndim and given.shape not in ((size,), (n, size)):
                raise InputError(f"{name} is ({size},) or ({n}, {size}), not {given.shape}")
            array[chosen] = given
        for array in (self.qacc, self.applied, self.push, self.touch, self.imu):
            array[chosen] = 0.0
        self.time[chosen] = 0.0

    def heights(self, points: Any) -> np.ndarray:
        """How high the ground is (count, points) at `points` (points, 2), in metres forward and to
        the left of the floating base: of planes, boxes and height fields that do not move, as one
        sees them from above; -inf where there is nothing.
        """
        if not self.world.physics.frees:
            raise InputError("heights are around a floating base, and this model has none")
        at = self.world.physics.frees[0].qpos
        x, y = self.qpos[:, at : at + 2].T.astype(float)
        w, i, j, k = self.qpos[:, at + 3 : at + 7].T.astype(float)
        yaw = np.arctan2(2 * (w * k + i * j), w * w + i * i - j * j - k * k)
        ahead, left = np.asarray(points, float).reshape(-1, 2).T
        c, s = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
        found = self.ground_at(x[:, None] + c * ahead - s * left, y[:, None] + s * ahead + c * left)
        return found.astype(self.dtype)

    def ground_at(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The same at places of the world."""
        if self._terrain is None:
            self._terrain = Terrain(self._compiled_from, self.world.geoms)
            if self._terrain.unseen:
                named = ", ".join(sorted(self._terrain.unseen))
                warnings.warn(f"heights do not see {named}", ModelWarning, stacklevel=3)
        return self._terrain.top(x, y)

    def pullback(
        self, qpos: Any, qvel: Any, u: Any, qacc: Any, of_qpos: Any, of_qvel: Any, **held: Any
    ) -> dict[str, np.ndarray]:
        """The gradient of c·(qpos⁺, qvel⁺) of one step from a state, with the cotangents c =
        (of_qpos (count, nq), of_qvel (count, nv)) and the accelerations `qacc` that the step found:
        "qpos", "qvel", "u" and "applied", and those of `parameters`, each shaped like what it is
        the gradient by. Quaternions count as four numbers, which a step normalises. Parameters are
        those of the worlds as they are now, unless they are `held` (`mass=…`).
        """
        if self._backward is None:
            self._backward = Compiled(
                self.backward_recording(), dtype=self.dtype.name, threads=self._threads
            )
        for name in held:
            if name not in self.parameters:
                raise unknown_name("parameter", name, self.parameters)
        given: dict[str, Any] = {
            "qpos": qpos,
            "qvel": qvel,
            "qacc": qacc,
            "of qpos": of_qpos,
            "of qvel": of_qvel,
        }
        given |= held
        if self.nu:
            given["u"] = u
        arrays, names = [getattr(self, x) for x in self.inputs], self.inputs
        inputs = [
            np.ascontiguousarray(given.get(name, array), self.dtype)
            for name, array in zip(names, arrays, strict=True)
        ]
        inputs += self._below(inputs[0])
        inputs += [np.ascontiguousarray(given[x], self.dtype) for x in ("of qpos", "of qvel")]
        found = self._backward(*inputs)
        return dict(zip((x for x in names if x != "qacc"), found, strict=True))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arrays that a step reads, besides the heights of height fields."""
        own = tuple(self.world.varied.inputs(self.world.physics))
        friction = ("friction",) if "friction" in self.world.varied.names else ()
        return ("qpos", "qvel", *(("u",) if self.nu else ()), "applied", *own, *friction, "qacc")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Of these, what is neither state nor control: "applied", what varies, and "push"."""
        return tuple(x for x in self.inputs if x not in ("qpos", "qvel", "u", "qacc"))

    @property
    def slots(self) -> tuple[tuple[str, ...], ...]:
        """Of each slot, the shapes that touch in it, or what is limited."""
        geoms = self.world.geoms
        return tuple(
            (geoms[x.first].name, geoms[x.second].name)
            if isinstance(x, Pair)
            else ("coupling" if isinstance(x, Coupling) else "limit",)
            for x in self.world.owners
        )

    # --- compiled code ----------------------------------------------------------------------------

    def _zeros(self, n: int) -> np.ndarray:
        return np.zeros((self.count, n), self.dtype)

    def _take(self, u: Any) -> None:
        if u is None:
            return
        given = np.asarray(u, self.dtype)
        if given.shape not in ((self.nu,), (self.count, self.nu)):
            raise InputError(
                f"controls are ({self.nu},) or ({self.count}, {self.nu}), not {given.shape}"
            )
        self.u[...] = given

    def _inputs(self) -> list[np.ndarray]:
        return [*(getattr(self, name) for name in self.inputs), *self._below(self.qpos)]

    @property
    def on_fields(self) -> bool:
        """Whether shapes may touch height fields."""
        return bool(self.world.on_fields)

    def _below(self, qpos: np.ndarray) -> list[np.ndarray]:
        """The heights of fields around shapes, where there are fields."""
        if self._patches is None:
            return []
        if self._centres is None:
            world, shapes = self.world, self._patches.shapes
            recording = Job(
                "worlds centres",
                world.physics.model.name,
                f"{identity(world)} {shapes}",
                lambda: centres_kernel(world, shapes),
            )
            self._centres = Compiled(recording, dtype=self.dtype.name, threads=self._threads)
        return [self._patches.around(np.asarray(self._centres(qpos)))]

    def _count_overflow(self, over: np.ndarray) -> None:
        if not self.world.overflows or not over.any():
            return
        if not self.overflow.any():
            warnings.warn(
                "there are more contacts than slots, and the least deep ones are left out; see"
                " worlds.overflow",
                ModelWarning,
                stacklevel=3,
            )
        self.overflow += over[:, 0].astype(np.int64)

    def recording(self, name: str, **options: Any) -> Job:
        """The code of a step from `inputs` to (qpos, qvel, qacc, 1 where the solver goes on)."""
        world = self.world
        return Job(
            f"worlds {name}",
            world.physics.model.name,
            f"{identity(world)} {options}",
            lambda: Step(world, **options).kernel(),
        )

    def backward_recording(self) -> Job:
        """That of `pullback`, from `inputs` and two cotangents."""
        world = self.world
        return Job(
            "worlds pullback",
            world.physics.model.name,
            identity(world),
            lambda: Backward(world).kernel(),
        )

    def _compiled(self, name: str, **options: Any) -> Compiled:
        recording = self.recording(name, **options)
        return Compiled(recording, dtype=self.dtype.name, threads=self._threads)


def centres_kernel(world: World, shapes: tuple[int, ...]) -> Kernel:
    """Where some shapes are, (shapes, 3), at `qpos`."""
    k = Kernel()
    program = Smooth(world.physics, world.geoms, world.varied).centres(shapes)
    qpos, out = k.input("qpos", world.physics.nq), k.output("centres", len(shapes), 3)
    k.call(program, {"qpos": everything(qpos)}, {"centres": everything(out)})
    return k


def _varied(m: Any, vary: Sequence[str], push: str | None) -> Varied:
    for name in (vary,) if isinstance(vary, str) else vary:
        if name not in VARIED:
            raise unknown_name("number that varies", name, VARIED)
    body = None
    if push is not None:
        names = mjcf.body_names(m)
        if push not in names[1:]:
            raise unknown_name("body", push, names[1:])
        body = names.index(push)
        if not m.body_weldid[body]:
            raise InputError(f"body {push!r} is fixed to the world: a push does nothing")
    chosen = (vary,) if isinstance(vary, str) else tuple(vary)
    return Varied(tuple(x for x in VARIED if x in chosen), body)


def _world(
    m: Any,
    dt: float | None,
    dtype: str,
    iterations: int | None,
    tolerance: float | None,
    varied: Varied,
    slots: int | None,
    leave_out: bool,
) -> World:
    physics = read_physics(m, dt, leave_out)
    geoms = geoms_of(m, physics)
    flags = mjcf.library().mjtDisableBit
    safe = not m.opt.disableflags & int(flags.mjDSBL_REFSAFE)
    pairs, unknown = find_pairs(m, physics, geoms, safe)
    if unknown:
        named = ", ".join(f"{n} of {kind}" for kind, n in sorted(unknown.items()))
        warnings.warn(
            "pairs of shapes that pass through each other, as worlds have no contacts of their"
            f" kinds: {named}",
            ModelWarning,
            stacklevel=4,
        )
    rounds = int(m.opt.iterations) if iterations is None else iterations
    if not isinstance(rounds, int | np.integer) or rounds < 1:
        raise InputError(f"iterations are a whole number from 1 on, not {iterations!r}")
    if tolerance is None:
        tolerance = max(physics.tolerance, _TOLERANCE[dtype])
    if not 0 <= tolerance < 1:
        raise InputError(f"tolerance is a number from 0 on, below 1, not {tolerance!r}")
    if slots is not None and (
        not isinstance(slots, int | np.integer) or isinstance(slots, bool) or slots < 1
    ):
        raise InputError(f"slots are a whole number from 1 on, or None, not {slots!r}")
    most = None if slots is None or slots >= sum(p.slots for p in pairs) else int(slots)
    return World(physics, geoms, pairs, varied, int(rounds), float(tolerance), most)


def identity(world: World) -> str:
    """All numbers that a step depends on."""
    physics = world.physics
    parts = [digest(physics.model), repr(physics.mounts)]
    parts += [repr(getattr(physics, f.name)) for f in fields(physics) if f.name != "model"]
    own = (world.geoms, world.pairs, world.varied, world.rounds, world.tolerance, world.most)
    return hashlib.sha256("\n".join([*parts, *map(repr, own)]).encode()).hexdigest()
