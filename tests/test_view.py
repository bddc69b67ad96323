"""Robots on pages: shapes, motions and sliders by themselves; saved pages and live ones in a real
browser.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from browser import eventually, launched, missing, picture, share
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad.commands.solve import save
from rigidgrad.commands.view import add_parser, read_motion
from rigidgrad.control.surroundings import Sphere
from rigidgrad.errors import InputError, RigidgradError, UnknownNameError
from rigidgrad.model.pose import Pose
from rigidgrad.viewer import fragment, view
from rigidgrad.viewer.dials import dials, position
from rigidgrad.viewer.motion import Motion, as_motion
from rigidgrad.viewer.page import content, player
from rigidgrad.viewer.poses import body_poses, frame_path, posture, quaternions
from rigidgrad.viewer.shapes import Shape, draw

ORANGE = (242, 115, 26)  # of the iiwa's rings
TREES = [(seed, 1 + seed % 9) for seed in range(24)]

with_browser = pytest.mark.skipif(bool(missing()), reason=missing())
with_live_page = pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))


def swing(robot, frames=50, seed=1):
    """Positions from one random state to another."""
    a, b = robot.random(2, seed=seed).q
    return robot.integrate(a, np.linspace(0, 1, frames)[:, None] * robot.difference(a, b))


# --- where bodies are -----------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "bodies"), TREES)
def test_bodies_are_where_forward_kinematics_has_them(seed, bodies):
    tree = random_tree(seed, bodies)
    robot, q = tree.robot(), tree.random_q(np.random.default_rng(seed), (3, 2))
    poses, T = body_poses(robot.model, q), robot.forward_kinematics(q)
    assert poses.shape == (3, 2, len(robot.joints) + 1, 4, 4)
    for i, name in enumerate(robot.model.body_names):
        np.testing.assert_allclose(
            poses[..., i, :, :], T[name], atol=1e-12 * (1 + abs(T[name]).max())
        )
    np.testing.assert_array_equal(poses[..., -1, :, :], np.broadcast_to(np.eye(4), (3, 2, 4, 4)))
    for frame in robot.frames:
        np.testing.assert_allclose(
            frame_path(robot.model, poses, frame),
            T[frame][..., :3, 3],
            atol=1e-12 * (1 + abs(T[frame]).max()),
        )


def test_quaternions_give_back_their_rotations_also_half_turns():
    rng = np.random.default_rng(0)
    q = np.concatenate(
        [rng.normal(size=(500, 4)), np.eye(4), rng.normal(size=(50, 4)) * (0, 1, 1, 1)]
    )
    w, x, y, z = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    R = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    ).transpose(2, 0, 1)
    found = quaternions(R)
    np.testing.assert_allclose(
        np.abs(np.sum(found * np.stack([w, x, y, z], 1), axis=1)), 1.0, atol=1e-14
    )
    np.testing.assert_allclose(quaternions(R[3]), found[3])


@pytest.mark.parametrize(("seed", "bodies"), TREES)
def test_sliders_give_the_position_that_they_show(seed, bodies):
    tree = random_tree(seed, bodies)
    robot, q = tree.robot(), tree.random_q(np.random.default_rng(seed))
    found = dials(robot.model, q)
    assert len(found) == robot.nv
    assert all(d.low <= d.start <= d.high for d in found)
    back = position(robot.model, [d.start for d in found])
    np.testing.assert_allclose(body_poses(robot.model, back), body_poses(robot.model, q), atol=1e-7)


def test_sliders_keep_to_the_limits():
    robot = rg.load("hyq")
    start = posture(robot.model)
    assert np.all(start >= robot.limits.lower) and np.all(start <= robot.limits.upper)
    found = dials(robot.model, start)
    np.testing.assert_array_equal([d.low for d in found], robot.limits.lower)
    np.testing.assert_array_equal([d.high for d in found], robot.limits.upper)


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", rg.bundled())
def test_bundled_robots_are_drawn_as_described(name):
    robot = rg.load(name, engine="numpy")
    drawing = draw(robot.model)
    assert drawing.notes == ()
    assert len(drawing.shapes) == sum(len(link.visuals) for link in robot.model.description.links)
    poses = body_poses(robot.model, robot.neutral())
    for shape, (link, visual) in zip(drawing.shapes, robot.model.visuals, strict=True):
        assert (shape.kind, shape.size, shape.link) == (visual.shape, visual.size, link)
        placed = robot.forward_kinematics(robot.neutral())[link] @ visual.placement.matrix()
        np.testing.assert_allclose(poses[shape.body] @ shape.placement.matrix(), placed, atol=1e-12)


MESHED = """
<robot name="meshed">
  <link name="base"><visual><geometry><mesh filename="package://nowhere/base.stl"/></geometry></visual></link>
  <joint name="a" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0 0 0.3"/><axis xyz="0 1 0"/><limit lower="-2" upper="2"/></joint>
  <link name="upper"><inertial><mass value="3"/><origin xyz="0 0 0.2"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.01"/></inertial>
    <visual><geometry><mesh filename="upper.dae"/></geometry></visual></link>
  <joint name="b" type="continuous"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.4"/><axis xyz="0 1 0"/></joint>
  <link name="lower"><inertial><mass value="1"/><origin xyz="0 0 0.1"/><inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.01"/></inertial>
    <visual><geometry><box size="0.05 0.05 0.2"/></geometry></visual><visual><geometry><mesh filename="lower.dae"/></geometry></visual></link>
