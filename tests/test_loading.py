"""Robots whose descriptions make little physical sense load with one warning that lists their
bodies; kinematics and inverse dynamics are those of Pinocchio, and what would divide by a mass that
is not there says so, by name.
"""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.cli import main
from rigidgrad.errors import ModelError, ModelWarning

pytestmark = pytest.mark.filterwarnings("ignore::rigidgrad.errors.ModelWarning")


def link(name, mass=1.0, moments=(0.02, 0.02, 0.01), at="0 0 0.1"):
    if mass is None:
        return f'<link name="{name}"/>'
    xx, yy, zz = moments
    return (
        f'<link name="{name}"><inertial><origin xyz="{at}"/><mass value="{mass}"/><inertia'
        f' ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    )


def hinge(name, parent, child, axis="0 1 0", extra="", kind="continuous"):
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="0.1 0 0.3"/><axis xyz="{axis}"/>{extra}</joint>'
    )


def robot(*parts, **options):
    return rg.load(f'<robot name="r">{link("base", None)}{"".join(parts)}</robot>', **options)


ARM = link("upper") + hinge("shoulder", "base", "upper")
LEAF = ARM + link("hand", None) + hinge("wrist", "upper", "hand", "1 0 0")
DAMPED = LEAF.replace('<axis xyz="1 0 0"/>', '<axis xyz="1 0 0"/><dynamics damping="0.5"/>')
# what divides by the mass matrix
DIVIDES = {
    "aba": lambda r, x: r.aba(x, x, x),
    "minv": lambda r, x: r.minv(x),
    "aba_derivatives": lambda r, x: r.aba_derivatives(x, x, x),
    "factored": lambda r, x: r.aba_derivatives(x, x, x, factored=True),
    "without dtau": lambda r, x: r.aba_derivatives(x, x, x, dtau=False),
    "contact_dynamics": lambda r, x: r.contact_dynamics(x, x, x, [rg.Contact("hand")]),
    "contact_dynamics_derivatives": (
        lambda r, x: r.contact_dynamics_derivatives(x, x, x, [rg.Contact("hand")])
    ),
    "impact": lambda r, x: r.impact(x, x, [rg.Contact("hand")]),
    "delassus": lambda r, x: r.delassus(x, [rg.Contact("hand")]),
    "compile": lambda r, x: r.compile("aba"),
    "generate": lambda r, x: rg.generate(r, ["minv"], target="c", out="nowhere"),
    "solve": lambda r, x: rg.solve(problem(r)),
    "solve with contacts": lambda r, x: rg.solve(
        rg.Problem(
            r,
            start=np.zeros(2 * r.nv),
            phases=[rg.Phase(3, contacts=[rg.Contact("hand")])],
            dt=0.1,
            costs=[rg.costs.Effort(weight=1.0)],
        )
    ),
    "simulator": lambda r, x: rg.plants.Simulator(r, np.zeros(2 * r.nv)),
}


def problem(r):
    zero = np.zeros(2 * r.nv)
    costs = [rg.costs.State(zero, weight=1.0), rg.costs.Effort(weight=1.0)]
    return rg.Problem(r, start=zero, steps=3, dt=0.1, costs=costs)


@pytest.mark.parametrize("function", DIVIDES)
def test_what_divides_by_a_missing_mass_names_the_joint_and_the_body(function):
    r = robot(LEAF)
    with pytest.raises(ModelError, match=r"singular: nothing resists joint 'wrist'.*link 'hand'"):
        DIVIDES[function](r, np.array([0.3, 0.2]))


