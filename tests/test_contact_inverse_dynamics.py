"""Inverse dynamics through contacts: its optimum against the conditions of optimality with
Pinocchio's matrices, SciPy, a closed form, and forward dynamics.

The optimum is that of ½ω|r|² + ½|τ|² + ½ε|f|²: with p its gradient by f, f is optimal if and only
if f lies in the cones, p in the dual ones, and p·f = 0.
"""

from __future__ import annotations

import numpy as np
import pytest
from contact_trees import equations, random_contacts
from random_trees import random_tree
from scipy.optimize import minimize
from test_contacts import TREES, at_rest_in_contact, feet
from test_kernel_code import CLibrary
from test_kernel_rounds import on_opencl
from test_target_c import needs_compiler

import rigidgrad as rg
from rigidgrad.algorithms.fast.contact_inverse_dynamics import SMALL
from rigidgrad.errors import InputError, UnknownNameError
from rigidgrad.runtime.formulation import source_of

SOLES = [rg.Contact("l_foot", "surface"), rg.Contact("r_foot", "surface")]


def standing(robot, batch, seed=0, push=0.3):
    """Upright states that move slowly."""
    rng = np.random.default_rng(seed)
    q = robot.random(batch=(batch,), seed=seed).q
    q[:, 3:7] = (0, 0, 0, 1)
    return q, 0.1 * rng.normal(size=(batch, robot.nv)), push * rng.normal(size=(batch, robot.nv))


@pytest.fixture(scope="module")
def hyq():
    return rg.load("hyq", floating_base=True)


def cones(contacts, force):
    """Of each contact: how far its force lies inside of the cone (negative: outside), its normal
    and the rows of its force.
    """
    start = 0
    for c in contacts:
        if isinstance(c, rg.Contact):
            rows, n = slice(start, start + 3), np.array(c.normal)
            normal = force[..., rows] @ n
            across = np.linalg.norm(force[..., rows] - normal[..., None] * n, axis=-1)
            yield c, np.minimum(normal, c.friction * normal - across), n, rows
        start += c.rows


def free_rows(contacts):
    return np.concatenate(
        [np.arange(c.rows) >= (3 if isinstance(c, rg.Contact) else 0) for c in contacts]
    )


def assert_optimal(s, w, J, contacts, driven, label=""):
    """For one state."""
    size, lever = np.linalg.norm(w), np.sqrt(np.mean(np.sum(J * J, axis=1)))
    assert s.converged == 1, label
    assert np.allclose(
        s.tau + J.T @ s.force + s.residual,
        w,
        rtol=0,
        atol=1e-12 * (size + lever * np.linalg.norm(s.force)),
    ), label
    assert np.all(s.tau[~driven] == 0) and np.all(s.residual[driven] == 0), label
    for _, inside, _, _ in cones(contacts, s.force):
        assert inside >= -1e-12 * size / lever, label
    p = -J @ s.residual / SMALL - J @ s.tau + SMALL * lever**2 * s.force
    # √rounding beside the terms of the conditions, as `.converged` promises, for the few numbers
    # that each has
    terms = size * lever + np.abs(J @ s.residual).max() / SMALL
    slack = 20 * 1.5e-8 * terms
    free = free_rows(contacts)
    assert np.all(abs(p[free]) <= slack), label
    assert abs(p[~free] @ s.force[~free]) <= slack * size / lever, label
    for c, _, n, rows in cones(contacts, s.force):
        normal = p[rows] @ n
        across = np.linalg.norm(p[rows] - normal * n)
        assert normal - c.friction * across >= -slack, label


def turned(contacts, seed):
    """The same contacts with normals and frictions of all kinds."""
    rng = np.random.default_rng(seed)
    found = []
    for c in contacts:
        if isinstance(c, rg.Contact):
            normal = np.eye(3)[rng.integers(3)] if rng.integers(2) else rng.normal(size=3)
            c = rg.Contact(
                c.frame,
                c.kind,
                offset=c.offset,
                friction=float(rng.choice([0.0, 0.1, 0.7, 3.0])),
                normal=normal,
            )
        found.append(c)
    return found


