"""Contacts and loops of real robots against Pinocchio, laws of energy and momentum, and sets that
are odd.

Accelerations, forces and derivatives are compared to 50 eps cond(K) of their largest entry, K = [M,
-Jᵀ; J, 0].
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
from random_trees import assert_close
from test_contacts import DERIVATIVES, FEET, SHIN, at_rest_in_contact, feet, pinocchio_contacts
from test_target_c import SAME_BITS, VECTORS, Library, needs_compiler

import rigidgrad as rg
from rigidgrad.errors import InputError
from rigidgrad.kernels.interpret import interpret
from rigidgrad.kernels.language import Kernel
from rigidgrad.runtime import formulation

EPS = np.finfo(float).eps
ROBOTS = next(
    (
        p / "share/example-robot-data/robots"
        for p in Path(pin.__file__).parents
        if p.name == "cmeel.prefix"
    ),
    Path("nowhere"),
)


def points(*frames):
    return [rg.Contact(f) for f in frames]


STANDING = {
    "go2_description/urdf/go2.urdf": points("FL_foot", "FR_foot", "RL_foot", "RR_foot"),
    "solo_description/robots/solo12.urdf": points("FL_FOOT", "FR_FOOT", "HL_FOOT", "HR_FOOT"),
    "hyq_description/robots/hyq_no_sensors.urdf": points("lf_foot", "rf_foot", "lh_foot"),
    "anymal_c_simple_description/urdf/anymal.urdf": [
        *points("LF_FOOT", "RF_FOOT"),
        rg.Contact("LH_FOOT", "surface", offset=(0.02, 0.01, -0.05)),
    ],
    "bolt_description/robots/bolt.urdf": points("FL_ANKLE", "FR_ANKLE"),
    "romeo_description/urdf/romeo_small.urdf": [
        rg.Contact("l_sole", "surface"),
        rg.Contact("r_sole", "surface"),
        rg.Contact("l_wrist"),
    ],
    "ur_description/urdf/ur5_robot.urdf": points("wrist_3_link"),
    "talos_data/robots/talos_reduced.urdf": [
        rg.Contact("left_sole_link", "surface"),
        rg.Contact("gripper_right_base_link"),
    ],
    "g1_description/urdf/g1_29dof_rev_1_0.urdf": [
        rg.Contact(f"{side}_ankle_roll_link", "surface") for side in ("left", "right")
    ],
}


def slack_of(robot, q, contacts):
    """50 eps cond(K)."""
    J, M = robot.contact_jacobian(q, contacts), robot.crba(q)
    return 50 * EPS * np.linalg.cond(np.block([[M, -J.T], [J, np.zeros((len(J), len(J)))]]))


def theirs(model, held):
    """Pinocchio's data of constraints, and settings without damping."""
    data, parts = model.createData(), pin.StdVec_RigidConstraintData()
    for c in held:
        parts.append(c.createData())
    pin.initConstraintDynamics(model, data, held, parts)
    return data, parts, pin.ProximalSettings(1e-14, 0.0, 1)


