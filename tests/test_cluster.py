"""Sharing out: order, resumption, lost workers, and wrong input."""

from __future__ import annotations

import os
import signal
from collections import Counter

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.errors import InputError, RigidgradError

pytest.importorskip("distributed", reason="needs dask (pip install 'rigidgrad[cluster]')")
pytest.importorskip("pyarrow", reason="needs pyarrow (pip install 'rigidgrad[cluster]')")


@pytest.fixture(scope="module")
def client():
    with rg.cluster.local(2) as client:
        yield client


def quiet(done, total):
    pass


ROWS = {"x": np.arange(25.0), "m": np.arange(150.0).reshape(25, 2, 3)}


def double(rows):
    return {"twice": 2 * rows["x"], "t": np.swapaxes(rows["m"], 1, 2), "word": [f"ä{k:g}" for k in rows["x"]], "n": rows["x"].astype(int)}


def test_rows_come_back_in_order_with_their_shapes(client, tmp_path):
    heard = []
    results = rg.cluster.map(double, ROWS, tmp_path / "out", chunk=4, cluster=client, progress=lambda *counts: heard.append(counts))
    assert heard == [(k, 7) for k in range(8)]
    assert results.finished and results.columns == ["x", "m", "twice", "t", "word", "n"]
    np.testing.assert_array_equal(results["twice"], 2 * ROWS["x"])
    np.testing.assert_array_equal(results["t"], np.swapaxes(ROWS["m"], 1, 2))
    np.testing.assert_array_equal(results["m"], ROWS["m"])
    assert results["word"].tolist() == [f"ä{k}" for k in range(25)] and results["n"].dtype.kind == "i"
    again = rg.cluster.load(tmp_path / "out")
    assert again == results
    import pyarrow.parquet as parquet

    rows = [row for part in results.parts for row in parquet.read_table(part).column("row").to_pylist()]
    assert rows == list(range(25))


def test_only_words_are_looked_up_in_dictionaries(client, tmp_path):
    import pyarrow.parquet as parquet

    for task, words in ((double, {"word"}), (lambda rows: {"y": rows["x"]}, set())):
        results = rg.cluster.map(task, ROWS, tmp_path / str(len(words)), cluster=client, progress=quiet)
        group = parquet.read_metadata(results.parts[0]).row_group(0)
        columns = [group.column(k) for k in range(group.num_columns)]
        assert {c.path_in_schema for c in columns if c.has_dictionary_page} == words


def test_local_workers_are_left_to_their_work(client):
    watched = client.run(lambda dask_worker: "profile" in dask_worker.periodic_callbacks)
    assert list(watched.values()) == [False, False]
    with pytest.raises(InputError, match="workers is a whole number"), rg.cluster.local(0):
        pass


def test_a_folder_goes_on_where_it_was(client, tmp_path):
    log, repaired = tmp_path / "log", tmp_path / "repaired"

    def task(rows):
        with log.open("a") as f:
            f.write(f"{int(rows['x'][0])}\n")
        if rows["x"][0] == 8 and not repaired.exists():
            raise ValueError("a bad day")
        return {"y": rows["x"] ** 2}

    with pytest.raises(RigidgradError, match=r"1 of 7 chunks failed.*a bad day"):
        rg.cluster.map(task, ROWS, tmp_path / "out", chunk=4, cluster=client, progress=quiet)
    unfinished = rg.cluster.load(tmp_path / "out")
    assert len(unfinished.parts) == 6
    with pytest.raises(RigidgradError, match="6 of 7 chunks"):
        unfinished["y"]
    repaired.touch()
    results = rg.cluster.map(task, ROWS, tmp_path / "out", chunk=4, cluster=client, progress=quiet)
    np.testing.assert_array_equal(results["y"], ROWS["x"] ** 2)
    assert Counter(log.read_text().split()) == {str(k): 2 if k == 8 else 1 for k in range(0, 25, 4)}


def test_a_killed_worker_loses_nothing_and_nothing_finished_is_done_again(tmp_path):
    log, killed = tmp_path / "log", tmp_path / "killed"

    def task(rows):
        first = int(rows["x"][0])
        if first == 60 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with log.open("a") as f:
            f.write(f"{first}\n")
        return {"y": -rows["x"]}

    x = np.arange(120.0)
    results = rg.cluster.map(task, {"x": x}, tmp_path / "out", chunk=4, workers=2, progress=quiet)
    assert killed.exists()
    np.testing.assert_array_equal(results["y"], -x)
    assert Counter(log.read_text().split()) == {str(k): 1 for k in range(0, 120, 4)}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["manifest.json", *(f"part-{k:06d}.parquet" for k in range(30))]


