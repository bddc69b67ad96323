"""Contacts and loops of robots against Pinocchio's own functions, laws of energy and momentum, and
how they are called. Random trees are in `test_contact_trees.py`.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from contact_trees import complex_step, held_point, prepared
from random_trees import assert_close, random_tree, suite
from test_contact_trees import DERIVATIVES

import rigidgrad as rg
from rigidgrad.errors import InputError, UnknownNameError

EPS = np.finfo(float).eps
FEET = ("lf_lowerleg", "lh_lowerleg", "rf_lowerleg", "rh_lowerleg")
SHIN = (0.0, 0.0, -0.33)
TREES = [(seed, bodies) for seed, bodies in suite() if bodies <= 12]


def feet(names=FEET, **options):
    return [rg.Contact(f, offset=SHIN, **options) for f in names]


@pytest.fixture(scope="module")
def hyq():
    return rg.load("hyq", floating_base=True)


# --- robots that stand ----------------------------------------------------------------------------


def at_rest_in_contact(robot, contacts, q, v):
    """The nearest velocity that does not move the contacts."""
    J = robot.contact_jacobian(q, contacts)
    return v - np.linalg.pinv(J) @ (J @ v)


def pinocchio_contacts(robot, model, contacts):
    found = pin.StdVec_RigidConstraintModel()
    for c in contacts:
        frame = robot.model.frame(c.frame)
        own = pin.SE3(np.array(frame.placement.R), np.array(frame.placement.p)) * pin.SE3(
            np.eye(3), np.array(c.offset)
        )
        kind = pin.ContactType.CONTACT_3D if c.rows == 3 else pin.ContactType.CONTACT_6D
        found.append(
            pin.RigidConstraintModel(
                kind, model, frame.body + 1, own, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
            )
        )
    return found


@pytest.mark.parametrize(
    ("name", "contacts"),
    [
        ("hyq", feet()),
        ("hyq", feet(FEET[:2])),
        ("atlas", [rg.Contact("l_foot", "surface"), rg.Contact("r_foot", "surface")]),
        ("atlas", [rg.Contact("l_foot", "surface"), rg.Contact("r_hand")]),
    ],
)
def test_constraint_dynamics_of_pinocchio(name, contacts):
    """The same as its constraintDynamics, impulseDynamics and their derivatives, for contacts that
    do not move.
    """
    robot = rg.load(name, floating_base=True, engine="numpy")
    model = robot.to_pinocchio()
    q, v, tau = robot.random(seed=4)
    v = at_rest_in_contact(robot, contacts, q, v)
    held = pinocchio_contacts(robot, model, contacts)
    data, parts = model.createData(), pin.StdVec_RigidConstraintData()
    for c in held:
        parts.append(c.createData())
    pin.initConstraintDynamics(model, data, held, parts)
    settings = pin.ProximalSettings(1e-14, 0.0, 1)
    a = pin.constraintDynamics(model, data, q, v, tau, held, parts, settings)
    pin.computeConstraintDynamicsDerivatives(model, data, held, parts, settings)
    s, d = (
        robot.contact_dynamics(q, v, tau, contacts),
        robot.contact_dynamics_derivatives(q, v, tau, contacts),
    )
    condition = np.linalg.cond(robot.delassus(q, contacts)) * np.linalg.cond(robot.crba(q))
    slack = min(50 * EPS * condition, 1e-8)
    assert_close(s.a[None], np.array(a)[None], slack, "a")
    for ours, theirs in zip(DERIVATIVES, (data.ddq_dq, data.ddq_dv, data.ddq_dtau), strict=False):
        assert_close(getattr(d, ours)[None], np.array(theirs)[None], slack, ours)
    for ours, theirs in zip(
        DERIVATIVES[3:], (data.dlambda_dq, data.dlambda_dv, data.dlambda_dtau), strict=True
    ):
        assert_close(getattr(d, ours)[None], np.array(theirs)[None], slack, ours)
    v = robot.random(seed=5).v
    after = pin.impulseDynamics(model, data, q, v, held, parts, 0.4, settings)
    assert_close(robot.impact(q, v, contacts, 0.4).v[None], np.array(after)[None], slack, "impact")


def test_what_stands_still_does_no_work(hyq):
    """Contacts at rest have no power; all power is that of the joint forces and gravity."""
    q, v, tau = hyq.random(batch=(20,), seed=6)
    v = np.array([at_rest_in_contact(hyq, feet(), *x) for x in zip(q, v, strict=True)])
    s = hyq.contact_dynamics(q, v, tau, feet())
    J = hyq.contact_jacobian(q, feet())
    power = np.einsum("bi,bij,bj->b", s.force, J, v)
    assert np.all(abs(power) <= 1e-12 * np.linalg.norm(s.force, axis=1) * np.linalg.norm(v, axis=1))
    # M a + c = τ + Jᵀ f, by inverse dynamics
    left = hyq.rnea(q, v, s.a)
    right = tau + np.einsum("bij,bi->bj", J, s.force)
    assert np.allclose(left, right, rtol=0, atol=1e-11 * abs(left).max())


def test_plastic_impacts_lose_what_their_impulse_takes(hyq):
    q, v, _ = hyq.random(batch=(20,), seed=7)
    s, J = hyq.impact(q, v, feet()), hyq.contact_jacobian(q, feet())
    lost = hyq.energy(q, v).kinetic - hyq.energy(q, s.v).kinetic
    assert np.allclose(lost, -0.5 * np.einsum("bi,bij,bj->b", s.impulse, J, v), rtol=1e-11)
    assert np.all(lost >= 0)
    bounce = hyq.impact(q, v, feet(), 1.0)
    # an elastic one loses nothing
    assert np.allclose(hyq.energy(q, bounce.v).kinetic, hyq.energy(q, v).kinetic, rtol=1e-10)


def test_a_robot_on_the_ground_pushes_with_its_weight(hyq):
    """At rest, standing joint forces: the ground carries the whole weight."""
    q = hyq.neutral()
    for leg, sign in (("lf", 1), ("rf", 1), ("lh", -1), ("rh", -1)):
        for k, name in enumerate(hyq.joints):
            if name.startswith(leg) and "hfe" in name:
                q[hyq.model.joints[k].q] = 0.75 * sign
            if name.startswith(leg) and "kfe" in name:
                q[hyq.model.joints[k].q] = -1.5 * sign
    J = hyq.contact_jacobian(q, feet())
    gravity = hyq.gravity_torque(q)
    f = np.linalg.lstsq(J[:, :6].T, gravity[:6], rcond=None)[0]
    tau = gravity - J.T @ f
    s = hyq.contact_dynamics(q, np.zeros(18), tau, feet())
    mass = hyq.crba(q)[0, 0]
    assert np.allclose(s.a, 0, atol=1e-9)
    assert np.isclose(s.force[2::3].sum(), 9.81 * mass, rtol=1e-12)


def test_masks_let_rows_differ(hyq):
    """`active` holds some contacts in one row and others in the next; what does not hold has no
    force.
    """
    q, v, tau = hyq.random(batch=(4,), seed=8)
    active = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], float)
    s = hyq.contact_dynamics(q, v, tau, feet(), active=active)
    for k, row in enumerate(active):
        kept = [f for f, on in zip(FEET, row, strict=True) if on]
        if kept:
            alone = hyq.contact_dynamics(q[k], v[k], tau[k], feet(kept))
            assert np.allclose(s.a[k], alone.a, rtol=0, atol=1e-10 * abs(alone.a).max())
            assert np.allclose(
                s.force[k].reshape(4, 3)[row == 1].ravel(),
                alone.force,
                rtol=0,
                atol=1e-10 * abs(alone.force).max(),
            )
        else:
            assert np.allclose(s.a[k], hyq.aba(q[k], v[k], tau[k]), rtol=1e-10, atol=1e-10)
        assert np.all(s.force[k].reshape(4, 3)[row == 0] == 0)


def test_a_table_on_four_legs_shares_its_weight_and_says_so():
    """Four legs of one body: three would do. The acceleration is right, the forces share the load,
    and the result says that they are damped.
    """
    table = (
        rg.Builder("table")
        .link("top", 10.0, (0, 0, 0), np.diag([1.0, 1.0, 2.0]))
        .build(floating_base=True)
    )
    legs = [table]
    for k, (x, y) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))):
        legs.append(legs[-1].add_frame(f"leg{k}", "top", (x, y, -1.0)))
    table = legs[-1]
    contacts = [rg.Contact(f"leg{k}") for k in range(4)]
    s = table.contact_dynamics(table.neutral(), np.zeros(6), np.zeros(6), contacts)
    assert "redundant" in s.damping
    assert np.allclose(s.a, 0, atol=1e-6)
    assert np.allclose(s.force.reshape(4, 3)[:, 2], 10 * 9.81 / 4, rtol=1e-6)
    d = table.contact_dynamics_derivatives(table.neutral(), np.zeros(6), np.zeros(6), contacts)
    assert "redundant" in d.damping and np.isfinite(d.force_dq).all()
    twice = [rg.Contact("leg0", "surface"), rg.Contact("leg1", "surface")]
    assert np.allclose(
        table.contact_dynamics(table.neutral(), np.zeros(6), np.zeros(6), twice).a, 0, atol=1e-6
    )


def test_independent_contacts_are_not_damped(hyq):
    assert hyq.contact_dynamics(*hyq.random(seed=0), feet()).damping is None


def four_bar():
    """Three links in a row on the ground, the last one's end held to the ground by a loop: a
    parallelogram.
    """
    b = rg.Builder("four_bar").link("ground", 1.0, (0, 0, 0), np.eye(3))
    before = "ground"
    for k in range(3):
        b = b.link(f"bar{k}", 1.0, (0.5, 0, 0), np.diag([0.01, 0.1, 0.1]))
        b = b.joint(
            f"j{k}",
            "revolute",
            before,
            f"bar{k}",
            xyz=(0.0 if k == 0 else 1.0, 0, 0),
            axis=(0, 0, 1),
        )
        before = f"bar{k}"
    return b.build(gravity=(0, -9.81, 0))


def test_a_four_bar_linkage_swings_as_its_one_freedom_does():
    """Lagrange's equation for the angle of a parallelogram with equal bars, integrated by hand: a
    loop against it.
    """
    robot = four_bar().add_frame("pivot", "ground", (1.0, 0.0, 0.0))
    # bars 0 and 2 turn by θ, bar 1 stays level: q = (θ, -θ, -π + θ) closes at (1, 0, 0)
    theta, rate = 0.7, 0.4
    q, v = np.array([theta, -theta, np.pi + theta]), np.array([rate, -rate, rate])
    held = [rg.Contact("bar2", offset=(1.0, 0.0, 0.0))]
    s = robot.contact_dynamics(q, v, np.zeros(3), held)
    # T = ½ (2·(0.1 + 0.25) + 1) θ̇² (two turning bars about pivots, one moving along a circle), V =
    # g (0.5 + 1 + 0.5) sin θ
    expected = -9.81 * 2.0 * np.cos(theta) / (2 * (0.1 + 0.25) + 1)
    assert np.isclose(s.a[0], expected, rtol=1e-6)
    assert np.allclose(s.a, [s.a[0], -s.a[0], s.a[0]], rtol=1e-6)


def test_loops_pull_frames_together_with_gains():
    """A loop that has drifted apart closes at the rate of its gains."""
    tree = rg.Builder("pair").link("base", 1.0, (0, 0, 0), np.eye(3))
    for side in "ab":
        tree = tree.link(side, 1.0, (0, 0, 0), np.eye(3)).joint(
            f"free_{side}", "floating", "base", side
        )
    robot = tree.build(gravity=(0, 0, 0))
    q = robot.neutral()
    q[:3] = (0.1, 0.0, 0.0)
    k, c = 100.0, 20.0
    loop = rg.Loop("a", "b", "full", gains=(k, c))
    s = robot.contact_dynamics(q, np.zeros(12), np.zeros(12), [loop])
    assert np.allclose((s.a[:3] - s.a[6:9]), (-k * 0.1, 0, 0), atol=1e-9)
    turned = np.array([0.0, 0.0, np.sin(0.05), np.cos(0.05)])
    q[:3], q[3:7] = 0.0, turned
    s = robot.contact_dynamics(q, np.zeros(12), np.zeros(12), [loop])
    assert np.isclose((s.a[3:6] - s.a[9:12])[2], -k * np.sin(0.1), rtol=1e-9)


def test_gains_hold_places_of_surfaces():
    """A surface that is not where it belongs accelerates towards it: position and rotation, checked
    by differences of the pose.
    """
    robot = rg.load("hyq", floating_base=True, engine="numpy")
    q, v, tau = robot.random(seed=9)
    k, c = 30.0, 11.0
    pose = robot.forward_kinematics(q)["base_link_0"].copy()
    pose[:3, 3] += (0.01, -0.02, 0.03)
    contact = rg.Contact("base_link_0", "surface", gains=(k, c), place=pose)
    s = robot.contact_dynamics(q, v, tau, contact)
    acceleration, velocity = (
        robot.frame_acceleration(q, v, s.a, "base_link_0"),
        robot.frame_velocity(q, v, "base_link_0"),
    )
    assert np.allclose(
        acceleration[:3], -c * velocity[:3] - k * np.array([-0.01, 0.02, -0.03]), atol=1e-9
    )
    assert np.allclose(acceleration[3:], -c * velocity[3:], atol=1e-9)
    d, h = robot.contact_dynamics_derivatives(q, v, tau, contact), 1e-6
    for i in range(robot.nv):
        step = np.zeros(robot.nv)
        step[i] = h
        up, down = (
            robot.contact_dynamics(robot.integrate(q, x), v, tau, contact) for x in (step, -step)
        )
        assert np.allclose(
            (up.a - down.a) / (2 * h), d.a_dq[:, i], rtol=1e-5, atol=1e-5 * abs(d.a_dq).max()
        )
        assert np.allclose(
            (up.force - down.force) / (2 * h),
            d.force_dq[:, i],
            rtol=1e-5,
            atol=1e-5 * abs(d.force_dq).max(),
        )


# --- accelerations of frames ----------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "bodies"), TREES[:12])
def test_frame_accelerations(seed, bodies):
    tree = random_tree(seed, bodies)
    rng, oracle = np.random.default_rng(seed), tree.oracle()
    robot = tree.builder().build(
        floating_base=tree.floating, gravity=tuple(tree.gravity), engine="numpy"
    )
    q, v, a = tree.random_state(rng)
    frame = tree.links[-1].name
    expected = held_point(oracle, prepared(oracle, q, v, a), frame, (0, 0, 0))[2]
    assert_close(robot.frame_acceleration(q, v, a, frame)[None], expected[None], 1e-11, str(tree))
    for axes in ("world", "local", "spatial"):
        whole = (
            robot.jacobian(q, frame, expressed_in=axes) @ a
            + robot.jacobian_derivative(q, v, frame, expressed_in=axes) @ v
        )
        assert_close(
            robot.frame_acceleration(q, v, a, frame, expressed_in=axes)[None],
            whole[None],
            1e-11,
            axes,
        )
        at = robot.model.frame(frame)

        def function(q, v, a, axes=axes, at=at, model=robot.model):
            from rigidgrad.algorithms.textbook.frame_acceleration import frame_acceleration

            return frame_acceleration(model, q, v, a, at, axes)

        d = robot.frame_acceleration_derivatives(q, v, a, frame, expressed_in=axes)
        for ours, theirs in zip(d, complex_step(tree, function, q, (v, a)), strict=True):
            assert_close(ours[None], theirs[None], 1e-11, f"{axes}, {tree}")


# --- use ------------------------------------------------------------------------------------------


def test_compile_takes_contacts(hyq):
    q, v, tau = hyq.random(batch=(5,), seed=1)
    fast = hyq.compile("contact_dynamics", contacts=feet(), masked=True)
    assert list(fast.inputs) == ["q", "v", "tau", "active"]
    found = fast(q, v, tau, np.ones((5, 4)))
    assert np.allclose(found.a, hyq.contact_dynamics(q, v, tau, feet()).a, rtol=1e-10, atol=1e-9)
    out = (np.empty((5, 18)), np.empty((5, 12)))
    assert hyq.contact_dynamics(q, v, tau, feet(), out=out) is out
    assert np.array_equal(out[0], hyq.contact_dynamics(q, v, tau, feet()).a)
    J, pattern = (
        hyq.contact_jacobian(q, feet(), packed=True),
        hyq.pattern("contact_jacobian", contacts=feet()),
    )
    dense = np.zeros((5, 12, 18))
    dense[:, pattern[0], pattern[1]] = J
    assert np.array_equal(dense, hyq.contact_jacobian(q, feet()))


def test_nan_stays_in_its_row(hyq):
    q, v, tau = hyq.random(batch=(9,), seed=2)
    clean = hyq.contact_dynamics(q, v, tau, feet())
    v[4, 7] = np.nan
    s = hyq.contact_dynamics(q, v, tau, feet())
    others = np.arange(9) != 4
    assert np.isnan(s.a[4]).any()
    assert np.array_equal(s.a[others], clean.a[others]) and np.array_equal(
        s.force[others], clean.force[others]
    )
    with pytest.raises(InputError, match=r"NaN|finite"):
        hyq.contact_dynamics(q, v, tau, feet(), check=True)


def test_no_contacts_are_free_dynamics(hyq):
    q, v, tau = hyq.random(seed=3)
    s = hyq.contact_dynamics(q, v, tau, [])
    assert s.force.shape == (0,)
    assert np.allclose(s.a, hyq.aba(q, v, tau), rtol=1e-10, atol=1e-10)


def test_explanations_tell_of_contacts(hyq):
    assert "contact_dynamics" in str(hyq.explain("contact_dynamics", contacts=feet()))


def test_opencl_computes_contacts():
    pytest.importorskip("pyopencl")
    robot = rg.load("iiwa14")
    device, held = robot.to("opencl", shape="thread"), rg.Contact("iiwa_link_7")
    q, v, tau = robot.random(batch=(37,), seed=0)
    for name in ("contact_dynamics", "contact_dynamics_derivatives"):
        for x, y in zip(
            getattr(device, name)(q, v, tau, held)[:-1],
            getattr(robot, name)(q, v, tau, held)[:-1],
            strict=True,
        ):
            assert np.max(abs(x - y)) <= 1e-8 * np.max(abs(y))
    x, y = device.impact(q, v, held, 0.5), robot.impact(q, v, held, 0.5)
    assert np.allclose(x.v, y.v, rtol=1e-8, atol=1e-8) and np.allclose(
        x.impulse, y.impulse, rtol=1e-8, atol=1e-8
    )


def test_clear_errors(hyq):
    state = hyq.random(seed=0)
    with pytest.raises(UnknownNameError, match="lf_lowerleg"):
        hyq.contact_dynamics(*state, [rg.Contact("lf_lowerlge")])
    for wrong, said in (
        ({"kind": "line"}, "'point', 'surface'"),
        ({"normal": (0, 0, 0)}, "length zero"),
        ({"friction": -1}, "friction"),
        ({"gains": (-1, 0)}, "not negative"),
        ({"gains": (1, 0)}, "place"),
        ({"offset": (0, 0)}, "3 finite numbers"),
        ({"offset": (0, 0, np.nan)}, "3 finite numbers"),
    ):
        with pytest.raises(InputError, match=said):
            rg.Contact("lf_lowerleg", **wrong)
    fixed = rg.load("iiwa14")
    for frame in (None, 3, ["lf_lowerleg"], {}):
        with pytest.raises(InputError, match="names a frame by its text"):
            rg.Contact(frame)
        with pytest.raises(InputError, match="names a frame by its text"):
            rg.Loop("lf_lowerleg", frame)
    with pytest.raises(InputError, match="fixed to the world"):
        fixed.contact_dynamics(*fixed.random(seed=0), rg.Contact(fixed.frames[0]))
    with pytest.raises(InputError, match="same body"):
        hyq.contact_dynamics(*state, rg.Loop("lf_lowerleg", "lf_lowerleg"))
    for restitution in (-0.1, 1.5, np.nan, "much"):
        with pytest.raises(InputError, match="from 0 to 1"):
            hyq.impact(state.q, state.v, feet(), restitution)
    with pytest.raises(InputError, match=r"rg\.Contact"):
        hyq.contact_dynamics(*state, ["lf_lowerleg"])
    with pytest.raises(InputError, match="takes no contacts"):
        hyq.compile("rnea", contacts=feet())
    with pytest.raises(InputError, match="needs contacts"):
        hyq.compile("impact")