@pytest.mark.skipif(not ROBOTS.is_dir(), reason="example-robot-data is not installed")
@pytest.mark.filterwarnings("ignore::rigidgrad.errors.ModelWarning")
@pytest.mark.parametrize("path", STANDING, ids=lambda path: Path(path).stem)
def test_real_robots_as_pinocchio(path):
    """constraintDynamics, impulseDynamics and the derivatives of both; contacts do not move, so
    that both mean the same acceleration.
    """
    robot, contacts = (
        rg.load(ROBOTS / path, floating_base=True, strict=False, engine="numpy"),
        STANDING[path],
    )
    model = robot.to_pinocchio()
    q, v, tau = robot.random(seed=4)
    v, slack = at_rest_in_contact(robot, contacts, q, v), slack_of(robot, q, contacts)
    assert slack < 1e-8
    held = pinocchio_contacts(robot, model, contacts)
    data, parts, settings = theirs(model, held)
    a = pin.constraintDynamics(model, data, q, v, tau, held, parts, settings)
    s, d = (
        robot.contact_dynamics(q, v, tau, contacts),
        robot.contact_dynamics_derivatives(q, v, tau, contacts),
    )
    assert_close(s.a[None], np.array(a)[None], slack, "a")
    assert_close(s.force[None], np.array(data.lambda_c)[None], slack, "force")
    pin.computeConstraintDynamicsDerivatives(model, data, held, parts, settings)
    expected = (
        data.ddq_dq,
        data.ddq_dv,
        data.ddq_dtau,
        data.dlambda_dq,
        data.dlambda_dv,
        data.dlambda_dtau,
    )
    for name, matrix in zip(DERIVATIVES, expected, strict=True):
        assert_close(getattr(d, name)[None], np.array(matrix)[None], slack, name)
    v = robot.random(seed=5).v
    after = pin.impulseDynamics(model, data, q, v, held, parts, 0.4, settings)
    i, e = robot.impact(q, v, contacts, 0.4), robot.impact_derivatives(q, v, contacts, 0.4)
    assert_close(i.v[None], np.array(after)[None], slack, "v")
    assert_close(i.impulse[None], np.array(data.impulse_c)[None], slack, "impulse")
    pin.computeImpulseDynamicsDerivatives(model, data, held, parts, 0.4, settings)
    # theirs are of the jump
    expected = (data.ddq_dq, np.eye(robot.nv) + data.ddq_dv, data.dlambda_dq, data.dlambda_dv)
    for name, matrix in zip(("v_dq", "v_dv", "impulse_dq", "impulse_dv"), expected, strict=True):
        assert_close(getattr(e, name)[None], np.array(matrix)[None], slack, name)


# --- a leg with rods ------------------------------------------------------------------------------

ROD = rg.Loop("rod", "tarsus", offset_a=(0.0, 0.0, -0.5), offset_b=(0.05, 0.0, 0.0))
PLANTAR = rg.Loop("plantar", "toe", offset_a=(0.0, 0.0, -0.4), offset_b=(-0.03, 0.0, 0.0))
TOE = rg.Contact("toe", offset=(0.05, 0.0, -0.02))


def cassie(floating=True, gravity=(0, 0, -9.81), engine="numpy"):
    """A leg as Cassie's: a rod on a ball joint from the thigh to the tarsus, another from the
    tarsus' crank to the toe; both are closed by loops.
    """

    def inertia(m):
        return np.diag([0.02, 0.021, 0.004]) * m

    b = rg.Builder("leg").link("pelvis", 10.0, (0.05, 0, 0.03), np.diag([0.09, 0.05, 0.08]))
    chain = (
        ("thigh", "pelvis", "revolute", (0, 0.1, 0), (0, 1, 0), 8.0),
        ("shin", "thigh", "revolute", (0, 0, -0.5), (0, 1, 0.02), 0.6),
        ("tarsus", "shin", "revolute", (0.06, 0, -0.4), (0, 1, 0), 0.8),
        ("toe", "tarsus", "revolute", (0, 0, -0.4), (0, 1, 0), 0.15),
        ("rod", "thigh", "spherical", (0, 0.02, -0.02), None, 0.2),
        ("crank", "tarsus", "revolute", (0.06, 0.02, 0.03), (0, 1, 0), 0.1),
        ("plantar", "crank", "spherical", (0.05, 0, 0), None, 0.1),
    )
    for name, parent, kind, xyz, axis, mass in chain:
        b = b.link(name, mass, (0.01, 0.005, -0.12), inertia(mass))
        b = b.joint(f"j_{name}", kind, parent, name, xyz=xyz, **({"axis": axis} if axis else {}))
    return b.build(floating_base=floating, gravity=gravity, engine=engine)