</robot>"""


def test_meshes_are_replaced_by_shapes_from_joint_to_joint_and_a_note_says_so():
    robot = rg.load(MESHED)
    drawing = draw(robot.model)
    assert drawing.notes[0].startswith("3 meshes are not drawn; simple shapes stand for them")
    assert "the robot was given as text" in drawing.notes[0] or "package" in drawing.notes[0]
    [upper] = [s for s in drawing.shapes if s.link == "upper" and s.kind == "capsule"]
    assert upper.size[1] == pytest.approx(0.4) and upper.placement.p == pytest.approx((0, 0, 0.2))
    [hub] = [s for s in drawing.shapes if s.link == "upper" and s.kind == "cylinder"]
    assert np.array(hub.placement.R)[:, 2] == pytest.approx((0, 1, 0))
    # it has a shape of its own
    assert [s.kind for s in drawing.shapes if s.link == "lower"] == ["box"]
    assert [s.kind for s in drawing.shapes if s.link == "base"] == ["capsule"]


@pytest.mark.parametrize(("seed", "bodies"), TREES)
def test_robots_without_any_shapes_get_some_on_every_body_with_mass(seed, bodies):
    robot = random_tree(seed, bodies).robot()
    drawing = draw(robot.model)
    drawn = {s.body for s in drawing.shapes}
    assert drawn >= {i for i in robot.model.bodies if robot.model.inertias[i][0] > 0}
    assert "no shapes" in drawing.notes[0]
    for shape in drawing.shapes:
        assert all(0 < x < 1e3 for x in shape.size)
        R = np.array(shape.placement.R)
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(R) > 0
    low, high = drawing.bounds(poses := body_poses(robot.model, robot.random(seed=seed).q))
    origins = poses[[i for i in robot.model.bodies if i in drawn], :3, 3]
    assert np.all(origins >= low - 1e-9) and np.all(origins <= high + 1e-9)


def test_shapes_that_cannot_be_drawn_are_left_out_with_a_note():
    shapes = [
        'sphere radius="0"',
        'box size="1 -1 1"',
        'cylinder radius="1" length="1e40"',
        'sphere radius="0.1"',
    ]
    visuals = "".join(f"<visual><geometry><{shape}/></geometry></visual>" for shape in shapes)
    text = f'<robot name="r"><link name="l">{visuals}</link></robot>'
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawing = draw(rg.load(text).model)
    assert [s.size for s in drawing.shapes] == [(0.1,)]
    assert drawing.notes == ("3 shapes without a positive, finite size are left out.",)


def test_the_box_around_shapes_is_as_small_as_it_can_be():
    rng = np.random.default_rng(3)
    u = rng.normal(size=(200_000, 3))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    R = q * np.linalg.det(q)
    radius, length = 0.3, 0.8
    support = {  # the furthest point of each solid in a direction
        "sphere": lambda d: radius * d,
        "capsule": lambda d: radius * d + np.sign(d[:, 2:]) * np.array([0, 0, length / 2]),
        "box": lambda d: np.sign(d) * np.array([0.1, 0.2, 0.4]),
        "cylinder": lambda d: np.concatenate(
            [
                radius * d[:, :2] / np.linalg.norm(d[:, :2], axis=1, keepdims=True),
                np.sign(d[:, 2:]) * length / 2,
            ],
            1,
        ),
    }
    sizes = {
        "sphere": (radius,),
        "capsule": (radius, length),
        "cylinder": (radius, length),
        "box": (0.2, 0.4, 0.8),
    }
    for kind, furthest in support.items():
        shape = Shape(
            kind,
            sizes[kind],
            Pose(((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0)), (0, 0, 0)),
            (1, 1, 1, 1),
            0,
            "l",
        )
        seen = (furthest(u) @ R.T).max(axis=0)
        np.testing.assert_allclose(shape.reach(R), seen, atol=2e-3)  # as far as the samples reach
        assert np.all(shape.reach(R) >= seen - 1e-12)


# --- motions --------------------------------------------------------------------------------------


def test_motions_come_from_solutions_logs_and_arrays():
    robot = rg.load("pendulum")
    x = np.array([[0.0, 1.0], [0.1, 1.0], [0.2, 1.0]])
    problem = rg.Problem(robot, start=x[0], steps=2, dt=0.1, costs=[rg.costs.Effort(weight=1.0)])
    solution = rg.solve(problem)
    motion = as_motion(robot.model, solution)
    assert (
        motion.q == pytest.approx(solution.x[:, :1])
        and motion.t == pytest.approx([0, 0.1, 0.2])
        and motion.notes == ()
    )
    assert as_motion(robot.model, x[:, :1], dt=0.5).t == pytest.approx([0, 0.5, 1.0])
    log = SimpleNamespace(
        t=np.array([1.0, 2.0, 4.0]), x=np.array([[0.0, 1.0], [np.nan, np.nan], [0.2, 1.0]])
    )
    motion = as_motion(robot.model, log)
    assert (
        motion.t == pytest.approx([1, 4])
        and motion.duration == 3
        and motion.q == pytest.approx(np.array([[0.0], [0.2]]))
    )
    assert motion.at(1.5, robot.model) == pytest.approx([0.1])


def test_an_unknown_time_step_is_said():
    motion = as_motion(rg.load("pendulum").model, np.zeros((3, 1)))
    assert "dt=" in motion.notes[0] and motion.duration == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("solution", "dt", "said"),
    [
        (np.zeros((3, 4)), 0.1, "shape"),
        (np.zeros((0, 1)), 0.1, "shape"),
        (np.full((2, 1), np.nan), 0.1, "NaN"),
        ("nonsense", 0.1, "array of positions"),
        (np.zeros((2, 1)), 0.0, "dt"),
        (np.zeros((2, 1)), "x", "dt"),
        (SimpleNamespace(x=np.zeros((2, 1)), t=np.array([1.0, 1.0])), None, "rising"),
    ],
)
def test_bad_motions_are_refused(solution, dt, said):
    with pytest.raises(InputError, match=said):
        as_motion(rg.load("pendulum").model, solution, dt)


def test_between_frames_quaternions_take_the_shorter_way_and_stay_units():
    robot = rg.load("quadrotor")
    a = robot.neutral()
    b = robot.integrate(a, np.r_[1.0, 0, 0, 0, 0, 0.6])
    b[3:] *= -1  # the same orientation
    q = Motion(np.array([0.0, 1.0]), np.stack([a, b])).at(0.5, robot.model)
    assert np.linalg.norm(q[3:]) == pytest.approx(1.0)
    assert robot.difference(a, q)[5] == pytest.approx(0.3)


def test_long_motions_are_thinned_but_keep_their_ends():
    motion = Motion(np.arange(10_000) * 1e-3, np.arange(10_000.0)[:, None]).thinned(1000)
    assert len(motion.t) == 1000 and motion.q[0] == 0 and motion.q[-1] == 9999


# --- files and errors -----------------------------------------------------------------------------


def test_a_saved_page_fetches_nothing(tmp_path):
    assert rg.view is view
    robot = rg.load("iiwa14")
    path = view(robot, swing(robot), dt=0.02, html=tmp_path / "motion.html")
    text = path.read_text()
    assert path == tmp_path / "motion.html" and "default-src 'none'" in text
    assert not re.findall(
        r"""(?:src|href)\s*=|url\(|@import|\bimport\s*\(|fetch\(|https?://""", text
    )
    assert len(text) < 60_000
    assert [p.name for p in tmp_path.iterdir()] == ["motion.html"]


def test_what_is_in_the_data_is_the_motion():
    robot = rg.load("iiwa14")
    q = swing(robot)
    data = json.loads(json.dumps(content(robot, q, dt=0.02)))
    unpacked = np.frombuffer(base64.b64decode(data["motion"]["q"]), "<f4").reshape(-1, 7)
    np.testing.assert_allclose(unpacked, q, rtol=1e-6)
    assert data["trace"]["label"] == "iiwa_link_ee" and len(data["dials"]) == 7


def test_bad_requests_say_what_is_wrong(tmp_path, monkeypatch):
    robot = rg.load("pendulum")
    for arguments, error in [
        (("iiwa14", {}), InputError),
        ((robot, {"frame": "nobody", "html": tmp_path / "a.html"}), UnknownNameError),
        ((robot, {"q": [1.0, 2.0], "html": tmp_path / "a.html"}), InputError),
        ((robot, {"q": "up", "html": tmp_path / "a.html"}), InputError),
        ((robot, {"paths": {"p": [1, 2, 3]}, "html": tmp_path / "a.html"}), InputError),
        ((robot, {"points": {"p": [1, 2, np.nan]}, "html": tmp_path / "a.html"}), InputError),
        ((robot, {"html": tmp_path / "missing" / "a.html"}), InputError),
    ]:
        with pytest.raises(error):
            view(arguments[0], **arguments[1])
    with pytest.raises(InputError, match="theme"):
        fragment(robot, theme="blue")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(RigidgradError, match=r"rigidgrad\[view\]"):
        view(robot, block=False)


@pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))
@pytest.mark.parametrize(
    "address",
    [{"host": "203.0.113.7"}, {"host": "nowhere.invalid"}, {"port": 70_000}, {"port": "8080"}],
)
def test_bad_addresses_are_refused(address):
    with pytest.raises(InputError, match=r"address|port"):
        view(rg.load("pendulum"), block=False, **address)