def driven_numbers(robot):
    """Which numbers of v a motor drives."""
    moved = {joint for forces in robot.actuation.values() for joint in forces}
    found = np.zeros(robot.nv, bool)
    for j in robot.model.joints:
        if j.name in moved:
            found[j.v : j.v + j.nv] = True
    return found


@pytest.mark.parametrize("group", range(3))
def test_random_trees_are_optimal(group):
    """With Pinocchio's matrices, wrenches, mimic joints, loops, both kinds of contacts, fixed and
    floating bases.
    """
    tried = 0
    for seed, bodies in TREES[group::5][:14]:
        tree = random_tree(seed, bodies)
        rng, oracle = np.random.default_rng(seed), tree.oracle()
        robot = tree.builder().build(
            floating_base=tree.floating, gravity=tuple(tree.gravity), engine="numpy"
        )
        q, v, a = tree.random_state(rng)
        external = tree.random_wrenches(rng)
        draw = np.random.default_rng(seed)
        found = random_contacts(tree, oracle, q, draw, int(draw.integers(1, 7)))
        contacts = turned(found, seed)
        if not contacts:
            continue
        driven = driven_numbers(robot)
        s = robot.contact_inverse_dynamics(q, v, a, contacts, external=external)
        J = equations(oracle, q, v, contacts)[0]
        assert_optimal(
            s, oracle.rnea(q, v, a, external), J, contacts, driven, f"{tree}, {contacts}"
        )
        tried += 1
    assert tried >= 8


@pytest.mark.parametrize(
    ("name", "contacts"),
    [("hyq", feet()), ("hyq", feet(friction=0.0)), ("hyq", feet(friction=0.1)), ("atlas", SOLES)],
)
def test_robots_that_stand_are_optimal(name, contacts):
    robot = rg.load(name, floating_base=True)
    q, v, a = standing(robot, 40, push=1.0)
    s = robot.contact_inverse_dynamics(q, v, a, contacts)
    w, J, driven = robot.rnea(q, v, a), robot.contact_jacobian(q, contacts), driven_numbers(robot)
    assert not driven[:6].any() and driven[6:].all()
    for k in range(len(q)):
        assert_optimal(type(s)(*(x[k] for x in s)), w[k], J[k], contacts, driven)


def by_scipy(w, J, contacts, driven):
    """First the least residual over the cones; then, where it is zero, the least effort: two
    programs, no weights.
    """
    rows = np.arange(3 * len(contacts)).reshape(-1, 3)
    size = np.linalg.norm(w)

    def inside(x):
        f = x[rows]
        return np.concatenate(
            [
                (c.friction * f[k, 2]) ** 2 - f[k, 0] ** 2 - f[k, 1] ** 2
                for k, c in enumerate(contacts)
            ],
            axis=None,
        )

    held = [{"type": "ineq", "fun": inside}, {"type": "ineq", "fun": lambda x: x[rows[:, 2]]}]

    def solve(A, b, extra, x):
        found = minimize(
            lambda x: 0.5 * np.sum((A @ x - b) ** 2),
            x,
            jac=lambda x: A.T @ (A @ x - b),
            constraints=held + extra,
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-15},
        )
        return found.x

    A, b = J.T[~driven], w[~driven] / size
    x = np.zeros(3 * len(contacts))
    x[2::3] = 0.3
    x = solve(A, b, [], x)
    residual = np.linalg.norm(A @ x - b) * size
    if residual > 1e-5 * size:
        return residual, None
    x = solve(
        J.T[driven],
        w[driven] / size,
        [{"type": "eq", "fun": lambda x: A @ x - b, "jac": lambda x: A}],
        x,
    )
    return residual, np.linalg.norm(w[driven] - J.T[driven] @ x * size)