def test_a_leg_with_rods_as_pinocchio():
    robot, held = cassie(), [ROD, PLANTAR, TOE]
    model = robot.to_pinocchio()
    q, v, tau = robot.random(seed=2)
    v = at_rest_in_contact(robot, held, q, v)
    constraints = pin.StdVec_RigidConstraintModel()
    for loop in held:
        ends = []
        for name, offset in (
            ((loop.frame_a, loop.offset_a), (loop.frame_b, loop.offset_b))
            if isinstance(loop, rg.Loop)
            else ((loop.frame, loop.offset),)
        ):
            ends += [robot.model.frame(name).body + 1, pin.SE3(np.eye(3), np.array(offset))]
        constraints.append(
            pin.RigidConstraintModel(
                pin.ContactType.CONTACT_3D, model, *ends, pin.ReferenceFrame.LOCAL
            )
        )
    data, parts, settings = theirs(model, constraints)
    a = pin.constraintDynamics(model, data, q, v, tau, constraints, parts, settings)
    s, slack = robot.contact_dynamics(q, v, tau, held), slack_of(robot, q, held)
    assert slack < 1e-7
    assert_close(s.a[None], np.array(a)[None], slack, "a")
    T = robot.forward_kinematics(q)  # their forces are in the axes of the first frame
    turned = [
        T[x][:3, :3] @ f
        for x, f in zip(
            ("rod", "plantar", "toe"), np.array(data.lambda_c).reshape(3, 3), strict=True
        )
    ]
    assert_close(s.force[None], np.concatenate(turned)[None], slack, "force")


def closed(robot, q, loops):
    """The loops with second offsets for which they are closed at q."""
    found = []
    for x in loops:
        A, B = (robot.forward_kinematics(q)[name] for name in (x.frame_a, x.frame_b))
        point = A[:3, :3] @ x.offset_a + A[:3, 3]
        found.append(dataclasses.replace(x, offset_b=B[:3, :3].T @ (point - B[:3, 3])))
    return found


def test_inner_forces_of_loops_leave_momentum_alone():
    """A leg that flies without gravity: momentum stays while its loops pull, these have no power,
    and an impact of theirs loses what its impulse takes.
    """
    robot = cassie(gravity=(0, 0, 0))
    q, w, tau = robot.random(seed=3)
    held, tau[:6] = closed(robot, q, [ROD, PLANTAR]), 0.0
    v, J = at_rest_in_contact(robot, held, q, w), robot.contact_jacobian(q, held)
    s, h = robot.contact_dynamics(q, v, tau, held), 1e-5
    assert np.linalg.norm(J.T @ s.force) > 1e-2  # they do pull
    after, before = ((robot.integrate(q, t * v + 0.5 * t * t * s.a), v + t * s.a) for t in (h, -h))
    rate = (robot.centroidal_momentum(*after) - robot.centroidal_momentum(*before)) / (2 * h)
    assert np.all(abs(rate) < 1e-6 * abs(s.force).max())
    power = (robot.energy(*after).kinetic - robot.energy(*before).kinetic) / (2 * h)
    assert np.isclose(power, tau @ v, rtol=1e-6, atol=1e-6)
    hit = robot.impact(q, w, held)
    lost = robot.energy(q, w).kinetic - robot.energy(q, hit.v).kinetic
    assert np.isclose(lost, -0.5 * hit.impulse @ (J @ w), rtol=1e-9)
    assert np.allclose(
        robot.centroidal_momentum(q, hit.v), robot.centroidal_momentum(q, w), rtol=0, atol=1e-10
    )


# --- odd sets -------------------------------------------------------------------------------------