def test_motions_are_read_from_files(tmp_path):
    x, t = np.arange(6.0).reshape(3, 2), np.arange(3.0)
    np.savez(tmp_path / "log.npz", t=t, x=x)
    np.savez(tmp_path / "other.npz", y=x)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "text.npz").write_text("no numbers")
    read = read_motion(tmp_path / "log.npz")
    assert read.x == pytest.approx(x) and read.t == pytest.approx(t)
    assert read_motion(tmp_path / "x.npy") == pytest.approx(x)
    np.savez(tmp_path / "words.npz", x=x, t=np.array(["a", "b", "c"]))
    np.savez(tmp_path / "complex.npz", q=x * 1j)
    for name, said in [
        ("words.npz", "its array 't' holds no numbers"),
        ("complex.npz", "its array 'q' holds no numbers"),
        ("other.npz", "no array x or q"),
        ("text.npz", "no .npz"),
        ("absent.npz", "no .npz"),
    ]:
        with pytest.raises(InputError, match=said):
            read_motion(tmp_path / name)


def command(*arguments):
    import argparse

    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["view", *map(str, arguments)])
    parsed.run(parsed)


def test_the_command_saves_a_page(tmp_path, capsys):
    np.save(tmp_path / "q.npy", swing(rg.load("iiwa14")))
    command("iiwa14", tmp_path / "q.npy", "--dt", "0.02", "--html", tmp_path / "m.html")
    assert capsys.readouterr().out == f"wrote {tmp_path / 'm.html'}\n"
    command("hyq", "--floating-base", "--html", tmp_path / "h.html", "--json")
    assert json.loads(capsys.readouterr().out) == {"html": str(tmp_path / "h.html")}
    assert '"root_joint"' in (tmp_path / "h.html").read_text()