@pytest.mark.parametrize(("friction", "push"), [(0.7, 0.3), (0.1, 3.0), (0.4, 20.0)])
def test_least_residual_then_least_effort_by_scipy(hyq, friction, push):
    """SLSQP stops up to 1e-4 above the optimum; ours may not be above its by more than the weight ω
    costs.
    """
    contacts = feet(friction=friction)
    q, v, a = standing(hyq, 8, seed=3, push=push)
    s = hyq.contact_inverse_dynamics(q, v, a, contacts)
    w, J, driven = hyq.rnea(q, v, a), hyq.contact_jacobian(q, contacts), driven_numbers(hyq)
    realised = 0
    for k in range(len(q)):
        residual, effort = by_scipy(w[k], J[k], contacts, driven)
        size = np.linalg.norm(w[k])
        assert -1e-4 * size <= np.linalg.norm(s.residual[k]) - residual <= 1e-6 * size
        if effort is not None:
            realised += 1
            assert np.linalg.norm(s.residual[k]) <= 1e-6 * size
            assert np.linalg.norm(s.tau[k]) <= effort * (1 + 1e-5)
            assert np.linalg.norm(s.tau[k]) >= effort * (1 - 1e-3)
    assert realised >= 2 if push < 1 else realised < 8


def test_forward_dynamics_give_back_what_was_asked_for(hyq):
    """Accelerations under which feet stay in place, from forward dynamics with joint forces that
    hold the robot.
    """
    q, v, _ = standing(hyq, 30, seed=1)
    v = np.array([at_rest_in_contact(hyq, feet(), *x) for x in zip(q, v, strict=True)])
    held = hyq.contact_inverse_dynamics(q, v, np.zeros_like(v), feet())
    a = hyq.contact_dynamics(
        q,
        v,
        held.tau + np.random.default_rng(0).normal(size=v.shape) * (np.arange(18) >= 6),
        feet(),
    ).a
    s = hyq.contact_inverse_dynamics(q, v, a, feet())
    w = np.linalg.norm(hyq.rnea(q, v, a), axis=1)
    realised = np.linalg.norm(s.residual, axis=1) < 1e-6 * w
    assert realised.sum() >= 10
    back = hyq.contact_dynamics(q, v, s.tau, feet())
    # a residual of 1e-6 of the robot's weight, accelerating its lightest part
    slack = 1e-6 * w * np.linalg.norm(hyq.minv(q), ord=2, axis=(1, 2))
    assert np.all(np.linalg.norm(back.a - a, axis=1)[realised] <= slack[realised])
    condition = np.linalg.norm(np.linalg.inv(hyq.delassus(q, feet())), ord=2, axis=(1, 2))
    assert np.all(
        np.linalg.norm(back.force - s.force, axis=1)[realised]
        <= (1e-6 * w + condition * slack)[realised]
    )


