"""Robot at its border: shapes, batches, dtypes, foreign arrays, out=, check=, names; and robots
made from robots.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError, ModelError, ModelWarning, RigidgradError, UnknownNameError


@pytest.fixture(scope="module")
def arm():
    return rg.load("iiwa14")


@pytest.fixture(scope="module")
def dog():
    return rg.load("hyq", floating_base=True)


# --- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3), (0,), (4, 0)])
def test_batch_axes_are_kept(dog, batch):
    s = dog.random(batch, seed=1)
    assert dog.rnea(s.q, s.v, s.tau).shape == (*batch, dog.nv)
    assert dog.crba(s.q).shape == (*batch, dog.nv, dog.nv)
    d = dog.aba_derivatives(s.q, s.v, s.tau)
    assert d.dq.shape == d.dv.shape == d.dtau.shape == (*batch, dog.nv, dog.nv)
    assert dog.energy(s.q, s.v).kinetic.shape == batch
    assert dog.forward_kinematics(s.q)["lf_lowerleg"].shape == (*batch, 4, 4)


def test_rows_of_a_batch_are_single_calls(dog):
    s = dog.random((2, 3), seed=2)
    whole = dog.aba(s.q, s.v, s.tau)
    for index in np.ndindex(2, 3):
        np.testing.assert_array_equal(whole[index], dog.aba(s.q[index], s.v[index], s.tau[index]))


def test_batches_larger_than_a_chunk(arm):
    s = arm.random((2500,), seed=3)
    np.testing.assert_array_equal(
        arm.rnea(s.q, s.v, s.tau)[-7:], arm.rnea(s.q[-7:], s.v[-7:], s.tau[-7:])
    )


def test_batch_axes_broadcast(arm):
    q, v, a = arm.random((3, 1), seed=4).q, arm.random((4,), seed=5).v, arm.random(seed=6).tau
    result = arm.rnea(q, v, a)
    assert result.shape == (3, 4, 7)
    np.testing.assert_array_equal(result[2, 1], arm.rnea(q[2, 0], v[1], a))


def test_float32_stays_and_everything_else_is_float64(arm):
    s = arm.random((3,), seed=7)
    f32 = [x.astype(np.float32) for x in s]
    assert arm.rnea(*f32).dtype == np.float32
    assert arm.rnea(f32[0], s.v, f32[2]).dtype == np.float64
    assert arm.rnea([0] * 7, [0] * 7, [0] * 7).dtype == np.float64
    assert (
        arm.rnea(np.zeros(7, int), np.zeros(7, np.float16), np.zeros(7, bool)).dtype == np.float64
    )
    np.testing.assert_allclose(arm.rnea(*f32), arm.rnea(*s), rtol=1e-4, atol=1e-3)


def test_odd_memory_is_fine(arm):
    s = arm.random((6,), seed=8)
    expected = arm.rnea(*s)
    strided = [np.repeat(x, 2, axis=0)[::2] for x in s]
    fortran = [np.asfortranarray(x) for x in s]
    backwards = [np.ascontiguousarray(x[:, ::-1])[:, ::-1] for x in s]
    frozen = [x.copy() for x in s]
    for x in frozen:
        x.setflags(write=False)
    big_endian = [x.astype(">f8") for x in s]
    for variant in (strided, fortran, backwards, frozen, big_endian):
        np.testing.assert_array_equal(arm.rnea(*variant), expected)


def test_inputs_are_never_changed(dog):
    s = dog.random((4,), seed=9)
    before = [x.copy() for x in s]
    dog.aba_derivatives(*s)
    for x, y in zip(s, before, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("q", "fragment"),
    [
        (np.zeros(6), r"q has shape \(6,\); expected \(…, 7\)"),
        (np.zeros((7, 3)), r"q has shape \(7, 3\)"),
        (3.0, r"q has shape \(\)"),
        (np.zeros(7) * 1j, "complex"),
        (["a"] * 7, "not numbers"),
        ([[1, 2], [3]], "not an array of numbers"),
        (None, "NoneType"),
        ({"q": 1}, "dict"),
    ],
)
def test_wrong_arrays_say_what_came_and_what_was_needed(arm, q, fragment):
    with pytest.raises(InputError, match=fragment):
        arm.rnea(q, np.zeros(7), np.zeros(7))


def test_axes_that_do_not_broadcast(arm):
    with pytest.raises(InputError, match=r"do not broadcast.*q \(2,\).*v \(3,\)"):
        arm.rnea(np.zeros((2, 7)), np.zeros((3, 7)), np.zeros(7))


def test_array_api_arrays_come_back_as_their_own_kind(arm):
    xp = pytest.importorskip("array_api_strict")
    s = arm.random((3,), seed=10)
    foreign = [xp.asarray(x) for x in s]
    result = arm.aba_derivatives(*foreign)
    assert type(result.dq) is type(foreign[0])
    np.testing.assert_array_equal(np.from_dlpack(result.dq), arm.aba_derivatives(*s).dq)
    assert type(arm.forward_kinematics(foreign[0])["iiwa_link_7"]) is type(foreign[0])


def test_objects_with_array_protocol_are_accepted(arm):
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return np.zeros(7)

    np.testing.assert_array_equal(
        arm.rnea(Wrapped(), np.zeros(7), np.zeros(7)),
        arm.rnea(np.zeros(7), np.zeros(7), np.zeros(7)),
    )


def test_arrays_on_another_device_are_refused(arm):
    class OnGpu:
        def __dlpack__(self, **_):
            raise AssertionError("must not be read")

        def __dlpack_device__(self):
            return 2, 0

    with pytest.raises(InputError, match="another device"):
        arm.rnea(OnGpu(), np.zeros(7), np.zeros(7))


def test_out_is_filled_and_returned(arm):
    s = arm.random((5,), seed=11)
    out = np.empty((5, 7))
    assert arm.rnea(*s, out=out) is out
    np.testing.assert_array_equal(out, arm.rnea(*s))
    strided = np.empty((5, 14))[:, ::2]
    np.testing.assert_array_equal(arm.rnea(*s, out=strided), out)
    three = tuple(np.empty((5, 7, 7)) for _ in range(3))
    assert arm.aba_derivatives(*s, out=three) is three
    np.testing.assert_array_equal(three[1], arm.aba_derivatives(*s).dv)


@pytest.mark.parametrize(
    ("out", "fragment"),
    [
        (np.empty((4, 7)), "must be float64"),
        (np.empty((5, 7), np.float32), "must be float64"),
        ([0.0] * 7, "NumPy array"),
        (np.broadcast_to(np.zeros(7), (5, 7)), "read-only"),
    ],
)
def test_wrong_out_is_refused(arm, out, fragment):
    with pytest.raises(InputError, match=fragment):
        arm.rnea(*arm.random((5,), seed=0), out=out)


def test_wrong_number_of_outs(arm):
    with pytest.raises(InputError, match="tuple of 3 arrays"):
        arm.aba_derivatives(*arm.random((5,), seed=0), out=np.empty((3, 5, 7, 7)))


def test_check_raises_on_nan_and_names_the_row(arm):
    s = arm.random((2, 3), seed=12)
    s.v[1, 2, 4] = np.nan
    with pytest.raises(InputError, match=r"v holds NaN.*\(1, 2\)"):
        arm.rnea(*s, check=True)
    assert np.isnan(arm.rnea(*s)[1, 2]).any()
    assert np.isfinite(arm.rnea(*s)[0]).all()


def test_check_raises_on_unnormalised_quaternions(dog):
    s = dog.random((2,), seed=13)
    dog.rnea(*s, check=True)
    s.q[1, 3:7] *= 1.01
    with pytest.raises(InputError, match=r"quaternion of joint 'root_joint'.*normalize"):
        dog.rnea(*s, check=True)
    dog.rnea(dog.normalize(s.q), s.v, s.tau, check=True)


def test_packed_outputs_follow_the_pattern():
    robot = rg.load("hyq")
    s = robot.random((3,), seed=14)
    dense, packed, pattern = (
        robot.aba_derivatives(*s),
        robot.aba_derivatives(*s, packed=True),
        robot.pattern("aba_derivatives"),
    )
    for whole, part, (rows, columns) in zip(dense, packed, pattern, strict=True):
        assert part.shape == (3, len(rows)) and len(rows) == 36  # four legs of three joints
        rebuilt = np.zeros_like(whole)
        rebuilt[:, rows, columns] = part
        np.testing.assert_array_equal(rebuilt, whole)
    rows, _ = robot.pattern("crba")
    assert robot.crba(s.q, packed=True).shape == (3, len(rows))


# --- names ----------------------------------------------------------------------------------------


def test_unknown_names_list_the_nearest(arm):
    q = arm.neutral()
    with pytest.raises(UnknownNameError, match="iiwa_link_7"):
        arm.jacobian(q, "iiwa_link7")
    with pytest.raises(UnknownNameError, match="Did you mean"):
        arm.rnea(q, q, q, external={"iiwa_lnk_3": np.zeros(6)})
    with pytest.raises(UnknownNameError, match="atlas"):
        rg.load("atlass")
    with pytest.raises(UnknownNameError, match="aba_derivatives"):
        arm.pattern("aba_derivative")
    with pytest.raises(UnknownNameError):
        arm.forward_kinematics(q)["nowhere"]
    with pytest.raises(InputError, match="'world', 'local', 'spatial'"):
        arm.jacobian(q, "iiwa_link_7", expressed_in="body")


@pytest.mark.parametrize(
    "source",
    [
        None,
        5,
        1.5,
        ["iiwa14"],
        "",
        "  ",
        "no_such_robot",
        "no/such/file.urdf",
        "x" * 5000,
        "nul\0byte",
    ],
)
def test_sources_that_are_no_robot(source):
    with pytest.raises(RigidgradError):
        rg.load(source)


@pytest.mark.parametrize("gravity", [(0, 0), 9.81, (0, 0, np.nan), "down", None])
def test_gravity_must_be_three_numbers(gravity):
    with pytest.raises(InputError, match="gravity"):
        rg.load("pendulum", gravity=gravity)


def test_unknown_engines_are_refused():
    with pytest.raises(UnknownNameError, match="numpy"):
        rg.load("pendulum", engine="nunpy")


def test_placements_are_a_mapping_that_computes_what_is_asked(arm):
    q = arm.random((2,), seed=15).q
    placements = arm.forward_kinematics(q)
    expected = placements["iiwa_link_7"].copy()
    q[...] = 0.0  # later changes of the input do not matter
    np.testing.assert_array_equal(
        arm.forward_kinematics(arm.random((2,), seed=15).q)["iiwa_link_7"], expected
    )
    assert set(placements) == set(arm.frames) and len(placements) == len(arm.frames)
    assert "iiwa_link_7" in placements and "nothing" not in placements
    np.testing.assert_array_equal(placements["iiwa_link_7"][..., 3, :], [[0, 0, 0, 1]] * 2)
    assert not np.allclose(placements["iiwa_link_6"], np.eye(4))


# --- states ---------------------------------------------------------------------------------------


def test_random_states_are_within_limits_and_repeatable(arm, dog):
    s = arm.random((1000,), seed=16)
    assert (s.q >= arm.limits.lower).all() and (s.q <= arm.limits.upper).all()
    assert (abs(s.v) <= arm.limits.velocity).all() and (abs(s.tau) <= arm.limits.effort).all()
    np.testing.assert_array_equal(s.q, arm.random(1000, seed=16).q)
    assert abs(np.linalg.norm(dog.random((50,), seed=0).q[:, 3:7], axis=1) - 1).max() < 1e-12


def test_limits_that_are_one_point_or_all_numbers_are_drawn_from():
    def robot(lower, upper):
        limit = {"lower": lower, "upper": upper, "effort": 1.0, "velocity": 1.0}
        builder = rg.Builder("p").link("base").link("arm", 1.0, (0, 0, 1), (1, 1, 1))
        return builder.joint("j", "revolute", "base", "arm", axis=(0, 1, 0), limit=limit).build()

    assert (robot(0.0, -0.0).random(5, seed=0).q == 0).all()
    assert (robot(-0.0, 0.0).random(5, seed=0).q == 0).all()
    wide = robot(-1e308, 1e308).random(50, seed=0).q
    assert np.isfinite(wide).all() and abs(wide).max() > 1e307


@pytest.mark.parametrize("engine", rg.robot.ENGINES)
def test_quaternions_without_a_direction_are_not_normalised(engine):
    robot = rg.load("quadrotor", engine=engine)
    q = np.stack([robot.neutral()] * 4)
    q[1, 3:] = 3.0, 0.0, 0.0, 4.0
    np.testing.assert_allclose(robot.normalize(q)[1, 3:], (0.6, 0, 0, 0.8))
    for bad, length in ((0.0, "zero"), (1e-200, "zero"), (1e200, "too long")):
        q[2, 3:] = bad
        with pytest.raises(
            InputError, match=rf"the length of the quaternion of joint '.*' is {length}.*row \(2,\)"
        ):
            robot.normalize(q)
    q[2, 3:] = np.nan
    assert np.isnan(robot.normalize(q)[2, 3:]).all() and np.isfinite(robot.normalize(q)[3]).all()


OBJECTS = np.array([object(), 1.0], dtype=object)


@pytest.mark.parametrize(
    "call",
    [
        lambda r, x: r.rnea(OBJECTS, x, x),
        lambda r, x: r.rnea(x, x, np.array([1.0, None], dtype=object)),
        lambda r, x: r.rnea(x, x, x, external=np.ones(6)),
        lambda r, x: r.rnea(x, x, x, external=OBJECTS),
        lambda r, x: r.rnea(x, x, x, external={r.frames[-1]: OBJECTS}),
        lambda r, x: r.integrate(x, OBJECTS),
        lambda r, x: r.forward_kinematics(OBJECTS),
        lambda r, x: r.jacobian(x, OBJECTS),
        lambda r, x: r.jacobian(x, r.frames[-1], expressed_in=["world"]),
        lambda r, x: r.reduced(OBJECTS),
        lambda r, x: r.reduced({r.joints[0]: OBJECTS}),
        lambda r, x: r.add_frame("tool", r.frames[-1], OBJECTS),
        lambda r, x: r.random(OBJECTS),
        lambda r, x: r.random(2.5),
        lambda r, x: r.random(-1),
        lambda r, x: r.random((2, None)),
        lambda r, x: r.random(seed="one"),
        lambda r, x: r.compile(OBJECTS),
        lambda r, x: r.compile("rnea", external=5),
        lambda r, x: r.compile("rnea", external="base"),
        lambda r, x: r.compile("rnea", parameters=5),
        lambda r, x: r.pattern(["crba"]),
    ],
)
@pytest.mark.parametrize("engine", rg.robot.ENGINES)
def test_odd_objects_are_refused_in_our_words(engine, call):
    with pytest.raises(RigidgradError):
        call(rg.load("double_pendulum", engine=engine), np.ones(2))


def test_batches_may_be_whole_numbers_of_any_kind(arm):
    assert arm.random(np.int64(3)).q.shape == (3, 7) and arm.random([2, np.int8(1)]).q.shape == (
        2,
        1,
        7,
    )


def test_neutral_is_where_joints_are_zero(dog):
    np.testing.assert_array_equal(dog.neutral(), [0, 0, 0, 0, 0, 0, 1] + [0] * 12)


def test_limits_cannot_be_changed(arm):
    with pytest.raises(ValueError, match="read-only"):
        arm.limits.lower[0] = 5


def test_a_robot_prints_as_a_table(dog):
    text = str(dog)
    for word in (
        "hyq",
        "floating base",
        "root_joint",
        "lf_haa_joint",
        "base_link_0 → lf_hipassembly",
        "2.93",
        "7",
        "kg",
    ):
        assert word in text
    assert repr(dog) == "<Robot 'hyq': nq=19, nv=18>"


def test_robots_survive_pickling(dog):
    copy = pickle.loads(pickle.dumps(dog))
    s = dog.random((3,), seed=17)
    np.testing.assert_array_equal(copy.rnea(*s), dog.rnea(*s))
    assert copy.joints == dog.joints


# --- robots from robots ---------------------------------------------------------------------------


def test_locking_joints_equals_holding_them(arm):
    lock = {"iiwa_joint_3": 0.4, "iiwa_joint_6": -0.7}
    small = arm.reduced(lock=lock)
    assert small.nv == 5
    s = small.random((4,), seed=18)
    kept = [i for i, name in enumerate(arm.joints) if name not in lock]
    q, v, a = np.zeros((4, 7)), np.zeros((4, 7)), np.zeros((4, 7))
    q[:, [arm.joints.index(n) for n in lock]] = list(lock.values())
    q[:, kept], v[:, kept], a[:, kept] = s.q, s.v, s.tau
    np.testing.assert_allclose(small.rnea(*s), arm.rnea(q, v, a)[:, kept], rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(
        small.forward_kinematics(s.q)["iiwa_link_ee"],
        arm.forward_kinematics(q)["iiwa_link_ee"],
        rtol=0,
        atol=1e-14,
    )


def test_locking_joints_of_every_kind_and_mimics():
    builder = rg.Builder("mixed").link("base")
    parent = "base"
    for i, kind in enumerate(
        ["spherical", "planar", "helical", "prismatic", "floating", "revolute"]
    ):
        builder.link(f"l{i}", 1.0 + i, (0.1, 0.2, 0.3), (0.3, 0.4, 0.5))
        builder.joint(
            f"j{i}",
            kind,
            parent,
            f"l{i}",
            (0.1, 0, 0.2),
            (0.3, 0.2, 0.1),
            None if kind == "planar" else (1, 2, 3),
            0.1,
        )
        parent = f"l{i}"
    builder.link("m", 1.0, (0, 0, 0.1), (0.1, 0.1, 0.1)).joint(
        "copy", "revolute", parent, "m", axis=(0, 1, 0), mimic=("j5", -2.0, 0.3)
    )
    robot = builder.build()
    state = robot.random(seed=19)
    lock = {
        j.name: state.q[j.q : j.q + j.nq]
        for j in robot.model.joints
        if not j.is_mimic and j.name != "j0"
    }
    small = robot.reduced(lock=lock)
    assert small.joints == ("j0",)
    np.testing.assert_allclose(
        small.forward_kinematics(state.q[:4])["m"],
        robot.forward_kinematics(state.q)["m"],
        rtol=0,
        atol=1e-13,
    )
    with pytest.raises(InputError, match="mimics 'j5'"):
        robot.reduced(lock={"copy": 0.1})


@pytest.mark.parametrize(
    ("lock", "error"),
    [
        ({"nothing": 1.0}, UnknownNameError),
        ({"iiwa_base_joint": 1.0}, UnknownNameError),
        ({"iiwa_joint_1": (1.0, 2.0)}, InputError),
        ({"iiwa_joint_1": np.nan}, InputError),
        ({"iiwa_joint_1": "left"}, InputError),
    ],
)
def test_wrong_locks(arm, lock, error):
    with pytest.raises(error):
        arm.reduced(lock=lock)


def test_attaching_a_tool_adds_its_mass_and_joints(arm):
    tool = (
        rg.Builder("gripper")
        .link("palm", 0.5, (0, 0, 0.05), (1e-3, 1e-3, 1e-3))
        .link("finger", 0.1, (0, 0, 0.02), (1e-4, 1e-4, 1e-4))
        .joint("grip", "prismatic", "palm", "finger", (0, 0, 0.1), axis=(0, 1, 0))
        .build()
    )
    T = np.eye(4)
    T[:3, 3] = 0, 0, 0.1
    both = arm.attach(tool, "iiwa_link_ee_kuka", T, prefix="tool_")
    assert both.nv == 8 and both.joints[-1] == "tool_grip"
    q = np.append(arm.random(seed=20).q, 0.03)
    ee = arm.forward_kinematics(q[:7])["iiwa_link_ee_kuka"]
    np.testing.assert_allclose(both.forward_kinematics(q)["tool_palm"], ee @ T, rtol=0, atol=1e-14)
    g = both.gravity_torque(q)[:7] - arm.gravity_torque(q[:7])
    masses = [(0.5, ee @ T @ [0, 0, 0.05, 1]), (0.1, ee @ T @ [0, 0.03, 0.12, 1])]
    pull = sum(
        arm.add_frame(
            "p", "iiwa_link_7", np.linalg.solve(arm.forward_kinematics(q[:7])["iiwa_link_7"], p)[:3]
        ).jacobian(q[:7], "p")[2]
        * m
        for m, p in masses
    )
    np.testing.assert_allclose(g, 9.81 * pull, rtol=0, atol=1e-12)
    with pytest.raises(ModelError, match="prefix"):
        arm.attach(arm, "iiwa_link_ee")
    with pytest.raises(UnknownNameError):
        arm.attach(tool, "nowhere")
    with pytest.raises(InputError, match="Robot"):
        arm.attach("gripper", "iiwa_link_7")


def test_frames_can_be_added_on_links_and_on_frames(arm):
    a = arm.add_frame("tip", "iiwa_link_7", (0, 0, 0.0635)).add_frame("beyond", "tip", (0, 0, 0.1))
    q = arm.random(seed=21).q
    T = a.forward_kinematics(q)
    np.testing.assert_allclose(
        T["beyond"],
        T["iiwa_link_7"] @ [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.1635], [0, 0, 0, 1]],
        atol=1e-15,
    )
    assert "tip" in a.frames and "tip" not in arm.frames
    with pytest.raises(ModelError, match="already"):
        a.add_frame("tip", "iiwa_link_7")
    with pytest.raises(UnknownNameError):
        arm.add_frame("x", "nowhere")
    for placement in (np.zeros((4, 4)), (1, 2), "here", (0, 0, np.inf), -np.eye(4)):
        with pytest.raises(InputError, match="placement"):
            arm.add_frame("x", "iiwa_link_7", placement)


# --- the builder ----------------------------------------------------------------------------------


def one_joint(**joint):
    return (
        rg.Builder("r")
        .link("a")
        .link("b", 1.0, (0, 0, 0.1), (1, 1, 1))
        .joint("j", **{"type": "revolute", "parent": "a", "child": "b"} | joint)
    )


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ({"type": "hinge"}, "no joint type 'hinge'"),
        ({"axis": (0, 0, 0)}, "no direction"),
        ({"axis": (1, 2)}, "axis is 3"),
        ({"xyz": "here"}, "xyz is 3"),
        ({"rpy": (0, 0, np.nan)}, "rpy is 3"),
        ({"armature": -1}, "negative armature"),
        ({"limit": (1, -1)}, "above its upper"),
        ({"limit": 3}, "limit is"),
        ({"limit": {"low": 1}}, "no 'low'"),
        ({"limit": {"velocity": -1}}, "velocity and effort"),
        ({"mimic": 3.0}, "mimic is"),
        ({"mimic": "k"}, "mimics a joint that is missing"),
        ({"mimic": "j"}, "cycle"),
        ({"parent": "c"}, "parent link is missing"),
        ({"child": "a"}, "to itself"),
        ({"pitch": "steep"}, "pitch is a number"),
    ],
)
def test_wrong_joints_are_named(arguments, fragment):
    with pytest.raises(RigidgradError, match=fragment) as caught:
        one_joint(**arguments).build()
    assert "'j'" in str(caught.value)


@pytest.mark.parametrize(
    ("link", "fragment"),
    [
        ({"mass": -1.0}, "negative mass"),
        ({"mass": 0.0}, "no mass"),
        ({"inertia": (1, 1, 3)}, "triangle"),
        ({"inertia": (1, 1, -1)}, "positive definite"),
        ({"inertia": (0, 0, 0)}, "positive definite"),
        ({"inertia": [[1, 0.5, 0], [0, 1, 0], [0, 0, 1]]}, "not symmetric"),
        ({"inertia": np.eye(2)}, "3x3"),
        ({"inertia": "big"}, "3x3"),
        ({"com": (1, 2)}, "com is 3"),
        ({"mass": "heavy"}, "mass is a number"),
        ({"mass": np.nan}, "finite"),
    ],
)
def test_wrong_links_are_named(link, fragment):
    builder = rg.Builder("r").link("a").joint("j", "revolute", "a", "b")
    with pytest.raises(RigidgradError, match=fragment) as caught:
        builder.link("b", **{"mass": 1.0, "inertia": (1, 1, 1)} | link).build()
    assert "'b'" in str(caught.value)


def test_inertias_and_limits_may_be_written_in_several_ways():
    matrix = [[3.0, 0.1, 0.2], [0.1, 4.0, 0.3], [0.2, 0.3, 5.0]]
    six = (3.0, 0.1, 0.2, 4.0, 0.3, 5.0)
    named = dict(zip(("ixx", "ixy", "ixz", "iyy", "iyz", "izz"), six, strict=True))
    limits = [(-1, 2, 3, 4), {"lower": -1, "upper": 2, "velocity": 3, "effort": 4}]
    robots = [
        rg.Builder("r")
        .link("a")
        .link("b", 1.0, (0.1, 0, 0), inertia)
        .joint("j", "spherical", "a", "b", limit=limit)
        .build()
        for inertia in (matrix, six, named)
        for limit in limits
    ]
    assert len({robot.model.inertias for robot in robots}) == 1
    assert all((r.limits.velocity == 3).all() and (r.limits.effort == 4).all() for r in robots)
    with pytest.raises(InputError, match="izx"):
        rg.Builder("r").link("a", 1.0, (0, 0, 0), {"izx": 1.0})


def test_strict_false_warns_about_physics_alone():
    builder = (
        rg.Builder("r")
        .link("a")
        .joint("j", "revolute", "a", "b")
        .link("b", 1.0, (0, 0, 0), (1, 1, 3))
    )
    with pytest.warns(ModelWarning, match="triangle"):
        builder.build(strict=False)


def test_massless_links_that_carry_something_are_fine():
    robot = (
        rg.Builder("gantry")
        .link("base")
        .link("x")
        .link("y")
        .link("tool", 2.0, (0, 0, 0), (1, 1, 1))
        .joint("jx", "prismatic", "base", "x", axis=(1, 0, 0))
        .joint("jy", "prismatic", "x", "y", axis=(0, 1, 0))
        .joint("jz", "revolute", "y", "tool", axis=(0, 0, 1))
        .build()
    )
    np.testing.assert_allclose(robot.crba(np.zeros(3)), np.diag([2.0, 2.0, 1.0]))


@pytest.mark.parametrize("engine", ["lanes", "numpy"])
def test_a_singular_mass_matrix_is_an_error_that_says_what_to_do(engine):
    builder = rg.Builder("s").link("base").link("a").link("b", 1.0, (0.3, 0, 0), np.eye(3))
    robot = (
        builder.joint("j1", "revolute", "base", "a", axis=(0, 0, 1))
        .joint("j2", "revolute", "a", "b", axis=(0, 0, 1))
        .build(engine=engine)
    )
    with pytest.raises(ModelError, match=r"singular.*armature"):
        robot.minv(np.zeros(2))
    assert robot.rnea(np.zeros(2), np.zeros(2), np.ones(2)).shape == (2,)


def test_a_planar_axis_is_ignored_with_a_warning():
    with pytest.warns(ModelWarning, match="xy plane"):
        one_joint(type="planar", axis=(1, 0, 0)).build()


def test_a_robot_that_cannot_move_still_works():
    robot = rg.Builder("stone").link("rock", 3.0, (0, 0, 0), (1, 1, 1)).build()
    assert robot.nv == 0
    assert robot.rnea(np.zeros((2, 0)), np.zeros((2, 0)), np.zeros((2, 0))).shape == (2, 0)
    assert robot.crba(np.zeros(0)).shape == (0, 0)
    np.testing.assert_array_equal(robot.forward_kinematics(np.zeros(0))["rock"], np.eye(4))
    with pytest.raises(InputError, match="no moving mass"):
        robot.center_of_mass(np.zeros(0))


def test_deep_chains_need_no_recursion():
    builder = rg.Builder("chain").link("l0")
    for i in range(1, 3000):
        builder.link(f"l{i}", 1.0, (0, 0, 0.1), (1, 1, 1)).joint(
            f"j{i}", "fixed" if i % 100 else "revolute", f"l{i - 1}", f"l{i}"
        )
    assert builder.build().nv == 29