# --- saved pages in a browser ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with launched() as found:
        yield found


@pytest.fixture
def opened(browser, tmp_path):
    """Opens HTML from a file, without a network; a script error fails the test."""
    contexts, errors, requests = [], [], []

    def open_page(text: str, **options):
        (tmp_path / "page.html").write_text(text)
        context = (
            browser.new_context(viewport={"width": 800, "height": 500}, **options)
            if "viewport" not in options
            else browser.new_context(**options)
        )
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.on("pageerror", lambda e: errors.append(str(e)))
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: requests.append(r.url))
        page.goto(f"file://{tmp_path}/page.html")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert all(url.startswith("file:") for url in requests)


def page_text(tmp_path, robot, solution=None, **options):
    return view(robot, solution, html=tmp_path / "made.html", **options).read_text()


def settle(page):
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


PLAYER = "document.querySelector('.rigidgrad-view').player"


@with_browser
def test_a_saved_robot_is_seen_and_its_sliders_move_it(opened, tmp_path):
    page = opened(page_text(tmp_path, rg.load("iiwa14")), color_scheme="light")
    settle(page)
    before = picture(page)
    # rings and white arms
    assert share(before, ORANGE, 60) > 0.001 and share(before, (235, 235, 238), 20) > 0.005
    assert share(before[:, :40], (246, 247, 250), 12) > 0.5  # and background where nothing is
    slider = page.get_by_label("iiwa_joint_2")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("PageUp")
    settle(page)
    q = page.evaluate(f"{PLAYER}.q")
    assert q[1] > 0.1 and all(x == 0 for k, x in enumerate(q) if k != 1)
    assert (np.abs(picture(page) - before).max(axis=-1) > 40).mean() > 0.01
    slider.press("End")
    assert page.evaluate(f"{PLAYER}.q")[1] == pytest.approx(
        rg.load("iiwa14").limits.upper[1], abs=5e-3
    )


@with_browser
def test_a_page_puts_bodies_where_python_does(opened, tmp_path):
    """Every joint type, mimic joints and free bases."""
    kinds = set()
    for seed in (4, 5, 9, 13):
        tree = random_tree(seed, 9, mimic=True)
        kinds |= {j.type for j in tree.joints}
        robot, q = tree.robot(), tree.random_q(np.random.default_rng(seed), (4,))
        page = opened(page_text(tmp_path, robot))
        expected = body_poses(robot.model, q)
        for k in range(len(q)):
            found = np.array(
                page.evaluate(f"q => ({PLAYER}.set(q), {PLAYER}.poses())", q[k].tolist())
            )
            rotations = expected[k, :, :3, :3].reshape(-1, 9)
            np.testing.assert_allclose(
                found,
                np.concatenate([rotations, expected[k, :, :3, 3]], axis=1),
                atol=1e-11 * (1 + abs(expected).max()),
            )
    assert kinds >= {
        "revolute",
        "continuous",
        "prismatic",
        "helical",
        "spherical",
        "planar",
        "floating",
        "fixed",
    }


