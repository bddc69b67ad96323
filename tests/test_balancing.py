"""Atlas stands on two soles under control: it shifts its weight, reaches and is pushed in MuJoCo,
whose contacts the controller does not know; and it does so on a page.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from browser import eventually, launched, missing, picture, share

import rigidgrad as rg
from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.play.balancing import Balance, BalanceSettings, balancing
from rigidgrad.play.scenes import scene

mujoco = pytest.importorskip("mujoco", reason="needs MuJoCo (pip install rigidgrad[plants])")
with_page = pytest.mark.skipif(bool(missing("viser")), reason=missing("viser"))


@pytest.fixture(scope="module")
def shared():
    return Balance(balancing())


@pytest.fixture
def standing(shared):
    """Atlas, standing."""
    shared.carry(False)
    shared.change(**vars(BalanceSettings()))
    shared.reset()
    shared.advance(0.5)
    return shared


def away(session):
    """Of the centre of mass from the middle of the soles."""
    x = session.plant.x
    return (
        session.robot.center_of_mass(x[: session.robot.nq])
        - session._stance.feet_of(x).mean(axis=0)
    )[:2]


# --- soles ----------------------------------------------------------------------------------------


def test_a_sole_bears_moments_up_to_its_edges():
    """A box of 2 kg on a sole of 20 by 10 cm, pushed sideways at a height of 20 cm, tips when the
    moment is more than its weight at the edge.
    """
    robot = rg.Builder("box").link("box", 2.0, (0, 0, 0), (0.1, 0.1, 0.1)).build(floating_base=True)
    corners = [(a * 0.1, b * 0.05, -0.19) for a in (1, -1) for b in (1, -1)]
    ground = rg.plants.Ground({"box": (0.01, corners)}, friction=2.0)
    plant = rg.plants.MuJoCo(robot, np.r_[0, 0, 0.2, 0, 0, 0, 1, np.zeros(6)], ground=ground)
    edge = 2 * 9.81 * 0.05 / 0.2  # newtons at which it tips about its long edge
    for part, tips in ((0.8, False), (1.25, True)):
        plant.reset()
        plant.advance(np.r_[0, part * edge, 0, 0, 0, 0], 0.6)
        tilt = 2 * math.asin(abs(plant.x[3]))
        assert (tilt > 0.05) == tips, (part, tilt)
    plant.reset()
    plant.advance(np.zeros(6), 0.3)
    # of all four corners
    np.testing.assert_allclose(plant.foot_forces["box"], (0, 0, 2 * 9.81), atol=0.2)
    assert plant.touching.tolist() == [True]
    with pytest.raises(InputError, match="offset of foot"):
        rg.plants.Ground({"box": (0.1, [(0, 0), (0, 1)])})


# --- standing -------------------------------------------------------------------------------------


def test_it_stands_and_its_hand_reaches(standing):
    weight = 9.81 * sum(m for m, _, _ in standing.robot.model.inertias)
    assert standing.now.forces[:, 2].sum() == pytest.approx(weight, rel=0.03)
    for point in (standing.scene.home + [0.2, -0.1, 0.2], standing.scene.home + [0.0, 0.2, -0.1]):
        standing.aim(point)
        now = standing.advance(2.5)
        hand = standing.robot.forward_kinematics(now.x[: standing.robot.nq])["r_hand"][:3, 3]
        assert np.linalg.norm(hand - point) < 0.01 and now.error == pytest.approx(
            np.linalg.norm(hand - point)
        )
        # however far it reaches, its weight is over its feet
        assert np.linalg.norm(away(standing)) < 0.01
    assert not now.fallen and not any(now.counts.values())


def test_it_shifts_its_weight(standing):
    for shift in ((0.0, 0.05), (0.03, -0.05)):
        standing.shift_weight(shift)
        standing.advance(1.5)
        np.testing.assert_allclose(away(standing), shift, atol=0.01)
    left, right = np.mean([standing.advance(0.02).forces[:, 2] for _ in range(40)], axis=0)
    assert right > left  # soles bear moments: how much more is the controller's choice
    standing.shift_weight((1.0, math.nan))
    assert standing.settings.shift == (0.03, -0.05)
    standing.shift_weight((1.0, -1.0))
    assert standing.settings.shift == (0.04, -0.06)


def test_pushes_and_a_payload_are_survived_and_a_fall_ends_in_a_stop(standing):
    """A tenth of its weight for 0.3 s, from three sides, with 3 kg in its hand."""
    standing.carry(True)
    for direction in ((1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0)):
        standing.push(direction)
        moved = np.abs(standing.advance(0.3).x[standing.robot.nq :][:2]).max()
        assert moved > 0.02
        now = standing.advance(1.2)
        assert not now.fallen and np.abs(now.x[standing.robot.nq :]).max() < 0.2
    limits = standing.problem.bounds[1][0]
    assert np.all(np.abs(standing._mpc.log.u) <= limits * (1 + 1e-12))
    standing._push((1.0, 0.0, 0.0), 2000.0, 0.3, standing.scene.trunk)
    assert "fell" in standing.advance(2.0).fallen
    now = standing.advance(1.0)
    # lies, and does not thrash about
    assert np.all(np.isfinite(now.x)) and np.abs(now.x[standing.robot.nq :]).max() < 5.0
    standing.reset()
    assert not standing.advance(0.5).fallen


def test_wishes_are_checked(standing):
    balancer = standing.scene.balancer()
    with pytest.raises(RigidgradError, match="l_hand"):
        balancer.reach("l_hand", (0, 0, 0))
    with pytest.raises(InputError, match="reaches"):
        balancer.reach("r_hand", (0, math.inf, 0))
    with pytest.raises(InputError, match="shift"):
        balancer.shift = (0.0, 0.0, 0.0)
    s = standing.scene
    with pytest.raises(InputError, match="half_lengths"):
        rg.gaits.Balancer(s.robot, s.feet, s.start)
    with pytest.raises(InputError, match="speed"):
        rg.gaits.Balancer(s.robot, s.feet, s.start, half_lengths=(0.1, 0.05), speed=0.0)
    with pytest.raises(RigidgradError, match="claw"):
        rg.gaits.Balancer(s.robot, s.feet, s.start, half_lengths=(0.1, 0.05), hands=["claw"])
    with pytest.raises(RigidgradError, match="claw"):
        scene("atlas", "claw")
    x = s.start.copy()
    x[3:7] = math.sin(0.7), 0.0, 0.0, math.cos(0.7)
    assert balancer.has_fallen(x) and not balancer.has_fallen(s.start)
    with pytest.raises(InputError, match="its own problem"):
        balancer.steer(
            rg.Problem(s.robot, s.start, steps=3, dt=0.02, costs=[rg.costs.Effort(1.0)]), 0.0
        )


@pytest.mark.filterwarnings("error")
def test_a_shift_beyond_all_measure_goes_as_slowly_as_any(standing):
    balancer, problem = standing.scene.balancer(), standing.problem
    part = problem.programs.slices[2]["target"]  # the centre of mass
    for k, shift in enumerate([(0.0, 0.0), (1e300, -1e300), (1.7e308, 1.7e308)]):
        balancer.shift = shift
        balancer.steer(problem, 0.02 * k)
        assert np.abs(problem.p[:, part] - problem.p[0, part]).max() < 0.2


def test_a_hand_that_is_let_go_is_not_charged_for(standing):
    balancer = standing.scene.balancer()
    problem = balancer.problem()
    part = problem.programs.slices[3]
    balancer.steer(problem, 0.0)
    assert not problem.p[:, part["weight"]].any()
    target = standing.scene.home + [0.3, 0.0, 0.0]
    balancer.reach("r_hand", target)
    for k in range(1, 11):
        balancer.steer(problem, 0.02 * k)
    rows = problem.p[:, part["target"]]
    assert problem.p[:, part["weight"]].all()
    ahead = rows[:, 0] - standing.scene.home[0]
    np.testing.assert_allclose(np.diff(ahead)[:8], 0.3 * 0.02)  # approached at 0.3 m/s
    # but no more ahead of a hand that does not move than 5 cm
    assert ahead[0] == pytest.approx(0.05) and ahead[-1] == pytest.approx(0.1)
    balancer.reach("r_hand", None)
    balancer.steer(problem, 0.22)
    assert not problem.p[:, part["weight"]].any()


# --- the page -------------------------------------------------------------------------------------


@with_page
def test_the_page_shows_it_balancing(tmp_path):
    from rigidgrad.play.page import play

    page = play("atlas", port=0, block=False, announce=False)
    page.stage.server.scene.configure_environment_map(None)  # graphics by software are slow
    page.stage.server.scene.configure_default_lights(cast_shadow=False)
    session = page.session
    with page, launched() as browser:
        window = browser.new_page(viewport={"width": 800, "height": 560})
        window.goto(page.url)
        eventually(lambda: page.stage.watched, "connected", 60)
        window.get_by_role("alert").get_by_role("button").click()  # that graphics are by software
        eventually(lambda: session.now.t > 0.3, "time goes on", 60)
        session.aim(page.scene.home + [0.15, 0.0, 0.15])
        eventually(
            lambda: session.now.target[2] > page.scene.home[2] + 0.1 and session.now.error < 0.02,
            "the hand follows",
            60,
        )
        eventually(
            lambda: page.target.position[2] > page.scene.home[2] + 0.1,
            "so does the target that is drawn",
        )
        began = session.now.t
        window.get_by_role("button", name="Push: 160 N for 300 ms").click()
        eventually(lambda: session.now.t > began + 1.5, "time goes on", 60)
        assert not session.now.fallen and session.now.x[2] > 0.8
        image = picture(window, path=str(tmp_path / "balancing.png"))
        assert share(image, (220, 60, 50), 40) > 1e-5, "forces are seen"
        window.get_by_role("button", name="Begin again").click()
        eventually(
            lambda: np.allclose(session.now.target, page.scene.home), "the first target again", 60
        )