@pytest.mark.parametrize("friction", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("normal", [(0, 0, 1), (0, -1, 0), (0.3, -0.5, 0.8)])
def test_a_body_held_in_its_middle(friction, normal):
    """The least residual is the distance from the cone: its projection has a closed form."""
    inertia = np.diag([0.1, 0.2, 0.3])
    robot = rg.Builder("body").link("base", 2.0, (0, 0, 0), inertia).build(floating_base=True)
    contact = rg.Contact("base", friction=friction, normal=normal)
    rng = np.random.default_rng(0)
    a = np.zeros((200, 6))
    a[:, :3] = 20 * rng.normal(size=(200, 3))
    q = np.tile(robot.neutral(), (200, 1))
    s = robot.contact_inverse_dynamics(q, np.zeros((200, 6)), a, contact)
    asked, n = 2.0 * (a[:, :3] + (0, 0, 9.81)), np.array(contact.normal)
    up = asked @ n
    across = asked - up[:, None] * n
    length = np.linalg.norm(across, axis=1)
    # the height of the projection onto the border
    on = np.maximum((up + friction * length) / (1 + friction**2), 0)
    border = on[:, None] * (n + friction * across / length[:, None])
    expected = np.where((length <= friction * up)[:, None], asked, border)
    size = np.linalg.norm(asked, axis=1, keepdims=True)
    assert np.all(s.converged == 1) and np.all(s.tau == 0)
    assert np.all(abs(s.force - expected) <= 1e-5 * size)  # ε of 1e-6 and ω of 1e6 are in it
    assert np.all(abs(s.residual[:, :3] - (asked - expected)) <= 1e-5 * size)
    assert 20 < np.sum(length > friction * up) < 201


def test_a_jump_on_ice_cannot_be_had(hyq):
    """Without friction nothing pushes forward, and no foot pulls down: these parts of the demand
    are what is missing.
    """
    q, v, _ = standing(hyq, 5, push=0)
    mass = hyq.crba(q)[0, 0, 0]
    forward, down = np.zeros((5, 18)), np.zeros((5, 18))
    forward[:, 0] = 3.0
    down[:, 2] = -9.81 - 5.0
    s = hyq.contact_inverse_dynamics(q, 0 * v, forward, feet(friction=0.0))
    assert np.allclose(s.residual[:, 0], mass * 3.0, rtol=1e-6)
    s = hyq.contact_inverse_dynamics(q, 0 * v, down, feet())
    assert np.all(np.linalg.norm(s.residual[:, :3], axis=1) >= mass * 5.0 * (1 - 1e-6))


def test_masks_leave_contacts_out(hyq):
    q, v, a = standing(hyq, 12)
    active = np.ones((12, 4))
    active[::2, 1] = 0
    active[3] = 0
    s = hyq.contact_inverse_dynamics(q, v, a, feet(), active=active)
    whole, three = (
        hyq.contact_inverse_dynamics(q, v, a, [feet()[k] for k in which])
        for which in ((0, 1, 2, 3), (0, 2, 3))
    )
    size = np.linalg.norm(hyq.rnea(q, v, a), axis=1, keepdims=True)
    some = np.arange(12) % 2 == 1
    some[3] = False
    assert np.all(s.converged == 1)
    # ε is beside the mean square of the rows, of which those that do not hold are zero
    assert np.all(abs(s.tau - whole.tau)[some] <= 1e-6 * size[some])
    assert np.all(abs(s.tau - three.tau)[::2] <= 1e-4 * size[::2])
    assert np.all(abs(s.residual - three.residual)[::2] <= 1e-6 * size[::2])
    assert np.all(s.force[::2, 3:6] == 0) and np.all(s.force[3] == 0)
    assert np.array_equal(s.residual[3, :6], hyq.rnea(q, v, a)[3, :6])


def test_no_contacts_leave_all_to_the_motors(hyq):
    q, v, a = standing(hyq, 3)
    s = hyq.contact_inverse_dynamics(q, v, a, [])
    assert s.force.shape == (3, 0) and np.all(s.converged == 1)
    w = hyq.rnea(q, v, a)
    assert np.allclose(s.tau[:, 6:], w[:, 6:], rtol=1e-12) and np.allclose(
        s.residual[:, :6], w[:, :6], rtol=1e-12
    )
    assert np.all(s.tau[:, :6] == 0) and np.all(s.residual[:, 6:] == 0)


def test_an_arm_may_lean_on_a_table():
    """All joints are driven: nothing is missing, and contact forces save effort."""
    robot = rg.load("iiwa14")
    q, v, a = robot.random(batch=(9,), seed=0)
    hand = rg.Contact("iiwa_link_7")
    s = robot.contact_inverse_dynamics(q, v, a, hand)
    alone = robot.rnea(q, v, a)
    assert np.all(s.converged == 1) and np.all(s.residual == 0)
    effort, before = np.linalg.norm(s.tau, axis=1), np.linalg.norm(alone, axis=1)
    assert np.all(effort <= before * (1 + 1e-6)) and np.any(effort < 0.9 * before)


def test_actuation_says_what_is_driven(hyq):
    q, v, a = standing(hyq, 6)
    w = hyq.rnea(q, v, a)
    s = hyq.contact_inverse_dynamics(q, v, a, feet(), actuation="all")
    assert np.all(s.residual == 0) and np.all(s.converged == 1)
    # one motor on two joints: its force is the same on both, and what differs is missing
    robot = rg.load("iiwa14")
    q, v, a = robot.random(batch=(6,), seed=0)
    first, second, *others = robot.joints
    both = {"both": {first: 1.0, second: 1.0}} | {name: {name: 1.0} for name in others}
    s = robot.contact_inverse_dynamics(q, v, a, [], actuation=both)
    w = robot.rnea(q, v, a)
    assert np.allclose(s.tau[:, 0], s.tau[:, 1]) and np.allclose(
        s.tau[:, 0], (w[:, 0] + w[:, 1]) / 2
    )
    assert np.allclose(s.tau + s.residual, w)
    leaning = robot.contact_inverse_dynamics(q, v, a, rg.Contact("iiwa_link_7"), actuation=both)
    assert np.all(
        np.linalg.norm(leaning.residual, axis=1) <= np.linalg.norm(s.residual, axis=1) * (1 + 1e-6)
    )
    with pytest.raises(InputError, match="actuation"):
        hyq.contact_inverse_dynamics(*standing(hyq, 1), feet(), actuation="legs")


def test_lanes_are_what_is_read_and_bits_do_not_depend_on_the_batch(hyq):
    plain = rg.load("hyq", floating_base=True, engine="numpy")
    q, v, a = standing(hyq, 19, push=1.0)
    wrench = {"base_link_0": np.random.default_rng(1).normal(size=(19, 6)) * 50}
    s, p = (r.contact_inverse_dynamics(q, v, a, feet(), external=wrench) for r in (hyq, plain))
    size = np.linalg.norm(hyq.rnea(q, v, a, external=wrench), axis=1)
    assert np.all(s.converged == 1) and np.all(p.converged == 1)
    # nearly degenerate forces are known to the root of what the objective is
    for name in ("tau", "force", "residual"):
        assert np.all(abs(getattr(s, name) - getattr(p, name)) <= 1e-5 * size[:, None]), name
    for count in (1, 3, 8, 9, 16):
        part = hyq.contact_inverse_dynamics(
            q[:count],
            v[:count],
            a[:count],
            feet(),
            external={"base_link_0": wrench["base_link_0"][:count]},
        )
        for x, y in zip(part, s, strict=True):
            assert np.array_equal(x, y[:count])
    shaped = hyq.contact_inverse_dynamics(
        q[:6].reshape(2, 3, -1), v[:6].reshape(2, 3, -1), a[0], feet()
    )
    assert shaped.force.shape == (2, 3, 12) and shaped.converged.shape == (2, 3)
    one = hyq.contact_inverse_dynamics(q[4], v[4], a[0], feet())
    assert np.array_equal(one.force, shaped.force[1, 1])


def test_float32(hyq):
    q, v, a = standing(hyq, 400)
    s = hyq.contact_inverse_dynamics(q, v, a, feet())
    f = hyq.contact_inverse_dynamics(
        *(x.astype(np.float32) for x in (q, v, a)), feet(), active=np.ones(4, bool)
    )
    assert all(x.dtype == np.float32 for x in f)
    done = f.converged == 1
    assert done.mean() > 0.95
    size = np.linalg.norm(hyq.rnea(q, v, a), axis=1)
    assert np.all(
        abs(np.linalg.norm(f.residual, axis=1) - np.linalg.norm(s.residual, axis=1))[done]
        <= 2e-3 * size[done]
    )
    assert np.median(np.linalg.norm(f.tau - s.tau, axis=1) / size) < 1e-3
    for _, inside, _, _ in cones(feet(), f.force.astype(float)):
        assert np.all(inside >= -1e-5 * size)


def test_nan_stays_in_its_row(hyq):
    q, v, a = standing(hyq, 9)
    clean = hyq.contact_inverse_dynamics(q, v, a, feet())
    a[4, 7] = np.nan
    s = hyq.contact_inverse_dynamics(q, v, a, feet())
    others = np.arange(9) != 4
    assert s.converged[4] == 0 and np.isnan(s.tau[4]).any()
    for x, y in zip(s, clean, strict=True):
        assert np.array_equal(x[others], y[others])
    with pytest.raises(InputError, match=r"NaN|finite"):
        hyq.contact_inverse_dynamics(q, v, a, feet(), check=True)


def test_compile_and_out(hyq):
    q, v, a = standing(hyq, 5)
    fast = hyq.compile("contact_inverse_dynamics", contacts=feet(), masked=True)
    assert list(fast.inputs) == ["q", "v", "a", "active"] and list(fast.outputs) == [
        "tau",
        "force",
        "residual",
        "converged",
    ]
    found, s = (
        fast(q, v, a, np.ones((5, 4))),
        hyq.contact_inverse_dynamics(q, v, a, feet(), active=np.ones((5, 4))),
    )
    out = tuple(np.empty_like(x) for x in s)
    assert hyq.contact_inverse_dynamics(q, v, a, feet(), active=np.ones((5, 4)), out=out) is out
    for x, y, z in zip(found, s, out, strict=True):
        assert np.array_equal(x, y) and np.array_equal(x, z)
    heavy = hyq.compile("contact_inverse_dynamics", contacts=feet(), parameters=("gravity",))
    found = heavy(q, v, a, np.tile([0.0, 0.0, -9.81], (5, 1)))
    assert np.allclose(
        found.residual,
        hyq.contact_inverse_dynamics(q, v, a, feet()).residual,
        atol=1e-6 * np.abs(hyq.rnea(q, v, a)).max(),
    )
    assert "contact_inverse_dynamics" in str(
        hyq.explain("contact_inverse_dynamics", contacts=feet())
    )


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_generated_c_is_what_lanes_compute(hyq, tmp_path, dtype):
    held = feet()[:2]
    rg.generate(hyq, [("contact_inverse_dynamics", {"contacts": held})], out=tmp_path)
    kernel = source_of(
        hyq.model,
        "contact_inverse_dynamics",
        contacts=hyq.constraint_set("contact_inverse_dynamics", held),
    )
    library = CLibrary(tmp_path, "hyq", {"contact_inverse_dynamics": kernel})
    states = [x.astype(dtype) for x in standing(hyq, 13, push=1.0)]
    s = hyq.contact_inverse_dynamics(*states, held)
    tau, force, residual, converged = library.call("contact_inverse_dynamics", states, dtype)
    size = np.linalg.norm(hyq.rnea(*states), axis=1, keepdims=True)
    assert np.array_equal(converged[:, 0], s.converged) and converged.mean() > 0.8
    done = s.converged == 1
    for x, y in ((tau, s.tau), (force, s.force), (residual, s.residual)):
        assert np.all(abs(x - y)[done] <= (1e-5 if dtype == np.float64 else 2e-2) * size[done])


def test_opencl_computes_what_lanes_do(hyq):
    held = feet()[:1]
    kernel = source_of(
        hyq.model,
        "contact_inverse_dynamics",
        contacts=hyq.constraint_set("contact_inverse_dynamics", held),
    )
    states = standing(hyq, 13)
    s, found = hyq.contact_inverse_dynamics(*states, held), on_opencl(kernel, states, "float64")
    size = np.linalg.norm(hyq.rnea(*states), axis=1, keepdims=True)
    assert np.array_equal(found[3], s.converged) and np.all(s.converged == 1)
    for x, y in zip(found[:3], s[:3], strict=True):
        assert np.all(abs(x - y) <= 1e-5 * size)


def test_generated_for_gpus(hyq, tmp_path):
    for target in ("cuda", "opencl"):
        files = rg.generate(
            hyq,
            [("contact_inverse_dynamics", {"contacts": feet()[:1], "actuation": "all"})],
            target,
            tmp_path / target,
        )
        assert any("contact_inverse_dynamics" in f.read_text() for f in files)
    with pytest.raises(InputError, match="rounds"):
        rg.generate(
            hyq,
            [("contact_inverse_dynamics", {"contacts": feet()})],
            "verilog",
            tmp_path / "verilog",
        )


def test_clear_errors(hyq):
    state = standing(hyq, 1)
    with pytest.raises(UnknownNameError, match="lf_lowerleg"):
        hyq.contact_inverse_dynamics(*state, [rg.Contact("lf_lowerlge")])
    with pytest.raises(InputError, match=r"rg\.Contact"):
        hyq.contact_inverse_dynamics(*state, ["lf_lowerleg"])
    with pytest.raises(InputError, match="needs contacts"):
        hyq.compile("contact_inverse_dynamics")
    with pytest.raises(InputError, match="active"):
        hyq.contact_inverse_dynamics(*state, feet(), active=np.ones(3))