@with_browser
def test_sliders_of_a_page_agree_with_python(opened, tmp_path):
    robot = rg.load("hyq", floating_base=True)
    q = robot.random(seed=4).q
    page = opened(page_text(tmp_path, robot, q=q))
    settle(page)
    shown = page.evaluate(f"{PLAYER}.dials.map(d => +d.output.textContent)")
    np.testing.assert_allclose(shown, [d.start for d in dials(robot.model, q)], atol=6e-4)
    page.evaluate(
        f"(() => {{ const d = {PLAYER}.dials[3]; d.input.value = 0.5; d.input.dispatchEvent(new"
        " Event('input')); })()"
    )
    values = [d.start for d in dials(robot.model, q)]
    values[3] = page.evaluate(f"+{PLAYER}.dials[3].input.value")
    found = np.array(page.evaluate(f"{PLAYER}.poses()"))
    np.testing.assert_allclose(
        found[:, 9:], body_poses(robot.model, position(robot.model, values))[:, :3, 3], atol=1e-6
    )


@with_browser
def test_a_saved_motion_plays_pauses_and_scrubs(opened, tmp_path):
    robot = rg.load("iiwa14")
    q = swing(robot, 101)
    page = opened(page_text(tmp_path, robot, q, dt=0.02, points={"goal": (0.5, 0.2, 0.5)}))
    eventually(lambda: page.evaluate(f"{PLAYER}.time") > 0.3, "playing by itself")
    page.get_by_label("Pause").click()
    stopped = page.evaluate(f"{PLAYER}.time")
    settle(page)
    assert page.evaluate(f"{PLAYER}.time") == stopped
    page.evaluate(f"{PLAYER}.seek(1.0)")
    settle(page)
    np.testing.assert_allclose(page.evaluate(f"{PLAYER}.q"), q[50], atol=1e-6)
    assert "1.00 / 2.00 s" in page.locator(".clock").inner_text()
    time_slider = page.get_by_label("Time")
    time_slider.press("End")
    np.testing.assert_allclose(page.evaluate(f"{PLAYER}.q"), q[-1], atol=1e-6)
    time_slider.press("Home")
    np.testing.assert_allclose(page.evaluate(f"{PLAYER}.q"), q[0], atol=1e-6)
    page.get_by_label("Speed").select_option("4")
    page.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{PLAYER}.time") == pytest.approx(0.02)
    page.keyboard.press("Space")
    assert page.evaluate(f"{PLAYER}.playing") and page.evaluate(f"{PLAYER}.speed") == 4
    eventually(lambda: page.evaluate(f"{PLAYER}.time") > 1.0, "playing again")


@with_browser
def test_buttons_change_what_is_seen(opened, tmp_path):
    robot = rg.load("iiwa14")
    page = opened(
        page_text(tmp_path, robot, swing(robot), dt=0.02),
        color_scheme="dark",
        reduced_motion="reduce",
    )
    settle(page)
    assert not page.evaluate(f"{PLAYER}.playing")  # the reader asked for no motion
    dark = picture(page)
    blue = (89, 173, 255)
    assert dark.mean() < 80
    page.evaluate(f"{PLAYER}.seek(1)")
    settle(page)
    assert share(picture(page)[:400], blue, 30) > 0.001
    page.get_by_label("Show paths").click()
    settle(page)
    assert share(picture(page)[:400], blue, 30) < 0.0002
    page.get_by_label("Show joint axes").click()
    settle(page)
    assert share(picture(page)[:400], (255, 115, 217), 30) > 0.0005
    page.get_by_label("Light or dark").click()
    settle(page)
    assert picture(page).mean() > 180
    page.get_by_label("Joint sliders").click()
    assert page.get_by_label("iiwa_joint_3").is_visible()


@with_browser
def test_the_camera_follows_mouse_and_fingers(opened, tmp_path):
    page = opened(
        page_text(tmp_path, rg.load("hyq")),
        viewport={"width": 390, "height": 780},
        has_touch=True,
        is_mobile=True,
    )
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (
        page.get_by_label("Joint sliders").is_visible()
        and not page.get_by_label("lf_haa_joint").is_visible()
    )

    def camera():
        return page.evaluate(
            f"(({{yaw, pitch, distance}}) => ({{yaw, pitch, distance}}))({PLAYER}.camera)"
        )

    home = camera()
    page.mouse.move(150, 300)
    page.mouse.down()
    page.mouse.move(250, 320, steps=4)
    page.mouse.up()
    turned = camera()
    assert turned["yaw"] < home["yaw"] - 0.5 and turned["pitch"] > home["pitch"]
    page.mouse.wheel(0, -300)
    eventually(lambda: camera()["distance"] < 0.9 * home["distance"], "zoomed by the wheel")
    page.get_by_label("Reset the view").tap()
    assert camera() == home
    touch = page.context.new_cdp_session(page)

    def fingers(kind, *points):
        touch.send(
            "Input.dispatchTouchEvent",
            {
                "type": kind,
                "touchPoints": [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)],
            },
        )

    fingers("touchStart", (100, 300))
    fingers("touchMove", (180, 300))
    fingers("touchEnd")
    assert camera()["yaw"] < home["yaw"] - 0.3
    fingers("touchStart", (150, 300), (250, 300))
    fingers("touchMove", (100, 300), (300, 300))
    fingers("touchEnd")
    assert camera()["distance"] < 0.7 * home["distance"]