def planar_leg(engine="lanes"):
    b = rg.Builder("leg").link("hip", 1.0, (0, 0, 0), np.eye(3))
    for k, parent in enumerate(("hip", "upper")):
        name = ("upper", "lower")[k]
        b = b.link(name, 1.0, (0, 0, -0.25), np.diag([0.02, 0.02, 0.001]))
        b = b.joint(f"j{k}", "revolute", parent, name, xyz=(0, 0, -0.5 * k), axis=(0, 1, 0))
    return (
        b.link("foot")
        .joint("ankle", "fixed", "lower", "foot", xyz=(0, 0, -0.5))
        .build(floating_base=True, engine=engine)
    )


def test_a_stretched_leg_is_held_with_damping():
    """Hip held and foot held: at the stretched knee rows along the leg depend on each other.
    Damped, everything is finite and nothing held moves.
    """
    robot = planar_leg()
    held = [rg.Contact("hip", "surface"), rg.Contact("foot")]
    q, tau = robot.neutral(), np.zeros(robot.nv)
    s = robot.contact_dynamics(q, tau, tau, held, damped=True)
    d = robot.contact_dynamics_derivatives(q, tau, tau, held, damped=True)
    assert all(np.isfinite(getattr(d, x)).all() for x in DERIVATIVES) and np.isfinite(s.force).all()
    assert (
        np.allclose(robot.contact_jacobian(q, held) @ s.a, 0, atol=1e-5)
        and "redundant" in s.damping
    )
    weight = 9.81 * robot.crba(q)[0, 0]
    assert np.isclose(s.force[2] + s.force[8], weight, rtol=1e-6)


def test_opposing_and_repeated_contacts_share():
    """The same point twice, and a second point of the same frame that pushes against the first."""
    robot = rg.load("hyq", floating_base=True, engine="numpy")
    state = robot.random(seed=0)
    one = robot.contact_dynamics(*state, feet(FEET[:1]))
    twice = robot.contact_dynamics(*state, feet((FEET[0], FEET[0])))
    assert "redundant" in twice.damping
    assert np.allclose(twice.a, one.a, rtol=0, atol=1e-6 * abs(one.a).max())
    assert np.allclose(
        twice.force.reshape(2, 3), one.force / 2, rtol=0, atol=1e-6 * abs(one.force).max()
    )
    # their distance is fixed: five rows, not six
    along = [rg.Contact(FEET[0], offset=SHIN), rg.Contact(FEET[0], offset=(0, 0, 0))]
    s = robot.contact_dynamics(*state, along)
    assert "redundant" in s.damping
    J, held = (
        robot.contact_jacobian(state.q, along),
        robot.contact_dynamics_derivatives(*state, along),
    )
    gamma = [
        robot.add_frame("p", FEET[0], c.offset).frame_acceleration(
            state.q, state.v, np.zeros(18), "p"
        )[:3]
        for c in along
    ]
    # the two agree on all but how fast their line turns, which v does not forbid: what can be met
    # is met in the least squares
    left = J @ s.a + np.concatenate(gamma)
    assert np.linalg.norm(J.T @ left) < 1e-5 * np.linalg.norm(left) or np.linalg.norm(left) < 1e-5
    assert np.isfinite(held.force_dq).all()


