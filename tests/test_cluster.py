"""Sharing out: order, resumption, lost workers, and wrong input."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
    return {
        "twice": 2 * rows["x"],
        "t": np.swapaxes(rows["m"], 1, 2),
        "word": [f"ä{k:g}" for k in rows["x"]],
        "n": rows["x"].astype(int),
    }


def test_rows_come_back_in_order_with_their_shapes(client, tmp_path):
    heard = []
    results = rg.cluster.map(
        double,
        ROWS,
        tmp_path / "out",
        chunk=4,
        cluster=client,
        progress=lambda *counts: heard.append(counts),
    )
    assert heard == [(k, 7) for k in range(8)]
    assert results.finished and results.columns == ["x", "m", "twice", "t", "word", "n"]
    np.testing.assert_array_equal(results["twice"], 2 * ROWS["x"])
    np.testing.assert_array_equal(results["t"], np.swapaxes(ROWS["m"], 1, 2))
    np.testing.assert_array_equal(results["m"], ROWS["m"])
    assert (
        results["word"].tolist() == [f"ä{k}" for k in range(25)] and results["n"].dtype.kind == "i"
    )
    again = rg.cluster.load(tmp_path / "out")
    assert again == results
    import pyarrow.parquet as parquet

    rows = [
        row for part in results.parts for row in parquet.read_table(part).column("row").to_pylist()
    ]
    assert rows == list(range(25))


def test_only_words_are_looked_up_in_dictionaries(client, tmp_path):
    import pyarrow.parquet as parquet

    for task, words in ((double, {"word"}), (lambda rows: {"y": rows["x"]}, set())):
        results = rg.cluster.map(
            task, ROWS, tmp_path / str(len(words)), cluster=client, progress=quiet
        )
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
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        *(f"part-{k:06d}.parquet" for k in range(30)),
    ]


def kill_workers(client):
    """Those that run, without asking them: one that is dying, or not back yet, need not answer."""
    for nanny in client.cluster.workers.values():
        if nanny.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(nanny.pid, signal.SIGKILL)


def test_when_all_workers_die_at_once_every_row_is_there_all_the_same(tmp_path):
    x = np.arange(80.0)
    with rg.cluster.local(2) as client:
        results = rg.cluster.map(
            lambda rows: {"y": -rows["x"]},
            {"x": x},
            tmp_path / "out",
            chunk=4,
            cluster=client,
            progress=lambda done, total: kill_workers(client) if done in (2, 12) else None,
        )
    assert results.finished
    np.testing.assert_array_equal(results["y"], -x)


def test_workers_killed_at_random_lose_no_row(tmp_path):
    tool = Path(__file__).parents[1] / "tools" / "attack_cluster.py"
    done = subprocess.run(
        [sys.executable, tool, "--kills", "3", "--workers", "2", "--seconds", "120"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0 and done.stdout.startswith("3 kills"), done.stderr[-2000:]


def test_without_workers_it_does_not_wait_for_ever(tmp_path, monkeypatch):
    from dask.distributed import Client, Future

    monkeypatch.setattr(rg.cluster, "_LOST", 1)
    with rg.cluster.local(1, dashboard=None) as client:
        for nanny in list(client.cluster.workers.values()):
            client.cluster.sync(nanny.close)
        with pytest.raises(RigidgradError, match="no worker is left"):
            rg.cluster.map(double, ROWS, tmp_path / "out", cluster=client, progress=quiet)
        with Client(client.scheduler.address) as other:
            warned = []

            def warn(text, **_):
                warned.append(text)
                other.cancel([Future(key, other) for key in list(other.futures)])

            monkeypatch.setattr(rg.cluster.warnings, "warn", warn)
            with pytest.raises(RigidgradError, match="gave chunk"):
                rg.cluster.map(double, ROWS, tmp_path / "out", cluster=other, progress=quiet)
        assert len(warned) == 1 and "waiting for one" in warned[0]


def test_a_worker_that_starts_slowly_is_not_given_up():
    from dask import config

    with rg.cluster.local(1, dashboard=None):
        assert config.get("distributed.deploy.lost-worker-timeout") == "8760h"


def test_a_client_is_used_although_another_one_was_opened_last_and_closes(client, tmp_path):
    def task(rows):
        time.sleep(0.3)
        return double(rows)

    with rg.cluster.local(1, dashboard=None) as other:

        def close(done, total):
            if done == 1:
                other.close()
                other.cluster.close()

        results = rg.cluster.map(
            task, ROWS, tmp_path / "out", chunk=4, cluster=client, progress=close
        )
    np.testing.assert_array_equal(results["twice"], 2 * ROWS["x"])


def test_a_chunk_that_dask_gives_up_is_a_failure(client, tmp_path):
    from dask.distributed import Future

    def task(rows):
        time.sleep(0.2)
        return {"y": rows["x"]}

    def cancel(done, total):
        if done == 1:
            client.cancel([Future(key, client) for key in list(client.futures)], force=True)

    with pytest.raises(RigidgradError, match=r"chunks failed.*gave chunk \d+ up"):
        rg.cluster.map(task, ROWS, tmp_path / "out", chunk=2, cluster=client, progress=cancel)
    assert not rg.cluster.load(tmp_path / "out").finished
    np.testing.assert_array_equal(
        rg.cluster.map(task, ROWS, tmp_path / "out", chunk=2, cluster=client, progress=quiet)["y"],
        ROWS["x"],
    )


@pytest.mark.parametrize("dashboard", ["127.0.0.1:0", None])
def test_nobody_outside_this_machine_can_connect(dashboard):
    psutil = pytest.importorskip("psutil")
    options = {} if dashboard else {"dashboard": None}
    with rg.cluster.local(1, **options) as client:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        listening = [
            c.laddr.ip
            for p in processes
            for c in p.net_connections("inet")
            if c.status == psutil.CONN_LISTEN
        ]
        # scheduler, its page, nanny, worker
        assert len(listening) >= 4 and set(listening) <= {"127.0.0.1", "::1"}
        assert not dashboard or client.dashboard_link.startswith("http://127.0.0.1")


@pytest.fixture(scope="module")
def security(tmp_path_factory):
    from dask.distributed import Security

    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = str(folder / "key.pem"), str(folder / "certificate.pem")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=rigidgrad",
        "-days",
        "1",
    ]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    ends = {
        f"tls_{end}_{what}": path
        for end in ("client", "scheduler", "worker")
        for what, path in (("key", key), ("cert", certificate))
    }
    return Security(tls_ca_file=certificate, require_encryption=True, **ends)


def test_connections_can_be_by_tls(tmp_path, security, monkeypatch):
    with rg.cluster.local(1, security=security, dashboard=None) as client:
        address = client.scheduler.address
        assert address.startswith("tls://127.0.0.1")
        results = rg.cluster.map(
            double, ROWS, tmp_path / "out", cluster=address, security=security, progress=quiet
        )
        np.testing.assert_array_equal(results["twice"], 2 * ROWS["x"])
        monkeypatch.setattr(rg.cluster, "_PATIENCE", 1)
        for given in (address, address.replace("tls://", "tcp://")):
            with pytest.raises(RigidgradError, match="no dask scheduler"):  # without a certificate
                rg.cluster.map(double, ROWS, tmp_path / "other", cluster=given, progress=quiet)
        for given, words in (
            ({"cluster": client, "security": security}, "has its own"),
            ({"security": "yes"}, "not str"),
        ):
            with pytest.raises(InputError, match=words):
                rg.cluster.map(double, ROWS, tmp_path / "other", **given)


def test_damaged_and_misplaced_files_are_noticed(client, tmp_path):
    results = rg.cluster.map(
        double, ROWS, tmp_path / "out", chunk=5, cluster=client, progress=quiet
    )
    other = rg.cluster.map(
        double,
        {**ROWS, "x": ROWS["x"] + 1},
        tmp_path / "other",
        chunk=5,
        cluster=client,
        progress=quiet,
    )
    expected = {name: results[name] for name in results.columns}
    first, second = results.parts[:2]
    whole, noticed = first.read_bytes(), 0
    rng = np.random.default_rng(0)
    for place in range(0, len(whole), 23):
        damaged = bytearray(whole)
        damaged[place] ^= int(rng.integers(1, 256))
        first.write_bytes(damaged)
        for name, values in expected.items():
            try:
                np.testing.assert_array_equal(results[name], values)
            except RigidgradError:
                noticed += 1
    assert noticed > 30
    for text in (b"", whole[: len(whole) // 2], second.read_bytes(), other.parts[0].read_bytes()):
        first.write_bytes(text)
        with pytest.raises(RigidgradError, match="damaged or misplaced"):
            results["twice"]
        with pytest.raises(RigidgradError, match="Delete it"):
            rg.cluster.map(double, ROWS, tmp_path / "out", chunk=5, cluster=client, progress=quiet)
    first.unlink()
    again = rg.cluster.map(double, ROWS, tmp_path / "out", chunk=5, cluster=client, progress=quiet)
    np.testing.assert_array_equal(again["twice"], 2 * ROWS["x"])
    # as many files, but not those
    shutil.move(again.parts[-1], tmp_path / "out" / "part-000017.parquet")
    with pytest.raises(RigidgradError, match="4 of 5 chunks"):
        again["twice"]


def test_files_are_on_the_disk_before_they_have_their_names(tmp_path, monkeypatch):
    from rigidgrad.cluster import folder

    done = []
    real = {name: getattr(os, name) for name in ("fsync", "replace", "link")}
    for name, function in real.items():
        monkeypatch.setattr(
            folder.os,
            name,
            lambda *a, name=name, function=function: (done.append(name), function(*a))[1],
        )
    results = folder.begin(tmp_path / "out", {"x": np.arange(3.0)}, 3, 3, "task")
    assert done == ["fsync", "link", "fsync"]  # the file, its name, the folder
    results.write(0, {"row": np.arange(3), "x": np.arange(3.0)})
    assert done[3:] == ["fsync", "replace", "fsync"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "part-000000.parquet",
    ]

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(folder.os, "link", crash)
    with pytest.raises(KeyboardInterrupt):
        folder.begin(tmp_path / "new", {"x": np.arange(3.0)}, 3, 3, "task")
    assert list((tmp_path / "new").iterdir()) == []


def test_several_calls_on_one_folder_share_it_or_say_that_it_is_taken(client, tmp_path):
    from rigidgrad.cluster import folder

    def call(_):
        return rg.cluster.map(
            double, ROWS, tmp_path / "out", chunk=2, cluster=client, progress=quiet
        )["twice"]

    def start(k):
        try:
            return folder.begin(tmp_path / "race", {"x": np.full(4, float(k))}, 4, 2, "task").run
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        for values in pool.map(call, range(3)):
            np.testing.assert_array_equal(values, 2 * ROWS["x"])
        said = list(pool.map(start, range(24)))
    assert [run for run in said if "begun with other inputs" not in run] == [
        rg.cluster.load(tmp_path / "race").run
    ]


def test_a_library_of_motions_is_what_solving_each_gives(client, tmp_path):
    robot = (
        rg.Builder("arm")
        .link("base")
        .link("rod", 1.0, (0, 0, -0.5), np.diag([0.1, 0.1, 0.01]))
        .joint("pin", "revolute", "base", "rod", axis=(0, 1, 0))
        .build()
    )
    problem = rg.Problem(
        robot,
        start=np.zeros(2),
        steps=20,
        dt=0.05,
        costs=[rg.costs.State(np.zeros(2), weight=0.1, final=10.0), rg.costs.Effort(0.01)],
    )
    rng = np.random.default_rng(0)
    start, goal = rng.uniform(-1, 1, (7, 2)), rng.uniform(-1, 1, (7, 2))
    start[3, 0] = np.nan
    results = rg.cluster.solve(
        problem,
        tmp_path / "out",
        start=start,
        targets={0: goal},
        chunk=4,
        cluster=client,
        progress=quiet,
        keep=("x", "u", "gains"),
    )
    assert results["status"].tolist() == ["converged"] * 3 + ["invalid"] + ["converged"] * 3
    assert "NaN" in results["message"][3] and np.isnan(results["x"][3]).all()
    fine = [k for k in range(7) if k != 3]
    solutions = rg.solve(problem.batch(start[fine], targets={0: goal[fine]}), threads=1)
    for name in ("x", "u", "gains", "cost", "iterations"):
        np.testing.assert_array_equal(
            results[name][fine], [getattr(s, name) for s in solutions], err_msg=name
        )
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
    arguments = {
        "task": lambda rows: {"y": rows["x"]},
        "rows": {"x": np.arange(25.0)},
        "chunk": 25,
    } | change
    with pytest.raises(RigidgradError, match=words):
        rg.cluster.map(
            arguments.pop("task"),
            arguments.pop("rows"),
            tmp_path / "out",
            cluster=client,
            progress=quiet,
            **arguments,
        )


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
    command = [
        "solve",
        "task.toml",
        "--rows",
        "rows.npz",
        "--cluster",
        "--workers",
        "1",
        "--out",
        "library",
        "--json",
    ]
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
        ([*command[:3], "task.toml"], "no .npz or .npy file"),
    ):
        capsys.readouterr()
        assert main(arguments) == 2 and said in capsys.readouterr().err


def test_files_that_are_no_rows_are_errors_of_ours(tmp_path):
    from rigidgrad.commands.library import read_rows
    from rigidgrad.errors import UsageError

    path = tmp_path / "rows.npz"
    np.savez_compressed(path, start=np.arange(600.0).reshape(300, 2))
    assert read_rows(path)["start"].shape == (300, 2)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(256)
        path.write_bytes(
            damaged[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else damaged
        )
        try:
            read_rows(path)
        except UsageError as error:
            assert "pickle" not in str(error)  # noqa: PT017 - many files, some of which are read
    np.save(tmp_path / "rows.npy", np.ones(3))
    np.savez(tmp_path / "objects.npz", start=np.array([{}], dtype=object))
    for name in ("rows.npy", "objects.npz", "absent.npz", "."):
        with pytest.raises(UsageError, match=r"no \.npz or \.npy file|rows are called start"):
            read_rows(tmp_path / name)