@pytest.mark.parametrize("engine", ["lanes", "numpy"])
def test_what_needs_no_mass_is_that_of_pinocchio(engine):
    pin = pytest.importorskip("pinocchio")
    r = robot(LEAF.replace("continuous", "revolute"), engine=engine)
    peer = r.to_pinocchio()
    data = peer.createData()
    q, v, a = np.random.default_rng(1).normal(size=(3, 2))
    np.testing.assert_allclose(r.rnea(q, v, a), pin.rnea(peer, data, q, v, a), atol=1e-12)
    M = pin.crba(peer, data, q)
    np.testing.assert_allclose(r.crba(q), M, atol=1e-12)
    assert r.crba(q)[1, 1] == 0.0
    pin.framesForwardKinematics(peer, data, q)
    placed = data.oMf[peer.getFrameId("hand")].homogeneous
    np.testing.assert_allclose(r.forward_kinematics(q)["hand"], placed, atol=1e-12)
    np.testing.assert_allclose(
        r.gravity_torque(q), pin.computeGeneralizedGravity(peer, data, q), atol=1e-12
    )
    assert np.isfinite(r.rnea_derivatives(q, v, a).dq).all() and r.jacobian(q, "hand").shape


def test_one_warning_lists_all_bodies_where_the_robot_is_loaded():
    many = "".join(
        link(f"finger{k}", None) + hinge(f"knuckle{k}", "upper", f"finger{k}") for k in range(3)
    )
    odd = link("tool", 1.0, (1, 1, 3)) + hinge("spin", "upper", "tool")
    with pytest.warns(ModelWarning) as caught:
        r = robot(ARM, many, odd)
    (said,) = caught
    assert said.filename == __file__
    assert all(f"'{name}'" in str(said.message) for name in ("finger0", "finger1", "finger2"))
    assert "4 bodies" in str(said.message) and "'tool' (with what" in str(said.message)
    assert sorted(p.name for p in r.model.problems) == ["finger0", "finger1", "finger2", "tool"]
    with pytest.raises(ModelError, match=r"'finger0'.*'tool'|'tool'.*'finger0'"):
        robot(ARM, many, odd, strict=True)


def test_what_was_told_is_not_told_again():
    r = robot(LEAF)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        again = pickle.loads(pickle.dumps(r))
        r.add_frame("tip", "hand", (0, 0, 0.1)).reduced(lock={"shoulder": 0.3})
        pendulum = rg.load("pendulum")
        pendulum.attach(r, pendulum.frames[-1], np.eye(4))
    assert again.model.problems == r.model.problems
    locked = r.reduced(lock={"wrist": 0.0})  # the hand is fixed now: nothing is missing
    assert not locked.model.problems and np.isfinite(locked.aba([0.1], [0.0], [1.0])).all()


def test_masses_that_are_implausible_but_suffice_are_taken_as_given():
    pin = pytest.importorskip("pinocchio")
    r = robot(ARM, link("tool", 1.0, (1, 1, 3)), hinge("spin", "upper", "tool"))
    peer = r.to_pinocchio()
    q, v, tau = np.random.default_rng(2).normal(size=(3, 2))
    theirs = rg.interop.states(r, peer)
    expected = pin.aba(peer, peer.createData(), theirs.to(q=q)[0], v, tau)
    np.testing.assert_allclose(r.aba(q, v, tau), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        # an inertia below zero outweighs everything else
        (ARM + link("tool", 1.0, (-1, -1, -1)) + hinge("spin", "upper", "tool"), "spin"),
        (ARM + link("tool", -9.0) + hinge("spin", "upper", "tool"), "spin"),
        # a point of mass on the axis
        (ARM + link("tool", 1.0, (0, 0, 0), "0 0 0") + hinge("spin", "upper", "tool"), "spin"),
    ],
)
def test_less_than_no_inertia_is_named(parts, name):
    r = robot(parts)
    assert np.isfinite(r.rnea(np.ones(2), np.ones(2), np.ones(2))).all()
    with pytest.raises(ModelError, match=f"joint '{name}'.*link 'tool'"):
        r.minv(np.zeros(2))