def test_feet_without_mass_are_held_as_others():
    """A link without mass on a fixed joint is its parent; the same contact by an offset."""
    robot = planar_leg()
    state = robot.random(batch=(3,), seed=1)
    x = robot.contact_dynamics(*state, rg.Contact("foot"))
    y = robot.contact_dynamics(*state, rg.Contact("lower", offset=(0, 0, -0.5)))
    assert np.allclose(x.a, y.a, rtol=1e-10, atol=1e-10) and np.allclose(
        x.force, y.force, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("engine", ["numpy", "lanes"])
def test_a_result_can_be_given_again(engine):
    """As out=, with its arrays; the remark on redundant contacts is that of the new call."""
    robot = (
        rg.Builder("bar")
        .link("base", 1.0, (0, 0, 0), np.eye(3))
        .link("arm", 1.0, (0.1, 0, 0), np.eye(3))
    )
    robot = robot.joint("j", "revolute", "base", "arm", axis=(0, 1, 0)).build(
        floating_base=True, engine=engine
    )
    state, tip = robot.random(batch=(3,), seed=0), rg.Contact("arm", offset=(0.3, 0, 0))
    expected = robot.contact_dynamics(*state, tip)
    given = robot.contact_dynamics(*robot.random(batch=(3,), seed=1), tip, damped=True)
    found = robot.contact_dynamics(*state, tip, out=given)
    assert (
        found.a is given.a
        and found.force is given.force
        and "redundant" in given.damping
        and found.damping is None
    )
    assert np.array_equal(found.a, expected.a) and np.array_equal(found.force, expected.force)
    fast, pair = (
        robot.compile("contact_dynamics", contacts=tip),
        tuple(map(np.empty_like, expected[:2])),
    )
    assert fast(*state, out=pair) is pair and fast(*state, out=found).a is given.a
    assert np.array_equal(given.a, pair[0])
    with pytest.raises(InputError, match="out has 3 arrays; it needs 2"):
        robot.contact_dynamics(*state, tip, out=(*pair, None))


def test_masks_and_places_that_mean_nothing_are_refused():
    robot = planar_leg()
    state, pose = robot.random(batch=(2,), seed=1), np.eye(4)
    for odd in ([[0.5]], [[1], [2]], np.float32([[-1.0]])):
        with pytest.raises(
            InputError, match="active is 1 where a contact holds and 0 where it does not"
        ):
            robot.contact_dynamics(*state, rg.Contact("foot"), active=odd)
    a = robot.contact_dynamics(*state, rg.Contact("foot"), active=[[np.nan], [1.0]]).a
    assert np.isnan(a[0]).all() and np.isfinite(a[1]).all()
    held = rg.Contact("foot", "surface", gains=(1.0, 0.0), place=pose)
    robot.contact_dynamics(*state, held)
    for odd in (0 * pose, np.diag([1.0, 1.0, -1.0, 1.0])):
        with pytest.raises(
            InputError, match="'foot': place has a pose whose upper left 3 x 3 block is no rotation"
        ):
            robot.contact_dynamics(*state, dataclasses.replace(held, place=odd))
    with pytest.raises(InputError, match="damped is True, False or None"):
        robot.contact_dynamics(*state, rg.Contact("foot"), damped="yes")


def test_the_world_is_no_partner():
    robot = rg.load("iiwa14")
    state, base = robot.random(seed=0), robot.frames[0]
    with pytest.raises(InputError, match="fixed to the world"):
        robot.contact_dynamics(*state, rg.Contact(base))
    with pytest.raises(InputError, match=r"a loop to the world is a rg\.Contact"):
        robot.contact_dynamics(*state, rg.Loop("iiwa_link_7", base))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masks_and_batches(dtype):
    """All four functions with masks: what does not hold is as if it were not there, and a state has
    the same bits in a batch of any size.
    """
    robot = planar_leg()
    contacts = [rg.Contact("foot"), rg.Contact("hip", offset=(0.1, 0, 0))]
    count = 70
    q, v, tau = (x.astype(dtype) for x in robot.random(batch=(count,), seed=5))
    active = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], bool)[np.arange(count) % 4]
    calls = {
        "contact_dynamics": (q, v, tau),
        "contact_dynamics_derivatives": (q, v, tau),
        "impact": (q, v),
        "impact_derivatives": (q, v),
    }
    for name, inputs in calls.items():
        options = {"damped": False}
        whole = getattr(robot, name)(*inputs, contacts, active=active, **options)
        fast = robot.compile(
            name, contacts=contacts, masked=True, dtype=np.dtype(dtype).name, **options
        )
        extra = (np.zeros(count, dtype),) if name.startswith("impact") else ()
        again = fast(*inputs, *extra, active.astype(dtype))
        for x, y in zip(whole[:-1], again[:-1], strict=True):
            assert x.dtype == dtype and np.array_equal(x, y)
        width = robot.explain(
            name, contacts=contacts, masked=True, dtype=np.dtype(dtype).name, **options
        ).width
        for size in {1, width - 1, width, width + 1, 33}:
            part = getattr(robot, name)(
                *(x[:size] for x in inputs), contacts, active=active[:size], **options
            )
            for x, y in zip(part[:-1], whole[:-1], strict=True):
                assert np.array_equal(x, y[:size])
        for row in range(4):
            kept = [c for c, on in zip(contacts, active[row], strict=True) if on]
            alone = getattr(robot, name)(*(x[row] for x in inputs), kept, **options)
            rows = np.repeat(active[row], 3)
            for x, y in zip(whole[:-1], alone[:-1], strict=True):
                x = x[row]
                if x.shape[0] == 6 and x.shape != y.shape:
                    assert not x[~rows].any()
                    x = x[rows]
                scale = max(1.0, float(abs(y).max(initial=0.0)))
                assert np.allclose(
                    x, y, rtol=0, atol=(2e-3 if dtype == np.float32 else 1e-9) * scale
                ), (name, row)