def test_a_library_of_motions_is_what_solving_each_gives(client, tmp_path):
    robot = (
        rg.Builder("arm")
        .link("base")
        .link("rod", 1.0, (0, 0, -0.5), np.diag([0.1, 0.1, 0.01]))
        .joint("pin", "revolute", "base", "rod", axis=(0, 1, 0))
        .build()
    )
    problem = rg.Problem(
        robot, start=np.zeros(2), steps=20, dt=0.05, costs=[rg.costs.State(np.zeros(2), weight=0.1, final=10.0), rg.costs.Effort(0.01)]
    )
    rng = np.random.default_rng(0)
    start, goal = rng.uniform(-1, 1, (7, 2)), rng.uniform(-1, 1, (7, 2))
    start[3, 0] = np.nan
    results = rg.cluster.solve(
        problem, tmp_path / "out", start=start, targets={0: goal}, chunk=4, cluster=client, progress=quiet, keep=("x", "u", "gains")
    )
    assert results["status"].tolist() == ["converged"] * 3 + ["invalid"] + ["converged"] * 3
    assert "NaN" in results["message"][3] and np.isnan(results["x"][3]).all()
    fine = [k for k in range(7) if k != 3]
    solutions = rg.solve(problem.batch(start[fine], targets={0: goal[fine]}), threads=1)
    for name in ("x", "u", "gains", "cost", "iterations"):
        np.testing.assert_array_equal(results[name][fine], [getattr(s, name) for s in solutions], err_msg=name)
    np.testing.assert_array_equal(results["target_0"], goal)
    with pytest.raises(InputError, match="begun with other task"):
        rg.cluster.solve(
            problem,
            tmp_path / "out",
            start=start,
            targets={0: goal},
            chunk=4,
            cluster=client,
            solver=rg.PDDP(iterations=3),
            keep=("x", "u", "gains"),
        )
    with pytest.raises(InputError, match="nothing differs"):
        rg.cluster.solve(problem, tmp_path / "out")
    with pytest.raises(InputError, match="keep is some of"):
        rg.cluster.solve(problem, tmp_path / "out", start=start, keep=("q",))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": {}}, "first axes agree"),
        ({"rows": {"x": 3.0}}, "first axes agree"),
        ({"rows": {"x": np.ones(3), "y": np.ones(4)}}, "first axes agree"),
        ({"rows": {"x": np.ones(0)}}, "no rows"),
        ({"rows": {"row": np.ones(3)}}, "name yours otherwise"),
        ({"chunk": 0}, "chunk is a whole number"),
        ({"workers": 0}, "workers is a whole number"),
        ({"task": lambda rows: {"x": rows["x"]}}, "has the name of an input"),
        ({"task": lambda rows: {"y": [1.0]}}, "has 1 rows; it was given 25"),
    ],
)
def test_wrong_calls_say_what_is_wrong(client, tmp_path, change, words):
    arguments = {"task": lambda rows: {"y": rows["x"]}, "rows": {"x": np.arange(25.0)}, "chunk": 25} | change
    with pytest.raises(RigidgradError, match=words):
        rg.cluster.map(arguments.pop("task"), arguments.pop("rows"), tmp_path / "out", cluster=client, progress=quiet, **arguments)


def test_wrong_folders_say_what_is_wrong(client, tmp_path):
    with pytest.raises(InputError, match="holds no results"):
        rg.cluster.load(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters").touch()
    with pytest.raises(InputError, match="not empty"):
        rg.cluster.map(double, ROWS, tmp_path / "other", cluster=client)
    results = rg.cluster.map(double, ROWS, tmp_path / "out", cluster=client, progress=quiet)
    with pytest.raises(InputError, match=r"no column 'z'.*twice"):
        results["z"]
    for rows, chunk, word in ((ROWS, 3, "chunk"), ({**ROWS, "x": ROWS["x"] + 1}, 240, "inputs")):
        with pytest.raises(InputError, match=f"begun with other {word}"):
            rg.cluster.map(double, rows, tmp_path / "out", chunk=chunk, cluster=client)
    (tmp_path / "out" / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        rg.cluster.load(tmp_path / "out")


def test_no_scheduler_at_an_address_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(rg.cluster, "_PATIENCE", 1)
    with pytest.raises(RigidgradError, match="no dask scheduler"):
        rg.cluster.map(double, ROWS, tmp_path / "out", cluster="tcp://127.0.0.1:1")


def test_the_command_solves_a_task_for_every_row(tmp_path, monkeypatch, capsys):
    import json

    from rigidgrad.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["init", "iiwa14", "--quiet"]) == 0
    targets = np.array([[-0.2, 0.1, 1.1], [-0.25, 0.0, 1.15], [0.0, 0.0, np.nan]])
    np.savez("rows.npz", target_0=targets[:2])
    command = ["solve", "task.toml", "--rows", "rows.npz", "--cluster", "--workers", "1", "--out", "library", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["statuses"] == {"converged": 2}
    results = rg.cluster.load("library")
    tips = rg.load("iiwa14").forward_kinematics(results["x"][:, -1, :7])["iiwa_link_ee"][:, :3, 3]
    assert np.linalg.norm(tips - targets[:2], axis=1).max() < 0.05
    assert main(command) == 0  # all of it is there
    np.savez("rows.npz", goal=targets)
    for arguments, said in (
        (command, "called start, target_0"),
        (["solve", "task.toml", "--cluster"], "with --rows"),
        ([*command[:3], "task.toml"], "no .npz file"),
    ):
        capsys.readouterr()
        assert main(arguments) == 2 and said in capsys.readouterr().err