@with_browser
def test_fragments_share_a_page_and_a_script(opened):
    robot = rg.load("cartpole")
    first = fragment(robot, script=False, height="200px", theme="light")
    second = fragment(robot, swing(robot), dt=0.02, title="A <b>swing</b>", theme="dark")
    assert player() not in first and player() in second
    page = opened(
        "<!doctype html><meta"
        f" charset=utf-8><body><p>Before</p>{first}<p>Between</p>{second}</body>"
    )
    settle(page)
    boxes = [page.locator(".rigidgrad-view").nth(k).bounding_box() for k in range(2)]
    assert [b["height"] for b in boxes] == [200, 420]
    assert page.evaluate(
        "[...document.querySelectorAll('.rigidgrad-view')].map(v => Boolean(v.player.motion))"
    ) == [False, True]
    assert page.get_by_text("A <b>swing</b>").is_visible()
    assert share(picture(page, clip=boxes[0]), (41, 107, 184), 60) > 0.001  # the cart


@with_browser
def test_names_are_text_whatever_they_hold(opened, tmp_path):
    evil = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
    robot = (
        rg.Builder(evil)
        .link("a")
        .link("b", 1.0, (0, 0, 0.1), (1, 1, 1))
        .joint(evil, "revolute", "a", "b")
        .build()
    )
    page = opened(page_text(tmp_path, robot, title=evil))
    settle(page)
    assert page.evaluate("window.broken") is None and page.title() == evil
    assert page.evaluate(f"{PLAYER}.dials[0].label") == evil


@with_browser
def test_a_browser_without_graphics_is_told(browser, tmp_path):
    path = view(rg.load("pendulum"), html=tmp_path / "p.html")
    page = browser.new_page()
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.goto(f"file://{path}")
    assert page.get_by_text("no WebGL 2").is_visible()
    page.close()


# --- obstacles, spheres and targets ---------------------------------------------------------------


@pytest.fixture(scope="module")
def around_obstacles():
    """The arm goes to a pose, past an obstacle that stands and one that moves."""
    robot, still = rg.load("iiwa14"), np.zeros(7)
    T = np.array([[1, 0, 0, 0.45], [0, -1, 0, 0.5], [0, 0, -1, 0.45], [0, 0, 0, 1.0]])
    passing = np.linspace((0.7, 0.4, 0.75), (0.7, -0.1, 0.75), 21)
    spheres = [rg.LinkSphere("iiwa_link_7", 0.08, (0, 0, 0.03))]
    limits = rg.Limits(
        obstacles=[rg.Obstacle((0.62, -0.05, 0.4), 0.1), rg.Obstacle(passing, 0.06)],
        spheres=spheres,
    )
    costs = [
        rg.costs.Reach(
            "iiwa_link_7", T, offset=(0, 0, 0.0635), weight=(10.0, 1.0), final=(1000.0, 10.0)
        ),
        rg.costs.State(np.zeros(14), np.r_[still, still + 0.02], np.r_[still, still + 1.0]),
        rg.costs.Effort(1e-4, reference="gravity"),
    ]
    start = np.r_[-1.0, 0.6, 0, -1.4, 0, 1.0, 0, still]
    problem = rg.Problem(robot, start=start, steps=20, dt=0.075, costs=costs, limits=limits)
    return SimpleNamespace(
        robot=robot, problem=problem, solution=rg.solve(problem), passing=passing, T=T
    )


def test_obstacles_spheres_and_targets_of_a_solution_are_drawn(around_obstacles):
    a = around_obstacles
    data = content(a.robot, a.solution)
    standing, moving, sphere, target = data["balls"]
    assert unpacked(standing["at"]) == pytest.approx([0.62, -0.05, 0.4]) and unpacked(
        standing["radius"]
    ) == pytest.approx([0.1])
    np.testing.assert_allclose(unpacked(moving["at"]).reshape(-1, 3), a.passing, atol=1e-6)
    np.testing.assert_allclose(unpacked(moving["t"]), 0.075 * np.arange(21), atol=1e-6)
    assert (
        sphere["body"] == 6
        and unpacked(sphere["at"]) == pytest.approx([0, 0, 0.03])
        and standing["body"] == -1
    )
    assert unpacked(target["at"]) == pytest.approx(a.T[:3, 3])
    # the axes of the pose
    ends = [unpacked(path["points"]).reshape(2, 3) for path in data["paths"]]
    for k, (origin, tip) in enumerate(ends):
        np.testing.assert_allclose(
            (tip - origin) / np.linalg.norm(tip - origin), a.T[:3, k], atol=1e-5
        )
    assert data["trace"]["label"] == "iiwa_link_7" and data["trace"]["point"] == pytest.approx(
        [0, 0, 0.0635]
    )
    assert (
        sum("obstacles" in note or "targets" in note or "spheres" in note for note in data["notes"])
        == 3
    )
    assert data["high"][1] >= 0.5