def test_nan_in_a_row_of_derivatives_and_impacts_stays_there():
    robot = planar_leg()
    q, v, tau = robot.random(batch=(9,), seed=2)
    held, others = rg.Contact("foot"), np.arange(9) != 4
    for name, inputs in (
        ("contact_dynamics_derivatives", (q, v, tau)),
        ("impact", (q, v)),
        ("impact_derivatives", (q, v)),
    ):
        clean = getattr(robot, name)(*inputs, held)
        broken = [x.copy() for x in inputs]
        broken[1][4, 3] = np.nan
        found = getattr(robot, name)(*broken, held)
        assert any(np.isnan(x[4]).any() for x in found[:-1])
        assert all(
            np.array_equal(x[others], y[others])
            for x, y in zip(found[:-1], clean[:-1], strict=True)
        )


def test_no_contacts_have_derivatives_and_impacts():
    robot = planar_leg()
    q, v, tau = robot.random(batch=(2,), seed=3)
    d, free = robot.contact_dynamics_derivatives(q, v, tau, []), robot.aba_derivatives(q, v, tau)
    for x, y in ((d.a_dq, free.dq), (d.a_dv, free.dv), (d.a_dtau, free.dtau)):
        assert np.allclose(x, y, rtol=1e-9, atol=1e-9 * abs(y).max())
    assert d.force_dq.shape == (2, 0, robot.nv)
    assert np.array_equal(robot.impact(q, v, []).v, v) and robot.impact(q, v, []).impulse.shape == (
        2,
        0,
    )
    assert np.allclose(robot.impact_derivatives(q, v, []).v_dv, np.eye(robot.nv))
    assert robot.contact_jacobian(q, []).shape == (2, 0, robot.nv) and robot.delassus(
        q, []
    ).shape == (2, 0, 0)


@needs_compiler
def test_masked_contacts_in_c(tmp_path):
    """Generated C takes the mask as an input of its own, and has our numbers."""
    robot, n = planar_leg(), 7
    q, v, tau = robot.random(batch=(n,), seed=6)
    active = np.arange(n)[:, None] % 2.0
    options = {"contacts": [rg.Contact("foot")], "masked": True}
    inputs = {
        "contact_dynamics": (q, v, tau),
        "contact_dynamics_derivatives": (q, v, tau),
        "impact_derivatives": (q, v),
    }
    files = rg.generate(robot, [(name, options) for name in inputs], out=tmp_path)
    assert "active" in next(f for f in files if f.suffix == ".h").read_text()
    programs = {
        f: formulation.program_of(
            robot.model, f, contacts=robot.constraint_set(f, options["contacts"], True)
        )
        for f in inputs
    }
    library = Library(tmp_path, "leg", [*SAME_BITS, *VECTORS], programs)
    for name, arrays in inputs.items():
        extra = (np.zeros((n, 1)),) if name == "impact_derivatives" else ()
        ours = getattr(robot, name)(*arrays, options["contacts"], active=active)[:-1]
        for batch in (True, False):
            for x, y in zip(
                library.call(name, (*arrays, *extra, active), np.float64, batch), ours, strict=True
            ):
                assert_close(x, y.reshape(n, -1), 1e-11, name)


