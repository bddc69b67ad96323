"""Robot: what users hold. Every function takes arrays with any leading batch axes and returns fresh
ones.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from rigidgrad.algorithms import catalog, manifold
from rigidgrad.algorithms.results import (
    AbaDerivatives,
    ContactDynamics,
    ContactDynamicsDerivatives,
    ContactInverseDynamics,
    Energy,
    FactoredGradient,
    FrameAccelerationDerivatives,
    FusedGradient,
    Impact,
    ImpactDerivatives,
    RneaDerivatives,
    RneaSecondDerivatives,
)
from rigidgrad.errors import InputError, unknown_name
from rigidgrad.ik.inverse import InverseKinematics, Solver, inverse_kinematics
from rigidgrad.ik.step import Aim
from rigidgrad.model import mjcf, mjcf_names, model as models
from rigidgrad.model.actuation import own_actuators
from rigidgrad.model.builder import DescriptionBuilder
from rigidgrad.model.contacts import (
    Constraint,
    ConstraintSet,
    Contact,
    Contacts,
    Loop,
    checked_mask,
    checked_place,
    checked_restitution,
    constraints,
    grip,
    listed,
    own_loops,
)
from rigidgrad.model.description import Description, FrameDescription
from rigidgrad.model.model import Limits, Model, assemble
from rigidgrad.model.pose import Placement, as_pose
from rigidgrad.model.roots import Roots
from rigidgrad.model.source import describe
from rigidgrad.model.table import table
from rigidgrad.recorded import At
from rigidgrad.runtime import arrays, reference
from rigidgrad.runtime.compiled import Compiled
from rigidgrad.runtime.explain import Explanation, explain, explain_reference
from rigidgrad.runtime.job import function_job
from rigidgrad.runtime.mass_matrix import check_function

if TYPE_CHECKING:
    from rigidgrad.collisions.checker import CollisionModel, Distances
    from rigidgrad.geometry.scene import Scene
    from rigidgrad.geometry.shapes import Shape
    from rigidgrad.ik.tasks import Task
    from rigidgrad.runtime.arrays import Numbers

    External = Mapping[str, Numbers]  # wrenches (…, 6) by link
    Names = str | Iterable[str]
    Actuation = Names | Numbers | Mapping[str, Mapping[str, float]]  # as for `Problem`
    Seed = int | Sequence[int] | np.random.SeedSequence | np.random.Generator | None
    Outs = Sequence[np.ndarray | str | None]  # earlier results, which may end in a remark

ENGINES = ("lanes", "numpy")
GRAVITY = (0.0, 0.0, -9.81)

_RESULTS: dict[str, Any] = {
    "rnea_derivatives": RneaDerivatives,
    "rnea_second_derivatives": RneaSecondDerivatives,
    "rnea_hessian": RneaSecondDerivatives,
    "aba_derivatives": AbaDerivatives,
    "aba_state_derivatives": partial(AbaDerivatives, dtau=None),
    "aba_derivatives_factored": FactoredGradient,
    "fused_gradient": FusedGradient,
    "energy": Energy,
    "frame_acceleration_derivatives": FrameAccelerationDerivatives,
    "contact_dynamics": ContactDynamics,
    "contact_dynamics_derivatives": ContactDynamicsDerivatives,
    "contact_inverse_dynamics": ContactInverseDynamics,
    "impact": Impact,
    "impact_derivatives": ImpactDerivatives,
}
_DAMPED = "the contacts are redundant: their forces are those that small, equal springs would share"


class State(NamedTuple):
    """Random positions, velocities and joint forces."""

    q: np.ndarray
    v: np.ndarray
    tau: np.ndarray


class Robot:
    """A robot's dynamics, kinematics and their derivatives.

    `q, v, a, tau` are arrays whose last axis has `nq` or `nv` entries; leading axes are batch axes
    and broadcast against each other. All-float32 input gives float32 results, anything else
    float64. Wherever they appear: `external={"link": wrench}` adds wrenches (…, 6), force first, on
    and in the frame of that link; `out=` writes into arrays of yours; `check=True` raises on NaN
    and unnormalised quaternions. Annotations speak of NumPy; arrays of another library, such as JAX
    or PyTorch, come back in their own kind.

    `rg.load` makes one of a file or a name; `model` and `engine` are what it is made of.
    """

    def __init__(self, model: Model, engine: str = "lanes") -> None:
        if engine not in ENGINES:
            raise unknown_name("engine", engine, ENGINES)
        self.model = model
        self.engine = engine
        self._functions: dict[Hashable, Any] = {}
        self._redundant: dict[ConstraintSet, bool] = {}
        self._collision_options: dict[str, Any] = {}
        self._collisions: CollisionModel | None = None

    # --- what it is -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What its file calls it."""
        return self.model.name

    @property
    def nq(self) -> int:
        """How many numbers a position has."""
        return self.model.nq

    @property
    def nv(self) -> int:
        """How many numbers a velocity has."""
        return self.model.nv

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the moving joints, in order."""
        return tuple(j.name for j in self.model.joints)

    @property
    def frames(self) -> tuple[str, ...]:
        """Names of the frames: links, joints where no link has their name, and frames that were
        added.
        """
        return tuple(self.model.frames)

    @property
    def limits(self) -> Limits:
        """`.lower`, `.upper` (nq,), `.velocity`, `.effort` (nv,); ±inf where there is none."""
        return self.model.limits

    @property
    def actuation(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """What drives it, {control: {joint: forces per unit}}: the actuators that its file states,
        or else a motor in every joint that is not free.

        Free are floating joints, and planar and spherical ones at the root.
        """
        return {a.name: dict(a.forces) for a in own_actuators(self.model)}

    @property
    def loops(self) -> tuple[Contact | Loop, ...]:
        """What closes its tree, by its MJCF: pass contacts=robot.loops. Loops to the world are
        contacts. Functions without contacts do not know them.
        """
        return own_loops(self.model)

    def __str__(self) -> str:
        return table(self.model)

    def __repr__(self) -> str:
        return f"<Robot {self.name!r}: nq={self.nq}, nv={self.nv}>"

    def __reduce__(self) -> tuple[Callable[..., Robot], tuple[Any, ...]]:
        m = self.model
        return _restore, (
            m.description,
            m.floating_base,
            m.gravity,
            m.strict,
            self.engine,
            self._collision_options,
            tuple(p.text for p in m.problems),  # told when it was loaded
        )

    # --- the configuration manifold ---------------------------------------------------------------

    def neutral(self) -> np.ndarray:
        """The position (nq,) in which every joint is at its zero."""
        return np.array(manifold.neutral(self.model))

    def random(self, batch: int | tuple[int, ...] = (), seed: Seed = None) -> State:
        """Random states within the limits; where there is none, angles in ±π, lengths in ±1 m,
        velocities and forces in ±1.
        """
        try:
            rng = np.random.default_rng(seed)
        except (TypeError, ValueError) as error:
            raise InputError(f"seed is {seed!r}: {error}") from None
        shape = _batch_shape(batch)
        q = np.empty((*shape, self.nq))
        for j in self.model.joints:
            if j.is_mimic:
                continue
            own = slice(j.q, j.q + j.nq)
            q[..., own] = j.kind.random(rng, shape, self.limits.lower[own], self.limits.upper[own])

        def within(limit: np.ndarray) -> np.ndarray:
            return rng.uniform(-1, 1, (*shape, self.nv)) * np.where(np.isfinite(limit), limit, 1.0)

        return State(q, within(self.limits.velocity), within(self.limits.effort))

    def integrate(
        self, q: Numbers, dv: Numbers, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """q ⊕ dv (…, nq): the position reached from q along the tangent dv (velocity times
        time).
        """
        result: np.ndarray = self._call("integrate", (q, dv), out=out, check=check)
        return result

    def difference(
        self, q0: Numbers, q1: Numbers, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """q1 ⊖ q0 (…, nv): the tangent at q0 that leads to q1."""
        result: np.ndarray = self._call("difference", (q0, q1), out=out, check=check)
        return result

    def normalize(self, q: Numbers, *, out: np.ndarray | None = None) -> np.ndarray:
        """q with its quaternions and (cos, sin) pairs scaled to length one. One of length zero has
        no direction and is an error; NaN stays NaN.
        """
        self._check_directions(q)
        result: np.ndarray = self._call("normalize", (q,), out=out)
        return result

    # --- dynamics ---------------------------------------------------------------------------------

    def rnea(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        *,
        external: External | None = None,
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """Inverse dynamics: the joint forces tau (…, nv) that cause the accelerations a.

        Example:

            >>> import rigidgrad as rg
            >>> robot = rg.load("iiwa14")
            >>> q = robot.neutral()
            >>> robot.rnea(q, q, q).shape
            (7,)
            >>> robot.rnea(np.zeros((100, 7)), q, q).shape  # leading axes are a batch
            (100, 7)
        """
        result: np.ndarray = self._call("rnea", (q, v, a), external=external, out=out, check=check)
        return result

    def aba(
        self,
        q: Numbers,
        v: Numbers,
        tau: Numbers,
        *,
        external: External | None = None,
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """Forward dynamics: the accelerations (…, nv) that the joint forces tau cause."""
        result: np.ndarray = self._call("aba", (q, v, tau), external=external, out=out, check=check)
        return result

    def crba(
        self,
        q: Numbers,
        *,
        out: np.ndarray | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> np.ndarray:
        """The mass matrix M (…, nv, nv)."""
        result: np.ndarray = self._call("crba", (q,), out=out, check=check, packed=packed)
        return result

    def minv(
        self,
        q: Numbers,
        *,
        out: np.ndarray | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> np.ndarray:
        """The inverse of the mass matrix (…, nv, nv)."""
        result: np.ndarray = self._call("minv", (q,), out=out, check=check, packed=packed)
        return result

    def bias(
        self,
        q: Numbers,
        v: Numbers,
        *,
        external: External | None = None,
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """Coriolis, centrifugal and gravity forces, minus external ones: rnea with a = 0."""
        result: np.ndarray = self._call("bias", (q, v), external=external, out=out, check=check)
        return result

    def gravity_torque(
        self, q: Numbers, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """The joint forces (…, nv) that hold the robot still."""
        result: np.ndarray = self._call("gravity_torque", (q,), out=out, check=check)
        return result

    def coriolis_matrix(
        self, q: Numbers, v: Numbers, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """C (…, nv, nv) with C v + gravity_torque = bias and Ṁ - 2C skew-symmetric."""
        result: np.ndarray = self._call("coriolis_matrix", (q, v), out=out, check=check)
        return result

    def rnea_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        *,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> RneaDerivatives[np.ndarray]:
        """Gradient of rnea: `.dq`, `.dv`, `.da`, each (…, nv, nv); positions are varied in the
        tangent space.
        """
        result: RneaDerivatives[np.ndarray] = self._call(
            "rnea_derivatives", (q, v, a), external=external, out=out, check=check, packed=packed
        )
        return result

    def rnea_second_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        *,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> RneaSecondDerivatives[np.ndarray]:
        """Second derivatives of rnea, each (…, nv, nv, nv), ∂²τ_i/∂·_j∂·_k at [i, j, k]: `.dqdq`,
        `.dvdv`, `.dqdv` (by q_j and v_k), `.dadq` = ∂M_ij/∂q_k.

        Others are zero. `.dqdq` is the derivative along q_k of `rnea_derivatives(…).dq`: for the
        freedoms of one ball or floating joint it is not symmetric.
        """
        result: RneaSecondDerivatives[np.ndarray] = self._call(
            "rnea_second_derivatives",
            (q, v, a),
            external=external,
            out=out,
            check=check,
            packed=packed,
        )
        return result

    def rnea_hessian(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        w: Numbers,
        *,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> RneaSecondDerivatives[np.ndarray]:
        """Second derivatives of wᵀ rnea(q, v, a) for constant weights w (…, nv), such as
        multipliers: Σ_i w_i times those of `rnea_second_derivatives`, each (…, nv, nv).
        """
        result: RneaSecondDerivatives[np.ndarray] = self._call(
            "rnea_hessian", (q, v, a, w), external=external, out=out, check=check, packed=packed
        )
        return result

    @overload
    def aba_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        tau: Numbers,
        *,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
        factored: Literal[False] = False,
        dtau: bool = True,
    ) -> AbaDerivatives[np.ndarray]: ...

    @overload
    def aba_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        tau: Numbers,
        *,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
        factored: Literal[True],
        dtau: bool = True,
    ) -> FactoredGradient[np.ndarray]: ...

    def aba_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        tau: Numbers,
        *,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
        factored: bool = False,
        dtau: bool = True,
    ) -> Any:
        """Gradient of aba: `.dq`, `.dv`, `.dtau`, each (…, nv, nv); packed=True gives (…, nnz),
        laid out by `pattern`.

        `dtau=False` leaves M⁻¹ out: `.dtau` is None, and `out` has two arrays. `factored=True`
        returns `.W`, `.Z_dq`, `.Z_dv` instead, with dq = W @ Z_dq and dv = W @ Z_dv: less than half
        of the work for a floating base, where the products are dense and their factors are not.
        """
        name = _gradient_name("aba_derivatives", factored, dtau)
        if (
            name == "aba_state_derivatives"
            and isinstance(out, tuple | list)
            and len(out) == 3
            and out[2] is None
        ):
            self._call(
                name, (q, v, tau), external=external, out=tuple(out[:2]), check=check, packed=packed
            )
            return out
        return self._call(name, (q, v, tau), external=external, out=out, check=check, packed=packed)

    def fused_gradient(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        minv: Numbers,
        *,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> FusedGradient[np.ndarray]:
        """Gradient of aba, `.dq` and `.dv`, where the acceleration and the inverse mass matrix are
        known already.
        """
        result: FusedGradient[np.ndarray] = self._call(
            "fused_gradient",
            (q, v, a, minv),
            external=external,
            out=out,
            check=check,
            packed=packed,
        )
        return result

    def torque_regressor(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        *,
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """Y (…, nv, 10·bodies): rnea = Y·parameters (armature aside), per body m, m·c, Ixx Ixy Iyy
        Ixz Iyz Izz at its origin.
        """
        result: np.ndarray = self._call("torque_regressor", (q, v, a), out=out, check=check)
        return result

    def energy(
        self, q: Numbers, v: Numbers, *, out: Outs | None = None, check: bool = False
    ) -> Energy[np.ndarray]:
        """`.kinetic` and `.potential`, in joules."""
        result: Energy[np.ndarray] = self._call("energy", (q, v), out=out, check=check)
        return result

    # --- distances and collisions -----------------------------------------------------------------

    def distances(
        self,
        q: Numbers,
        scene: Scene | Sequence[Shape] | None = None,
        *,
        gradient: bool = True,
        points: bool = False,
        self_pairs: bool = True,
    ) -> Distances:
        """Signed distances between links and a scene, and between links: `.pairs`, `.distance` (…,
        pairs) in metres, `.gradient` (…, pairs, nv) in the tangent space.

        Links are balls and capsules, exactly where the file has such, else a cover that sticks out
        by at most `robot.collisions.error`. `points=True` adds `.point` on the first of a pair,
        `.other` on the second and `.normal` between them, each (…, pairs, 3).

        Example:

            >>> import rigidgrad as rg
            >>> hand = {"iiwa_link_7": [rg.Sphere(0.07, (0, 0, 0.05))]}
            >>> robot = rg.load("iiwa14").with_collisions(shapes=hand)
            >>> scene = rg.Scene([rg.Box(size=(1, 1, 0.1), pose=(0, 0, 2))])
            >>> bool(robot.distances(robot.neutral(), scene).least > 0)
            True
        """
        return self.collisions.distances(
            q, scene, gradient=gradient, points=points, self_pairs=self_pairs
        )

    def in_collision(
        self,
        q: Numbers,
        scene: Scene | Sequence[Shape] | None = None,
        *,
        margin: float = 0.0,
        self_pairs: bool = True,
    ) -> np.ndarray | Any:
        """Whether a link is within `margin` metres of the scene, or of a link that it is paired
        with (…). Positions with NaN count as colliding.
        """
        return self.collisions.in_collision(q, scene, margin=margin, self_pairs=self_pairs)

    @property
    def collisions(self) -> CollisionModel:
        """Its links as balls and capsules, as `collision_model()` makes them, unless
        `with_collisions` chose otherwise.
        """
        if self._collisions is None:
            # which brings what writes code
            from rigidgrad.collisions.checker import collision_model

            self._collisions = collision_model(self.model, **self._collision_options)
        return self._collisions

    def with_collisions(self, **options: Any) -> Robot:
        """This robot with other collision shapes.

        `error`: metres that covers of boxes, cylinders and meshes may stick out (0.02). `roots`:
        folders that meshes may be read from besides the robot's own, or {package: folder}.
        `shapes`: {link: [rg.Capsule(…), …]} in place of what the file says, in the link's frame; []
        for none. `pairs`: [(link, link), …] that are looked at; without it, all but neighbours,
        those that touch in every one of 4,096 positions of the range, and those that none of these
        brings within 0.02 m.
        """
        unknown = set(options) - {"error", "roots", "shapes", "pairs"}
        if unknown:
            raise unknown_name(
                "option of with_collisions", min(unknown), ("error", "roots", "shapes", "pairs")
            )
        result = self._with(self.model)
        result._collision_options |= options
        return result

    def _with(self, model: Model) -> Robot:
        """A robot of another model that keeps what was chosen for this one."""
        result = Robot(model, self.engine)
        result._collision_options = dict(self._collision_options)
        return result

    # --- contacts and loops -----------------------------------------------------------------------

    def contact_dynamics(
        self,
        q: Numbers,
        v: Numbers,
        tau: Numbers,
        contacts: Contacts,
        *,
        active: Numbers | None = None,
        damped: bool | None = None,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
    ) -> ContactDynamics[np.ndarray]:
        """Forward dynamics of a robot whose contacts and loops hold: `.a` (…, nv) and `.force` (…,
        rows).

        Forces of all contacts in turn, 3 or 6 numbers each, in world axes at the contact, acting on
        the robot; of a loop, acting on its first frame. `active` (…, contacts): 1 where a contact
        holds and 0 where it does not, row by row. Redundant contacts (a table on four legs) are
        damped, and `.damping` says so; `damped=True` asks for it near singular positions.
        """
        result: ContactDynamics[np.ndarray] = self._with_contacts(
            "contact_dynamics", (q, v, tau), contacts, active, damped, external, out, check, False
        )
        return result

    def contact_dynamics_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        tau: Numbers,
        contacts: Contacts,
        *,
        active: Numbers | None = None,
        damped: bool | None = None,
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> ContactDynamicsDerivatives[np.ndarray]:
        """Gradient of contact_dynamics: `.a_dq`, `.a_dv`, `.a_dtau` (…, nv, nv), `.force_dq`,
        `.force_dv`, `.force_dtau` (…, rows, nv).
        """
        result: ContactDynamicsDerivatives[np.ndarray] = self._with_contacts(
            "contact_dynamics_derivatives",
            (q, v, tau),
            contacts,
            active,
            damped,
            external,
            out,
            check,
            packed,
        )
        return result

    def contact_inverse_dynamics(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        contacts: Contacts,
        *,
        active: Numbers | None = None,
        actuation: Actuation = "joints",
        external: External | None = None,
        out: Outs | None = None,
        check: bool = False,
    ) -> ContactInverseDynamics[np.ndarray]:
        """Joint forces and contact forces that realise the accelerations a with the least effort:
        `.tau` (…, nv), `.force` (…, rows), `.residual` (…, nv), `.converged` (…).

        M a + c = tau + Jᵀ force + residual. Contact forces stay in the friction cones about their
        normals; moments of surfaces, and forces of loops, are free. The residual is the least that
        motors and contacts cannot give; then ½|tau|² is the least. `actuation` says what is driven,
        as for `Problem`. Whether contacts stay in place under `a` is not asked. `active` as for
        contact_dynamics. `.converged` is 1 where the conditions of optimality hold to the root of
        the rounding, 1.5e-8 in float64 and 3.5e-4 in float32, else 0.
        """
        found = listed(contacts)
        held = self.constraint_set(
            "contact_inverse_dynamics", found, active is not None, actuation=actuation
        )
        inputs = (q, v, a) if active is None else (q, v, a, _like(q, checked_mask(active)))
        result: ContactInverseDynamics[np.ndarray] = self._call(
            "contact_inverse_dynamics",
            inputs,
            external=external,
            out=out,
            check=check,
            contacts=held,
        )
        return result

    def impact(
        self,
        q: Numbers,
        v: Numbers,
        contacts: Contacts,
        restitution: Numbers = 0.0,
        *,
        active: Numbers | None = None,
        damped: bool | None = None,
        out: Outs | None = None,
        check: bool = False,
    ) -> Impact[np.ndarray]:
        """Velocities right after contacts take hold, `.v` (…, nv), and their `.impulse` (…, rows):
        the contacts leave with -restitution times their speed.
        """
        result: Impact[np.ndarray] = self._with_contacts(
            "impact",
            (q, v, checked_restitution(restitution)),
            contacts,
            active,
            damped,
            None,
            out,
            check,
            False,
        )
        return result

    def impact_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        contacts: Contacts,
        restitution: Numbers = 0.0,
        *,
        active: Numbers | None = None,
        damped: bool | None = None,
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> ImpactDerivatives[np.ndarray]:
        """Gradient of impact: `.v_dq`, `.v_dv` (…, nv, nv), `.impulse_dq`, `.impulse_dv` (…, rows,
        nv).
        """
        inputs = (q, v, checked_restitution(restitution))
        result: ImpactDerivatives[np.ndarray] = self._with_contacts(
            "impact_derivatives", inputs, contacts, active, damped, None, out, check, packed
        )
        return result

    def contact_jacobian(
        self,
        q: Numbers,
        contacts: Contacts,
        *,
        out: np.ndarray | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> np.ndarray:
        """J (…, rows, nv), in world axes: the velocities of contacts, linear first; of a loop, of
        its first frame against the second.
        """
        result: np.ndarray = self._with_contacts(
            "contact_jacobian", (q,), contacts, None, False, None, out, check, packed
        )
        return result

    def delassus(
        self, q: Numbers, contacts: Contacts, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """J M⁻¹ Jᵀ (…, rows, rows), in world axes: how contacts accelerate by forces on them."""
        result: np.ndarray = self._with_contacts(
            "delassus", (q,), contacts, None, False, None, out, check, False
        )
        return result

    # --- kinematics -------------------------------------------------------------------------------

    def forward_kinematics(self, q: Numbers, *, check: bool = False) -> Placements:
        """Placements of frames in the world: `T["frame"]` is (…, 4, 4), computed when it is asked
        for.

        Example:

            >>> import rigidgrad as rg
            >>> robot = rg.load("iiwa14")
            >>> T = robot.forward_kinematics(robot.neutral())
            >>> x, y, z = T["iiwa_link_7"].round(3)[:3, 3]
            >>> print(z)
            1.261
        """
        return Placements(self, q, check)

    def jacobian(
        self,
        q: Numbers,
        frame: str,
        *,
        expressed_in: str = "world",
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """J (…, 6, nv), rows linear first: the frame's velocity is J v, in world axes at its
        origin, "local" or "spatial".

        Example:

            >>> import rigidgrad as rg
            >>> robot = rg.load("iiwa14")
            >>> robot.jacobian(robot.neutral(), "iiwa_link_7").shape
            (6, 7)
        """
        result: np.ndarray = self._call(
            "jacobian", (q,), frame=frame, expressed_in=expressed_in, out=out, check=check
        )
        return result

    def jacobian_derivative(
        self,
        q: Numbers,
        v: Numbers,
        frame: str,
        *,
        expressed_in: str = "world",
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """dJ/dt (…, 6, nv) along the velocity v."""
        result: np.ndarray = self._call(
            "jacobian_derivative",
            (q, v),
            frame=frame,
            expressed_in=expressed_in,
            out=out,
            check=check,
        )
        return result

    def inverse_kinematics(
        self,
        targets: Numbers | Task | Sequence[Task] | Mapping[str, Numbers | Task],
        start: Numbers | None = None,
        *,
        weights: Numbers | Mapping[str, Numbers] | None = None,
        free: Names | Mapping[str, Names] | None = None,
        posture: Numbers | None = None,
        tolerance: float | tuple[float, float] = 1e-6,
        seeds: int | Numbers = 64,
        best: int = 1,
        scene: Scene | Sequence[Shape] | None = None,
        margin: float = 0.0,
        reject: Callable[[np.ndarray], Any] | None = None,
        iterations: int = 40,
        seed: int = 0,
    ) -> InverseKinematics:
        """Configurations within the limits that bring frames to poses or points: `.q`, `.success`,
        `.error`, `.iterations`, `.position_error`, `.rotation_error`.

        `targets` is a pose (…, 4, 4) or point (…, 3) of the tool, {"frame": pose or point}, or
        tasks of `rg.ik`; all batch axes broadcast. Of each target the first of `seeds` starts that
        arrives is the solution: `start` (…, nq) if given, then configurations spread over the
        limits; or `seeds` are starts (…, starts, nq). One that cannot be reached has `success`
        False, and q is the nearest that was found: the least weighted sum of squared errors.

        `tolerance`: a number, or (metres, radians). `weights` of squared errors: a number,
        (position, rotation), or {"frame": …}. `free`: axes of the targets that do not count, such
        as "rz" or "rotation", or {"frame": …}. `posture` (…, nq) is approached as far as the
        targets allow. `best` > 1 gives that many different solutions, (…, best, nq), those near
        `start` first. A `scene` is kept clear of by `margin` metres, and links of each other
        (rg.Scene() is they alone). `reject` is a function of configurations (N, nq) that says which
        are no solutions, (N,), such as those in collision: the search goes on from the next start.
        `iterations` is the most from one start (what arrives from none is taken further from the
        nearest), `seed` chooses other starts. float32 targets give float32 results; the search is
        in float64 always.

        Example:

            >>> import rigidgrad as rg
            >>> found = rg.load("iiwa14").inverse_kinematics([0.5, 0.2, 0.6])
            >>> bool(found.success), found.q.shape
            (True, (7,))
        """
        return inverse_kinematics(
            self.model,
            self._solver,
            targets,
            start,
            weights=weights,
            free=free,
            posture=posture,
            tolerance=tolerance,
            seeds=seeds,
            best=best,
            reject=self._refusing(scene, margin, reject),
            iterations=iterations,
            seed=seed,
        )

    def _refusing(self, scene: Any, margin: Any, reject: Any) -> Callable[[np.ndarray], Any] | None:
        """Says which configurations collide, or are rejected besides."""
        if scene is None:
            if margin != 0.0:
                raise InputError(
                    f"margin is {margin!r}, but there is no scene to keep away from: pass scene=,"
                    " such as rg.Scene() for the robot's own links"
                )
            rejected: Callable[[np.ndarray], Any] | None = reject
            return rejected
        self.collisions.clear_of(scene)
        if reject is not None and not callable(reject):
            raise InputError(
                f"reject is a function of configurations (N, {self.nq}), not"
                f" {type(reject).__name__}"
            )

        def refused(q: np.ndarray) -> Any:
            hits = self.in_collision(q, scene, margin=margin)
            return hits if reject is None else hits | np.asarray(reject(q))

        return refused

    def _solver(self, aim: Aim) -> Solver:
        key = ("inverse_kinematics", aim.terms, aim.posture)
        if key not in self._functions:
            self._functions[key] = Solver(self.model, aim, self.engine)
        solver: Solver = self._functions[key]
        return solver

    def frame_velocity(
        self,
        q: Numbers,
        v: Numbers,
        frame: str,
        *,
        expressed_in: str = "world",
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """The frame's velocity (…, 6), linear first."""
        result: np.ndarray = self._call(
            "frame_velocity", (q, v), frame=frame, expressed_in=expressed_in, out=out, check=check
        )
        return result

    def frame_acceleration(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        frame: str,
        *,
        expressed_in: str = "world",
        out: np.ndarray | None = None,
        check: bool = False,
    ) -> np.ndarray:
        """The time derivative of frame_velocity (…, 6), linear first, without gravity: in "world"
        axes the classical acceleration of the frame's origin.
        """
        result: np.ndarray = self._call(
            "frame_acceleration",
            (q, v, a),
            frame=frame,
            expressed_in=expressed_in,
            out=out,
            check=check,
        )
        return result

    def frame_acceleration_derivatives(
        self,
        q: Numbers,
        v: Numbers,
        a: Numbers,
        frame: str,
        *,
        expressed_in: str = "world",
        out: Outs | None = None,
        check: bool = False,
        packed: bool = False,
    ) -> FrameAccelerationDerivatives[np.ndarray]:
        """Gradient of frame_acceleration: `.dq`, `.dv`, `.da`, each (…, 6, nv)."""
        name = "frame_acceleration_derivatives"
        result: FrameAccelerationDerivatives[np.ndarray] = self._call(
            name,
            (q, v, a),
            frame=frame,
            expressed_in=expressed_in,
            out=out,
            check=check,
            packed=packed,
        )
        return result

    def center_of_mass(
        self, q: Numbers, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """Of all moving bodies, in the world: (…, 3)."""
        result: np.ndarray = self._call("center_of_mass", (q,), out=out, check=check)
        return result

    def center_of_mass_jacobian(
        self, q: Numbers, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """(…, 3, nv), in world axes."""
        result: np.ndarray = self._call("center_of_mass_jacobian", (q,), out=out, check=check)
        return result

    def centroidal_momentum(
        self, q: Numbers, v: Numbers, *, out: np.ndarray | None = None, check: bool = False
    ) -> np.ndarray:
        """(…, 6), linear first, about the centre of mass, in world axes."""
        result: np.ndarray = self._call("centroidal_momentum", (q, v), out=out, check=check)
        return result

    # --- in functions of users --------------------------------------------------------------------

    def at(self, q: Any, v: Any = None) -> At:
        """The robot in one state, over any scalar, for functions that are recorded:
        `robot.at(x).position("tool")`, with x = [q, v], q, or q and v.

        Costs, constraints and dynamics of your own that use it are differentiated with it.
        """
        return At(self.model, q, v)

    # --- other robots from this one ---------------------------------------------------------------

    def reduced(self, lock: Mapping[str, Numbers]) -> Robot:
        """The robot with joints locked at given positions: `robot.reduced(lock={"elbow": 0.5})`."""
        if not isinstance(lock, Mapping):
            raise InputError(
                f'lock is a dictionary {{"joint": position}}, not {type(lock).__name__}'
            )
        return self._with(models.reduced(self.model, lock))

    def attach(
        self, other: Robot, frame: str, placement: Placement = (0.0, 0.0, 0.0), *, prefix: str = ""
    ) -> Robot:
        """The robot with another one fixed to a frame of it; `prefix` renames the other's links,
        joints and frames.
        """
        if not isinstance(other, Robot):
            raise InputError(f"only a Robot can be attached, not {type(other).__name__}")
        return self._with(models.attach(self.model, other.model, frame, as_pose(placement), prefix))

    def add_frame(self, name: str, parent: str, placement: Placement = (0.0, 0.0, 0.0)) -> Robot:
        """The robot with one more named frame, fixed to a link or frame."""
        self.model.frame(parent)
        description = self.model.description
        frames = (*description.frames, FrameDescription(name, parent, as_pose(placement)))
        return self._with(
            models.rebuild(self.model, dataclasses.replace(description, frames=frames))
        )

    # --- other programs ---------------------------------------------------------------------------

    def to_urdf(self) -> str:
        """The robot as URDF text, for `load` and other programs. Gravity and a floating base are
        not part of URDF; armature is our extension.
        """
        from rigidgrad.interop.urdf_export import to_urdf

        return to_urdf(self.model)

    def to_pinocchio(self) -> Any:
        """The robot as a `pinocchio.Model`: the same joint order and layouts, but for continuous
        joints; `rg.interop.states` converts.
        """
        from rigidgrad.interop.pinocchio import to_pinocchio

        return to_pinocchio(self.model)

    def to_mujoco(self, *, friction: bool = False) -> Any:
        """The robot as a `mujoco.MjModel` without shapes and contacts, with its loops; `friction`
        adds the joints' damping and dry friction. `rg.interop.states` converts.
        """
        from rigidgrad.interop.mujoco import to_mujoco

        return to_mujoco(self.model, friction=friction)

    # --- how it is computed -----------------------------------------------------------------------

    def compile(
        self,
        function: str,
        *,
        dtype: str | None = "float64",
        threads: int | None = None,
        packed: bool = False,
        parameters: tuple[str, ...] = (),
        external: tuple[str, ...] = (),
        frame: str | None = None,
        expressed_in: str = "world",
        width: int | None = None,
        factored: bool = False,
        dtau: bool = True,
        contacts: Contacts | None = None,
        masked: bool = False,
        damped: bool | None = None,
        actuation: Actuation = "joints",
    ) -> Compiled:
        """A low-overhead callable for one function: `fast(q, v, tau, out=…)`, with `.counts`,
        `.llvm`, `.assembly`.

        `threads`: how many to use where a batch is worth it (default: RIGIDGRAD_THREADS, or all
        CPUs). `parameters`: numbers of the model that become inputs, one set a row: "inertia" (…,
        bodies, 10), "gravity" (…, 3), "armature" (…, nv). `external`: links whose wrenches are
        inputs. `width`: states evaluated at once (default: what the CPU's vectors hold). `factored`
        and `dtau` are those of `aba_derivatives`. `contacts`: for functions of contacts; inputs
        besides are "place:k" of each contact k with a position gain, and with `masked` "active" (…,
        contacts). `actuation` is that of `contact_inverse_dynamics`.
        """
        if isinstance(function, str) and function == "forward_kinematics":
            function = "frame_placement"
        function = _gradient_name(function, factored, dtau)
        external, parameters = _names("external", external), _names("parameters", parameters)
        try:
            held = self.constraint_set(function, contacts, masked, damped, actuation)
            catalog.bind(
                self.model,
                function,
                external=external,
                frame=frame,
                expressed_in=expressed_in,
                contacts=held,
            )
        except TypeError:  # something that cannot be looked up
            raise _not_names(function, external, frame, expressed_in) from None
        check_function(self.model, function, parameters)
        if width not in (None, 1, 2, 4, 8, 16, 32):
            raise InputError(f"width is 1, 2, 4, 8, 16 or 32, not {width!r}")
        job = function_job(
            self.model,
            function,
            packed=packed,
            width=width or 0,
            external=external,
            frame=frame,
            expressed_in=expressed_in,
            parameters=parameters,
            contacts=held,
        )
        return Compiled(
            job, dtype=dtype, threads=threads, result=_result(function, held), check=self._check
        )

    def explain(self, function: str, **options: Any) -> Explanation:
        """What runs when a function is called, to print or to read: `.formulation`, `.frames`,
        `.code`, `.counts`, `.width`, and what `.lost`.

        Options are those of `compile`. With engine="numpy", it is what the methods of this robot
        run.
        """
        job = self.compile(function, **options).job
        return explain_reference(job) if self.engine == "numpy" else explain(job)

    @property
    def device(self) -> Any:
        """The GPU that this robot is on; None on the CPU."""
        return None

    def to(self, device: str, /, **options: Any) -> Robot:
        """This robot on a GPU, "cuda", "opencl" or "webgpu": the same functions and shapes. Arrays
        on a CUDA device stay there, others are copied over and back. WebGPU takes float32 alone.

        `device` chooses among several devices, `shape` the kernels: "thread" a state, "block" a
        state, or "auto" by the batch's size. On CUDA, `stream` is one of yours (PyTorch's, CuPy's,
        cuda-core's or a handle), on which all work is put. "cpu" leads back.
        """
        if device == "cpu":
            return self._with(self.model)
        from rigidgrad.runtime.gpu import open_device

        return _DeviceRobot(self, open_device(device, **options))

    def pattern(
        self,
        function: str,
        *,
        frame: str | None = None,
        expressed_in: str = "world",
        contacts: Contacts | None = None,
    ) -> Any:
        """Where the matrices of a function can be non-zero: for each, the (rows, columns) of what
        packed=True returns.
        """
        held = self.constraint_set(function, contacts)
        entries = [
            tuple(np.nonzero(mask))
            for mask in self._function(function, (), frame, expressed_in, True, held).masks.values()
        ]
        return _RESULTS[function](*entries) if function in _RESULTS else entries[0]

    def _function(
        self,
        name: str,
        external: tuple[str, ...],
        frame: str | None,
        expressed_in: str,
        packed: bool,
        contacts: ConstraintSet | None = None,
    ) -> Any:
        key = (name, external, frame, expressed_in, packed, contacts)
        try:
            found = self._functions.get(key)
        except TypeError:  # something that cannot be looked up
            raise _not_names(name, external, frame, expressed_in) from None
        if found is None:
            kernel = catalog.bind(
                self.model,
                name,
                external=external,
                frame=frame,
                expressed_in=expressed_in,
                contacts=contacts,
            )
            check_function(self.model, name)
            result = _result(name, contacts)
            if self.engine == "numpy":
                found = reference.Interpreted(
                    kernel, packed=packed, result=result, check=self._check
                )
            else:
                job = function_job(
                    self.model,
                    name,
                    packed=packed,
                    external=external,
                    frame=frame,
                    expressed_in=expressed_in,
                    contacts=contacts,
                )
                found = Compiled(job, result=result, check=self._check)
            self._functions[key] = found
        return found

    def _call(
        self,
        name: str,
        inputs: tuple[Any, ...],
        *,
        external: Mapping[str, Any] | None = None,
        frame: str | None = None,
        expressed_in: str = "world",
        out: Any = None,
        check: bool = False,
        packed: bool = False,
        contacts: ConstraintSet | None = None,
    ) -> Any:
        if external is not None and not isinstance(external, Mapping):
            raise InputError(
                f'external is a dictionary {{"link": wrench}}, not {type(external).__name__}'
            )
        if external:
            function = self._function(name, tuple(external), frame, expressed_in, packed, contacts)
            return function(*inputs, *external.values(), out=out, check=check)
        return self._function(name, (), frame, expressed_in, packed, contacts)(
            *inputs, out=out, check=check
        )

    def _with_contacts(
        self,
        name: str,
        inputs: tuple[Any, ...],
        contacts: Contacts,
        active: Any,
        damped: bool | None,
        external: Mapping[str, Any] | None,
        out: Any,
        check: bool,
        packed: bool,
    ) -> Any:
        found = listed(contacts)
        held = self.constraint_set(name, found, active is not None, damped)
        solves = catalog.FUNCTIONS[name].solves
        q, *others = inputs
        if "restitution" in catalog.FUNCTIONS[name].inputs:
            others[-1] = _like(q, others[-1])
        others += [
            _like(q, checked_place(c))
            for c in found
            if solves and isinstance(c, Contact) and c.constraint.placed
        ]
        if active is not None:
            others.append(_like(q, checked_mask(active)))
        inputs = (q, *others)
        return self._call(
            name, inputs, external=external, out=out, check=check, packed=packed, contacts=held
        )

    def constraint_set(
        self,
        function: str,
        contacts: Contacts | None,
        masked: bool = False,
        damped: bool | None = None,
        actuation: Actuation = "joints",
    ) -> ConstraintSet | None:
        """What of contacts is compiled; None for functions that have none."""
        known = catalog.FUNCTIONS.get(function) if isinstance(function, str) else None
        if known is None or not known.contacts:
            if contacts is not None:
                raise InputError(f"{function} takes no contacts")
            return None
        if contacts is None:
            raise InputError(f"{function} needs contacts: a list of rg.Contact and rg.Loop")
        if not isinstance(damped, bool | np.bool_ | None):
            raise InputError(
                f"damped is True, False or None, which leaves it to the contacts, not {damped!r}"
            )
        found = listed(contacts)
        held = ConstraintSet(constraints(self.model, found), masked)
        if known.grips:
            return held._replace(grip=grip(self.model, found, actuation))
        if damped is None and known.solves:
            damped = self._redundant.get(held)
            if damped is None:
                damped = self._redundant[held] = self._is_redundant(held)
        return held._replace(redundant=bool(damped))

    def jacobian_of(self, held: tuple[Constraint, ...], q: Any) -> Any:
        """`contact_jacobian` of constraints as they are compiled."""
        return self._call("contact_jacobian", (q,), contacts=ConstraintSet(held))

    def _is_redundant(self, held: ConstraintSet) -> bool:
        """Whether constraints depend on each other wherever the robot is: judged by the ranks of
        their Jacobian in a few random positions.
        """
        kernel = catalog.bind(self.model, "contact_jacobian", contacts=held._replace(masked=False))
        q = self.random(batch=(4,), seed=0).q
        J = reference.evaluate(kernel, {"q": q}, 4, q.dtype)["J"].reshape(4, held.rows, self.nv)
        return (
            held.rows > 0
            and int(
                np.linalg.matrix_rank(
                    J, tol=1e-9 * max(1.0, float(np.abs(J).max(initial=0.0)))
                ).max()
            )
            < held.rows
        )

    def _kept(self, q: Any) -> Any:
        """A copy of positions, in the caller's kind."""
        batch = arrays.gather({"q": q}, {"q": (self.nq,)})
        rows = np.array(batch.rows["q"]).reshape(*batch.shape, self.nq)
        return batch.back(rows) if batch.back else rows

    def _check_directions(self, q: Any) -> None:
        """Quaternions and (cos, sin) pairs must have a length by which they can be divided."""
        if not self.model.directions:
            return
        batch = arrays.gather({"q": q}, {"q": (self.nq,)})
        for d in self.model.directions:
            with np.errstate(over="ignore", under="ignore"):
                squared = np.sum(batch.rows["q"][:, d.q] ** 2, axis=1)
            bad = np.flatnonzero((squared < np.finfo(batch.dtype).tiny) | (squared == np.inf))
            if bad.size:
                length = "too long" if squared[bad[0]] == np.inf else "zero, or next to it"
                row = (
                    ", first in row"
                    f" {tuple(int(i) for i in np.unravel_index(int(bad[0]), batch.shape))}"
                    if batch.shape
                    else ""
                )
                raise InputError(
                    f"q: the length of the {d.name} of joint '{d.joint}' is {length}{row}; it has"
                    " no direction to keep"
                )

    @property
    def _check(self) -> Callable[[arrays.Batch], None]:
        """What check=True does; it knows the model alone, so that functions do not keep their
        robot, nor it them, alive in a circle.
        """
        return partial(_check_batch, self.model)


def _result(name: str, contacts: ConstraintSet | None) -> Any:
    """What results of a function are wrapped in."""
    if contacts is not None and contacts.redundant and name in _RESULTS:
        return partial(_RESULTS[name], damping=_DAMPED)
    return _RESULTS.get(name)


def _like(q: Any, x: Any) -> Any:
    """Numbers without a precision of their own, in that of q: a mask or a list does not turn a call
    with float32 into one with float64.
    """
    single = str(getattr(q, "dtype", "")).endswith("float32")
    plain = not hasattr(x, "dtype") or str(x.dtype).startswith(("bool", "int", "uint"))
    return np.asarray(x, np.float32) if single and plain else x


def _gradient_name(function: str, factored: bool, dtau: bool) -> str:
    """The function that gives the parts of a gradient of aba that are asked for."""
    if (not factored and dtau) or function not in (
        "aba_derivatives",
        "aba_state_derivatives",
        "aba_derivatives_factored",
    ):
        if factored or not dtau:
            raise InputError(f"factored and dtau are options of aba_derivatives, not of {function}")
        return function
    return "aba_derivatives_factored" if factored else "aba_state_derivatives"


def _batch_shape(batch: Any) -> tuple[int, ...]:
    try:
        shape = (
            (operator.index(batch),)
            if not isinstance(batch, tuple | list)
            else tuple(operator.index(n) for n in batch)
        )
    except TypeError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        raise InputError(f"batch is a whole number or a tuple of them, not {batch!r}")
    return shape


def _names(what: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{what} is a tuple of names, not {value!r}")
    return tuple(value)


def _not_names(
    function: Any, external: tuple[Any, ...], frame: Any, expressed_in: Any
) -> InputError:
    """The error for something unhashable in the place of a name."""
    given = {
        "function": function,
        "frame": frame,
        "expressed_in": expressed_in,
        "external": external,
    }
    odd = [f"{what} is {x!r}" for what, x in given.items() if not isinstance(x, str | tuple | None)]
    return InputError(f"{', '.join(odd) or f'external is {external!r}'}: names are expected")


def _check_batch(model: Model, batch: arrays.Batch) -> None:
    """Numbers must be finite; quaternions and (cos, sin) pairs must have length one."""
    arrays.check_finite(batch)
    slack = 1e-4 if batch.dtype == np.float32 else 1e-6
    for key in ("q", "q0", "q1"):
        if key not in batch.rows:
            continue
        for d in model.directions:
            length = np.linalg.norm(batch.rows[key][:, d.q], axis=1)
            bad = np.flatnonzero(abs(length - 1) > slack)
            if bad.size:
                raise InputError(
                    f"{key}: the {d.name} of joint '{d.joint}' has length {length[bad[0]]:.6g}, not"
                    " 1; pass it through robot.normalize"
                )


class _DeviceRobot(Robot):
    """A robot whose functions run on a GPU."""

    def __init__(self, robot: Robot, gpu: Any) -> None:
        super().__init__(robot.model, robot.engine)
        self._gpu = gpu

    @property
    def device(self) -> Any:
        return self._gpu

    def __repr__(self) -> str:
        return f"<Robot {self.name!r} on {self._gpu.device.name}: nq={self.nq}, nv={self.nv}>"

    def _function(
        self,
        name: str,
        external: tuple[str, ...],
        frame: str | None,
        expressed_in: str,
        packed: bool,
        contacts: ConstraintSet | None = None,
    ) -> Any:
        key = (name, external, frame, expressed_in, packed, contacts)
        if key not in self._functions:
            options: dict[str, Any] = {
                "external": external,
                "frame": frame,
                "expressed_in": expressed_in,
                "contacts": contacts,
            }
            catalog.bind(self.model, name, **options)
            check_function(self.model, name)
            self._functions[key] = self._gpu.function(
                self.model,
                name,
                **options,
                packed=packed,
                result=_result(name, contacts),
                check=self._check,
            )
        return self._functions[key]

    def explain(self, function: str, **options: Any) -> Explanation:
        raise InputError('explain tells what runs on the CPU: robot.to("cpu").explain(…)')

    def _kept(self, q: Any) -> Any:
        return q if self._gpu.device.holds(q) else super()._kept(q)

    def _check_directions(self, q: Any) -> None:
        if not self._gpu.device.holds(q):  # looking there would wait for the device
            super()._check_directions(q)


class Placements(Mapping[str, np.ndarray]):
    """Placements of a robot's frames at one batch of positions; each is computed when it is first
    asked for.
    """

    def __init__(self, robot: Robot, q: Any, check: bool) -> None:
        self._robot = robot
        self._q = robot._kept(q)
        self._check = check
        self._known: dict[str, np.ndarray] = {}

    def __getitem__(self, frame: str) -> np.ndarray:
        if frame not in self._known:
            self._known[frame] = self._robot._call(
                "frame_placement", (self._q,), frame=frame, check=self._check
            )
        return self._known[frame]

    def __iter__(self) -> Iterator[str]:
        return iter(self._robot.frames)

    def __len__(self) -> int:
        return len(self._robot.frames)

    def __contains__(self, frame: object) -> bool:
        return frame in self._robot.model.frames

    def __repr__(self) -> str:
        return f"<Placements of {len(self)} frames of {self._robot.name!r}>"


class Builder(DescriptionBuilder):
    """Builds a robot in Python: `Builder("arm").link(…).joint(…).build()`. `name`: the robot's."""

    def build(
        self,
        *,
        floating_base: bool = False,
        gravity: Numbers = GRAVITY,
        strict: bool = True,
        engine: str = "lanes",
    ) -> Robot:
        """The robot; `floating_base`, `gravity`, `strict` and `engine` as for `rg.load`."""
        return Robot(
            assemble(self.describe(), floating_base=floating_base, gravity=gravity, strict=strict),
            engine,
        )


def load(
    source: str | bytes | os.PathLike[str],
    *,
    floating_base: bool = False,
    gravity: Numbers | Literal["model"] = "model",
    strict: bool = False,
    engine: str = "lanes",
    roots: Roots = (),
    xacro_args: Mapping[str, Any] | None = None,
) -> Robot:
    """A robot from `source`: a bundled name, a path to a URDF, xacro, SDF or MJCF file, the text of
    one, or the name of a robot of the package robot_descriptions. MJCF is read by MuJoCo: `pip
    install rigidgrad[plants]`; xacro, with `xacro_args={name: value}`, by xacrodoc:
    `rigidgrad[xacro]`.

    floating_base puts a free-flyer joint `root_joint` under the root link. gravity="model" is that
    of the MJCF, or (0, 0, -9.81). Bodies that make no physical sense are told in one warning, and
    functions that divide by a mass that is missing raise an error; strict=True refuses such robots.
    engine="numpy" evaluates through readable NumPy code instead of compiled kernels. `roots`:
    folders of packages that the file names, or {package: folder}; its meshes are looked for there.

    Example:

        >>> import rigidgrad as rg
        >>> robot = rg.load("iiwa14")
        >>> robot.nq, robot.nv
        (7, 7)
    """
    description, found = describe(source, roots, xacro_args)
    options = {"roots": found} if found else None
    return _restore(description, floating_base, gravity, strict, engine, options)


def from_pinocchio(
    model: Any,
    *,
    gravity: Numbers | Literal["model"] = "model",
    strict: bool = False,
    engine: str = "lanes",
) -> Robot:
    """A robot from a `pinocchio.Model`, with its joint order if that is depth first;
    `rg.interop.states` converts between its states and Pinocchio's. `gravity`, `strict` and
    `engine` of the `model` as for `rg.load`.
    """
    from rigidgrad.interop.pinocchio import describe_pinocchio

    return _restore(describe_pinocchio(model), False, gravity, strict, engine)


def from_mujoco(
    model: Any,
    *,
    gravity: Numbers | Literal["model"] = "model",
    strict: bool = False,
    engine: str = "lanes",
) -> Robot:
    """A robot from a `mujoco.MjModel`. Siblings are ordered by name; `rg.interop.states` converts
    between its states and MuJoCo's. `gravity`, `strict` and `engine` of the `model` as for
    `rg.load`.
    """
    if not isinstance(model, mjcf_names.library().MjModel):
        raise InputError(f"this is no mujoco.MjModel, but {type(model).__name__}")
    return _restore(mjcf.describe_mujoco(model), False, gravity, strict, engine)


def _restore(
    description: Description,
    floating_base: bool,
    gravity: Numbers,
    strict: bool,
    engine: str,
    collisions: dict[str, Any] | None = None,
    known: Sequence[str] = (),
) -> Robot:
    if isinstance(gravity, str) and gravity == "model":
        gravity = description.gravity
    result = Robot(
        assemble(
            description, floating_base=floating_base, gravity=gravity, strict=strict, known=known
        ),
        engine,
    )
    result._collision_options = collisions or {}
    return result