def unpacked(text):
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(float)


def test_a_problem_says_what_is_around_an_array(around_obstacles):
    a = around_obstacles
    assert content(a.robot, a.solution.x, dt=0.075)["balls"] == []
    balls = content(a.robot, a.solution.x, dt=0.075, problem=a.problem)["balls"]
    assert len(balls) == 4 and unpacked(balls[1]["at"]) == pytest.approx(a.passing[0])


def test_a_large_sphere_that_stands_for_the_ground_does_not_move_the_camera_away(around_obstacles):
    a = around_obstacles
    ground = replace(
        a.solution.surroundings, obstacles=(Sphere(np.array([[0, 0, -100.0]]), np.array([100.0])),)
    )
    data = content(a.robot, replace(a.solution, surroundings=ground))
    assert min(data["low"]) > -2 and max(data["high"]) < 2


def test_a_saved_solution_keeps_what_is_around_it(around_obstacles, tmp_path):
    a = around_obstacles
    read = read_motion(save(a.solution, tmp_path / "solution.npz"))
    assert content(a.robot, read)["balls"] == content(a.robot, a.solution)["balls"]
    command("iiwa14", tmp_path / "solution.npz", "--html", tmp_path / "m.html")
    assert "Red: obstacles." in (tmp_path / "m.html").read_text()


@pytest.mark.parametrize(
    "arrays",
    [
        {"obstacle_0": np.full((1, 4), np.nan)},
        {"obstacle_0": np.zeros((1, 3))},
        {"sphere_0": np.ones(4)},
        {
            "target_0": np.zeros((0, 3)),
            "target_0_frame": np.array("a"),
            "target_0_offset": np.zeros(3),
        },
    ],
)
def test_files_with_odd_surroundings_are_refused(arrays, tmp_path):
    np.savez(tmp_path / "odd.npz", x=np.zeros((2, 14)), **arrays)
    with pytest.raises(InputError, match="odd"):
        read_motion(tmp_path / "odd.npz")