def two_arms(engine):
    """Two arms side by side on the world, the second with a finger that follows its elbow, and a
    third that nothing holds.
    """
    b = rg.Builder("arms").link("ground", 1.0, (0, 0, 0), np.eye(3))
    for arm, y in (("a", -0.2), ("b", 0.2), ("c", 0.6)):
        for k, (parent, axis) in enumerate(
            (
                ("ground", (0, 0, 1)),
                (f"{arm}0", (0, 1, 0)),
                (f"{arm}1", (0, 1, 0)),
                (f"{arm}2", (1, 0, 0)),
            )
        ):
            b = b.link(f"{arm}{k}", 1.0 - 0.2 * k, (0.01, 0.02, -0.15), np.diag([0.02, 0.03, 0.01]))
            follows = {"mimic": ("joint_b2", 0.5, 0.1)} if (arm, k) == ("b", 3) else {}
            b = b.joint(
                f"joint_{arm}{k}",
                "revolute",
                parent,
                f"{arm}{k}",
                xyz=(0, y, 0) if k == 0 else (0, 0, -0.3),
                axis=axis,
                **follows,
            )
    return b.build(engine=engine)


RODS = [
    ROD,
    dataclasses.replace(PLANTAR, gains=(3.0, 2.0)),
    rg.Contact("toe", "surface", gains=(0.0, 4.0), offset=(0.05, 0.0, -0.017)),
]
HANDS = [
    rg.Loop("a3", "b3", offset_a=(0.05, 0, -0.2)),
    rg.Contact("b3", offset=(0.1, 0.05, -0.2), gains=(0.0, 3.0)),
]


@pytest.mark.parametrize(
    ("make", "held", "damped"),
    [
        (lambda engine: cassie(engine=engine), RODS, False),
        (two_arms, HANDS, False),
        (two_arms, [*HANDS, HANDS[1]], True),
    ],
)
def test_products_in_tiles_are_the_same_gradient(monkeypatch, make, held, damped):
    """Large robots multiply P, F and X in tiles: the kernel, read and compiled, against the
    straight line; loops, gains, masks, mimic joints, arms apart and a free base included.
    """
    robot = make("lanes")
    q, v, tau = robot.random(batch=(11,), seed=7)
    active = np.ones((11, len(held)))
    active[1::2, 1] = 0.0
    name = "contact_dynamics_derivatives"
    expected = make("numpy").contact_dynamics_derivatives(
        q, v, tau, held, active=active, damped=damped
    )
    monkeypatch.setattr(formulation, "_CONTACTS_TILED_FROM", 0)
    kernel = formulation.source_of(
        robot.model, name, contacts=robot.constraint_set(name, held, True, damped)
    )
    assert isinstance(kernel, Kernel)
    found = interpret(kernel, {"q": q, "v": v, "tau": tau, "active": active})
    fast = robot.compile(name, contacts=held, masked=True, damped=damped)
    compiled = fast(q, v, tau, active)
    slack = 1e-7 if damped else max(slack_of(robot, x, held) for x in q)
    assert slack < 1e-6
    for part, x, y in zip(DERIVATIVES, compiled, expected, strict=False):
        assert_close(found[part].reshape(y.shape), y, slack, part)
        assert_close(x, y, slack, part)
        assert np.array_equal(getattr(fast(q[:3], v[:3], tau[:3], active[:3]), part), x[:3])