def test_massless_links_that_carry_mass_divide():
    gimbal = link("ring", None) + hinge("a", "base", "ring", "1 0 0")
    wheel = link("wheel") + hinge("b", "ring", "wheel", "0 1 0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        r = robot(gimbal, wheel, strict=True)
    assert np.isfinite(r.aba(np.zeros(2), np.ones(2), np.ones(2))).all()
    mimic = '<mimic joint="shoulder" multiplier="0.5"/>'
    finger = link("finger", None) + hinge("finger_joint", "upper", "finger", extra=mimic)
    r = robot(ARM, finger)  # it moves with its master, which has a mass
    assert np.isfinite(r.aba([0.1], [0.2], [0.3])).all()


def test_chains_of_massless_links_with_parallel_axes_are_named():
    ring = link("ring", None) + hinge("a", "base", "ring", "0 0 1")
    wheel = link("wheel") + hinge("b", "ring", "wheel", "0 0 1").replace("0.1 0 0.3", "0 0 0.3")
    r = robot(ring, wheel)
    with pytest.raises(ModelError, match=r"joint 'a'.*link 'ring'.*armature"):
        r.aba(np.zeros(2), np.zeros(2), np.zeros(2))


def test_masses_that_are_inputs_are_the_callers():
    r = robot(LEAF)
    fast = r.compile("aba", parameters=("inertia",))
    whole = robot(ARM, link("hand", 0.4), hinge("wrist", "upper", "hand", "1 0 0"))
    numbers = np.array([(m, *h, *rotational) for m, h, rotational in whole.model.inertias])
    q, v, tau = np.random.default_rng(3).normal(size=(3, 2))
    np.testing.assert_allclose(fast(q, v, tau, numbers), whole.aba(q, v, tau), rtol=1e-10)
    fast = r.compile("aba", parameters=("armature",))
    assert np.isfinite(fast(q, v, tau, np.array([0.0, 0.1]))).all()


def test_friction_holds_a_massless_joint_of_a_simulator():
    r = robot(DAMPED)
    plant = rg.plants.Simulator(r, np.zeros(4), friction="model")
    plant.advance([0.0, 0.1])
    assert np.isfinite(plant.x).all()
    with pytest.raises(ModelError, match=r"a simulator of 'r'.*'wrist'"):
        rg.plants.Simulator(r, np.zeros(4))


# --- folders --------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    write("fine.urdf", f'<robot name="fine">{link("base", None)}{ARM}</robot>')
    write("odd/light.urdf", f'<robot name="light">{link("base", None)}{LEAF}</robot>')
    write("odd/light_too.urdf", f'<robot name="too">{link("base", None)}{LEAF}</robot>')
    write("broken.urdf", '<robot name="broken"><link')
    write("package.xml", "<package><name>no robot</name></package>")
    write("notes.txt", "<robot/>")
    return tmp_path


def test_a_folder_is_counted_with_reasons(folder, capsys):
    assert main(["check", str(folder), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    counts = {
        k: found[k] for k in ("files", "loaded", "warned", "refused", "kinematics", "dynamics")
    }
    assert counts == {
        "files": 4, "loaded": 1, "warned": 2, "refused": 1, "kinematics": 3, "dynamics": 1,
    }  # fmt: skip
    kinds = found["reasons"]["warned"]
    assert any("has no mass and carries none" in kind and n == 2 for kind, n in kinds.items())
    by_file = {r["file"]: r for r in found["robots"]}
    assert by_file["broken.urdf"]["outcome"] == "refused"
    assert "not well-formed" in by_file["broken.urdf"]["reasons"][0]
    assert "'hand'" in by_file["odd/light.urdf"]["reasons"][0]


def test_the_exit_code_of_a_folder_tells_whether_all_robots_load(folder, capsys):
    (folder / "broken.urdf").unlink()
    assert main(["check", str(folder)]) == 0
    assert "3 robots: 1 loaded, 2 with warnings, 0 refused" in capsys.readouterr().out
    assert main(["check", str(folder), "--strict", "--quiet"]) == 1
    assert main(["check", str(folder / "odd" / "light.urdf"), "--quiet"]) == 1
    assert main(["check", str(folder / "odd" / "light.urdf"), "--quiet", "--no-strict"]) == 0
    (folder / "empty").mkdir()
    assert main(["check", str(folder / "empty")]) == 1
    assert "no robot's file" in capsys.readouterr().err