def test_damaged_files_and_objects_are_refused_in_our_words(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(50, 14)))
    whole = (tmp_path / "a.npz").read_bytes()
    for k in range(0, len(whole), 29):
        (tmp_path / "b.npz").write_bytes(whole[:k] + bytes([whole[k] ^ 0xFF]) + whole[k + 1 :])
        with suppress(InputError):
            read_motion(tmp_path / "b.npz")
    np.save(tmp_path / "p.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError) as said:
        read_motion(tmp_path / "p.npy")
    assert "pickle" not in str(said.value)


SHELF = rg.Scene(
    [
        rg.Box((0.3, 0.6, 0.3), (0.7, 0, 0.3)),
        rg.Mesh(
            (np.eye(4, 3, k=-1), [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]),
            (-0.9, 0, 0),
            scale=0.4,
        ),
        rg.Plane(),
    ]
)


@with_browser
@pytest.mark.parametrize(
    ("what", "color"), [("obstacles", (226, 130, 128)), ("mesh", (200, 120, 120))]
)
def test_what_is_around_is_seen_and_can_be_hidden(opened, tmp_path, around_obstacles, what, color):
    a = around_obstacles
    shown = (
        {"solution": a.solution} if what == "obstacles" else {"scene": rg.Scene(SHELF.shapes[1:2])}
    )
    page = opened(page_text(tmp_path, a.robot, **shown))
    settle(page)
    red = lambda: share(picture(page), color, 40)  # noqa: E731
    eventually(lambda: red() > 0.002, "it is seen")
    page.get_by_label("Show obstacles, spheres, targets and forces").click()
    eventually(lambda: red() < 0.0005, "it is hidden")


@with_live_page
def test_a_live_page_draws_and_moves_obstacles(around_obstacles):
    a = around_obstacles
    stage = view(a.robot, a.solution, port=0, block=False, announce=False)
    try:
        balls = [
            stage.server.scene.get_handle_by_name(name)
            for name in ("/around/ball_0", "/around/ball_1", "/robot/body_6/ball_2")
        ]
        np.testing.assert_allclose(balls[0].position, (0.62, -0.05, 0.4))
        np.testing.assert_allclose(balls[2].position, (0, 0, 0.03), atol=1e-9)
        for k in (0, 10, 20):
            stage.surround_at(0.075 * k)
            np.testing.assert_allclose(balls[1].position, a.passing[k], atol=1e-6)
    finally:
        stage.stop()


@with_live_page
def test_a_live_page_draws_a_scene():
    stage = view(rg.load("iiwa14"), port=0, block=False, announce=False, scene=SHELF)
    try:
        box, mesh, patch = (
            stage.server.scene.get_handle_by_name(f"/around/solid_{k}") for k in range(3)
        )
        np.testing.assert_allclose(box.position, (0.7, 0, 0.3))
        np.testing.assert_allclose(box.dimensions, (0.3, 0.6, 0.3))
        corners = np.asarray(mesh.vertices)[np.asarray(mesh.faces)]
        np.testing.assert_allclose(
            corners, SHELF.shapes[1].triangles.corners + (-0.9, 0, 0), atol=1e-6
        )
        assert patch.position[2] + patch.dimensions[2] / 2 == pytest.approx(0, abs=1e-9)
    finally:
        stage.stop()


# --- live pages -----------------------------------------------------------------------------------


@pytest.fixture
def live(browser):
    """Opens a stage in the browser and waits for its robot."""
    opened = []

    def open_stage(stage):
        stage.server.scene.configure_environment_map(None)  # graphics by software are slow
        stage.server.scene.configure_default_lights(cast_shadow=False)
        page = browser.new_page(viewport={"width": 640, "height": 400})
        opened.append((stage, page))
        page.goto(stage.url)
        eventually(lambda: stage.watched, "connected")
        return page

    yield open_stage
    for stage, page in opened:
        page.close()
        stage.stop()


def node(stage, body):
    return stage.server.scene.get_handle_by_name(f"/robot/body_{body}")


@with_live_page
def test_a_live_robot_is_seen_and_its_sliders_move_it(live, capfd):
    robot = rg.load("iiwa14")
    stage = view(robot, port=0, block=False)
    said = capfd.readouterr().out
    assert (
        f"http://localhost:{stage.port}" in said
        and f"ssh -L {stage.port}:localhost:{stage.port} " in said
        and "viser" not in said
    )
    page = live(stage)
    eventually(lambda: share(picture(page), ORANGE, 70) > 0.002, "the robot is seen")
    value = page.get_by_role("textbox").nth(1)
    value.fill("0.7")
    value.press("Enter")
    q = np.zeros(7)
    q[1] = 0.7
    expected = body_poses(robot.model, q)[6, :3, 3]
    eventually(
        lambda: np.allclose(node(stage, 6).position, expected, atol=1e-3),
        "the arm follows its slider",
    )
    page.get_by_text("Back to the start").click()
    eventually(
        lambda: np.allclose(
            node(stage, 6).position, body_poses(robot.model, 0 * q)[6, :3, 3], atol=1e-6
        ),
        "back",
    )


@with_live_page
def test_what_is_not_finite_is_never_sent():
    robot = rg.load("iiwa14")
    stage = view(robot, port=0, block=False, announce=False)
    try:
        stage.pose(np.full(7, 0.3))
        before = node(stage, 6).position.copy()
        for q in (np.full(7, np.nan), np.r_[np.inf, np.zeros(6)]):
            stage.pose(q)
            np.testing.assert_array_equal(node(stage, 6).position, before)
        stage.line(
            "path", np.array([[0, 0, 0], [np.nan, 0, 0], [1, 0, 0], [1e30, 0, 0]]), (1, 2, 3)
        )
        np.testing.assert_array_equal(stage._lines["path"].points, [[[0, 0, 0], [1, 0, 0]]])
    finally:
        stage.stop()


@with_live_page
def test_a_live_motion_plays_and_pauses_and_survives_a_reload(live):
    robot = rg.load("cartpole")
    q = np.linspace((-1.0, 0.0), (1.0, 3.0), 101)
    stage = view(
        robot,
        q,
        dt=0.05,
        port=0,
        block=False,
        announce=False,
        paths={"line": [(0, 0, 0), (0, 0, 1)]},
        points={"p": (0, 0, 0.5)},
    )
    page = live(stage)
    first = node(stage, 0).position[0]
    eventually(lambda: node(stage, 0).position[0] > first + 0.1, "the cart moves")
    page.reload()
    eventually(
        lambda: stage.watched and page.get_by_text("Pause").is_visible(), "back after the reload"
    )
    page.get_by_text("Pause").click()
    eventually(lambda: page.get_by_text("Play", exact=True).is_visible(), "paused")
    resting = node(stage, 0).position[0]
    page.wait_for_timeout(300)
    assert node(stage, 0).position[0] == resting
    time_input = page.get_by_role("textbox").first
    time_input.fill("2.5")
    time_input.press("Enter")
    eventually(lambda: abs(node(stage, 0).position[0]) < 1e-3, "half-way through")
