"""Environments: what Gymnasium asks of them, and that their robots stand on their feet."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")

import rigidgrad as rg  # noqa: E402
from rigidgrad.errors import InputError, UnknownNameError  # noqa: E402

COUNT = 32


def test_their_names_are_those_of_the_files():
    assert rg.worlds.names() == (
        "atlas-stand",
        "cartpole",
        "go2-walk",
        "hopper",
        "hyq-walk",
        "iiwa14-reach",
    )
    with pytest.raises(UnknownNameError, match="go2-walk"):
        rg.worlds.make("go2-wlk", count=2)


@pytest.mark.parametrize(
    "name", ["cartpole", "hopper", "iiwa14-reach", "hyq-walk", "go2-walk", "atlas-stand"]
)
def test_they_are_vector_environments(name):
    if name == "go2-walk" and not list(importlib.metadata.distributions(name="example-robot-data")):
        pytest.skip("needs example-robot-data")
    env = rg.worlds.make(name, count=COUNT, seed=0)
    assert isinstance(env, gymnasium.vector.VectorEnv)
    o, info = env.reset(seed=3)
    assert env.observation_space.contains(o)
    assert info == {}
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(40):
        actions = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        o, reward, terminated, truncated, info = env.step(actions)
        assert env.observation_space.contains(o)
        assert reward.shape == terminated.shape == truncated.shape == (COUNT,)
        assert np.isfinite(reward).all()
        over = terminated | truncated
        ended += over.sum()
        if over.any():
            np.testing.assert_array_equal(info["_final_obs"], over)
            assert (env.worlds.time[over] == 0).all()
            assert np.abs(info["final_obs"][over] - o[over]).max() > 0
    if name in ("cartpole", "hopper"):
        assert ended > 0


def test_the_same_seed_gives_the_same_run():
    runs = []
    for _ in range(2):
        env = rg.worlds.make("cartpole", count=COUNT, seed=5)
        env.reset(seed=5)
        runs.append([env.step(np.full((COUNT, 1), 0.3))[0] for _ in range(30)])
    np.testing.assert_array_equal(*runs)


def test_a_run_ends_after_its_seconds():
    env = rg.worlds.make("iiwa14-reach", count=COUNT, seed=0, seconds=0.1)
    env.reset()
    for k in range(5):
        truncated = env.step(np.zeros(env.action_space.shape))[3]
        assert truncated.all() == (k == 4)


def test_a_quadruped_stands_and_bears_its_weight():
    env = rg.worlds.make("hyq-walk", count=COUNT, seed=0)
    del env.task["randomise"]
    env.worlds.mass[:], env.worlds.friction[:], env.worlds.gain[:] = 1.0, 1.0, 1.0
    env.reset()
    for _ in range(60):
        _, _, terminated, _, _ = env.step(np.zeros(env.action_space.shape))
    assert not terminated.any()
    weight = 9.81 * env.model.body_mass.sum()
    assert env.worlds.touch.sum(axis=1) == pytest.approx(np.full(COUNT, weight), rel=0.2)
    assert env.worlds.unfinished.sum() == 0


def test_worlds_differ_where_they_are_randomised():
    env = rg.worlds.make("hyq-walk", count=COUNT, seed=0)
    assert env.worlds.friction.std() > 0.05
    assert env.worlds.mass.std() > 0.01
    for _ in range(200):
        env._push()
    scan = {"forward": [0.0, 0.5], "left": [-0.3, 0.0, 0.3]}
    more = {"observations": {"terms": ["heights"]}, "randomise": {"kp": [0.9, 1.1]}}
    other = rg.worlds.make("hyq-walk", count=2, seed=0, scan=scan, **more)
    assert other.observe() == pytest.approx(np.tile(other.worlds.qpos[:, 2:3], 6))
    assert np.ptp(other.worlds.kp) > 0.05
    assert env.worlds.push.shape == (COUNT, 6)


def test_own_files_and_what_is_wrong_with_them(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'robot = "cartpole"\ndt = 0.01\nsteps = 2\n[rewards]\nalive = 1.0\n[start]\npositions = 0.1'
    )
    env = rg.worlds.make(path, count=4)
    assert env.step(np.zeros((4, 1)))[1] == pytest.approx(np.full(4, 0.02))
    with pytest.raises(InputError, match="actions are"):
        env.step(np.zeros((3, 1)))
    path.write_text('robot = "cartpole"\n[rewards]\nalife = 1.0')
    with pytest.raises(UnknownNameError, match="alive"):
        rg.worlds.make(path, count=4)
    path.write_text('robot = "cartpole"\nrewords = 1')
    with pytest.raises(UnknownNameError, match="rewards"):
        rg.worlds.make(path, count=4)
    path.write_text("robot = ")
    with pytest.raises(InputError, match=r"mine\.toml"):
        rg.worlds.make(path, count=4)


@pytest.fixture(scope="module")
def trainer():
    pytest.importorskip("torch")
    path = Path(__file__).parents[1] / "examples" / "walk_policy.py"
    spec = importlib.util.spec_from_file_location("walk_policy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_trainer_runs(trainer, monkeypatch, capsys):
    args = ["walk_policy.py", "--env", "cartpole", "--rounds", "2", "--count", str(COUNT)]
    monkeypatch.setattr("sys.argv", args)
    trainer.main()
    assert "reward" in capsys.readouterr().out


def test_a_policy_in_mujoco_sees_and_does_what_it_does_here(trainer):
    """With actions beyond ±1, so that they are cut off, and the last one among what is seen."""
    import torch

    torch.manual_seed(3)
    one, other = (
        rg.worlds.make("hyq-walk", count=1, seed=0, randomise=False, dtype="float64") for _ in "ab"
    )
    policy = trainer.Policy(one.observe().shape[1], 12)
    torch.nn.init.uniform_(policy.actor[-1].weight, -2, 2)
    data = trainer.in_mujoco(one, policy, (0.5, 0.1, -0.2), 10 * one.period)
    other.worlds.reset()
    acted = []
    for _ in range(10):
        other.command[:] = 0.5, 0.1, -0.2
        with torch.no_grad():
            a = policy.distribution(torch.as_tensor(other.observe())).mean.numpy()
        acted.append(a)
        assert not other.step(a)[2].any()
    assert np.abs(acted).max() > 1
    assert np.ptp(acted, axis=0).max() > 0.1
    np.testing.assert_allclose(other.worlds.qpos[0], data.qpos, atol=1e-5)


def test_a_quadruped_starts_and_stands_on_uneven_ground():
    env = rg.worlds.make(
        "hyq-walk",
        count=COUNT,
        seed=0,
        randomise=False,
        terrain={"size": [8, 6], "height": 0.1, "kind": "steps", "cell": 0.1},
        observations={"terms": ["heights", "joints"]},
        scan={"forward": [-0.2, 0.2], "left": [0.0]},
    )
    o, _ = env.reset()
    worlds = env.worlds
    assert np.ptp(worlds.qpos[:, 0]) > 3
    assert env.ground().max() > 0.03
    for _ in range(25):
        o, *_, terminated, _, _ = env.step(np.zeros(env.action_space.shape))
    assert terminated.sum() <= 1
    names = [sorted(x) for x in worlds.slots]
    on_field = np.array(["terrain" in x for x in names])
    touching = worlds.forward().contacts.touching
    assert (touching[:, on_field].sum(axis=1) >= 3).mean() > 0.9
    assert not touching[:, ~on_field].any()
    above = worlds.qpos[:, 2] - env.ground()
    assert o[:, 0] == pytest.approx(above, abs=0.15)
    assert not worlds.overflow.any()


def test_terrains_are_checked():
    with pytest.raises(UnknownNameError, match="kind of terrain"):
        rg.worlds.make("hyq-walk", count=2, terrain={"kind": "stepps"})
    with pytest.raises(UnknownNameError, match="number of a terrain"):
        rg.worlds.make("hyq-walk", count=2, terrain={"hight": 0.1})
    with pytest.raises(InputError, match="in metres, above 0"):
        rg.worlds.make("hyq-walk", count=2, terrain={"cell": 0})
    with pytest.raises(InputError, match="one each"):
        rg.worlds.make("hyq-walk", count=2, terrain={"size": 3})
    with pytest.raises(InputError, match="robot on a ground"):
        rg.worlds.make("cartpole", count=2, terrain={})
