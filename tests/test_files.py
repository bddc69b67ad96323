"""Files of others: what is damaged, endless, or meant to run code is refused with an error of
ours.
"""

from __future__ import annotations

import os
import pickle
import zipfile

import numpy as np
import pytest

from rigidgrad import files
from rigidgrad.control.mpc.log import Log
from rigidgrad.errors import InputError, printable
from rigidgrad.files import read_arrays


class Bomb:
    """Unpickling it would be noticed."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


def log_file(tmp_path):
    log = Log(2, 1)
    for k in range(5):
        log.add_step(0.1 * k, np.array([k, -k]), np.array([2.0 * k]))
        log.add_solve(0.1 * k, 1e-3, 5.0, 3)
    log.counts = {"held": 2}
    log.save(tmp_path / "log.npz")
    return tmp_path / "log.npz"


def test_arrays_come_back_as_they_were_saved(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.eye(3, 2)),
        "n": np.array(3),
        "t": np.array("converged"),
        "e": np.zeros((0, 4)),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        for name, array in read_arrays(tmp_path / "x.npz").items():
            np.testing.assert_array_equal(array, arrays[name])
            assert array.dtype == arrays[name].dtype and array.flags.writeable
    np.save(tmp_path / "x.npy", arrays["a"])
    np.testing.assert_array_equal(read_arrays(tmp_path / "x.npy")[""], arrays["a"])


def test_a_log_comes_back_as_it_was_and_goes_on(tmp_path):
    log = Log.load(log_file(tmp_path))
    assert log.steps == log.solves == 5 and log.counts == {"held": 2}
    np.testing.assert_array_equal(log.x, [[k, -k] for k in range(5)])
    np.testing.assert_array_equal(log.solve_iterations, [3.0] * 5)
    log.add_step(9.0, np.zeros(2), np.ones(1))  # it keeps as many as the file had
    assert log.t.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 9.0])
    Log(3, 2).save(tmp_path / "empty.npz")
    empty = Log.load(tmp_path / "empty.npz")
    assert empty.steps == 0 and empty.x.shape == (0, 3) and empty.u.shape == (0, 2)


def test_a_log_is_not_read_row_by_row(tmp_path, monkeypatch):
    """A small file may unpack to many rows."""
    path = log_file(tmp_path)
    monkeypatch.setattr(Log, "add_step", lambda *_: pytest.fail("a row was read by itself"))
    assert Log.load(path).steps == 5


def test_a_pickle_is_refused_without_numpys_advice_to_allow_it(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.array([Bomb()], dtype=object))
    (tmp_path / "y.npz").write_bytes(pickle.dumps(Bomb()))
    for name in ("x.npz", "y.npz"):
        for read in (read_arrays, Log.load):
            with pytest.raises(InputError) as refused:
                read(tmp_path / name)
            assert name in str(refused.value) and "allow_pickle" not in str(refused.value)


def test_every_damage_to_a_log_is_an_error_of_ours_or_harmless(tmp_path):
    whole = log_file(tmp_path).read_bytes()
    refused = []
    for at in range(0, len(whole), 7):
        for bad in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]):
            (tmp_path / "bad.npz").write_bytes(bad)
            try:
                Log.load(tmp_path / "bad.npz")
            except InputError as error:
                refused.append(str(error))
    assert len(refused) > len(whole) // 7 and all("bad.npz" in said for said in refused)


@pytest.mark.parametrize(
    "changes",
    [
        {"x": np.zeros(5)}, {"x": np.zeros((4, 2))}, {"t": np.array(["a"] * 5)}, {"u": np.zeros((5, 1), complex)},
        {"count_held": np.array(np.nan)}, {"count_held": np.zeros(3)}, {"solve_t": np.zeros((5, 2))}, {"slack": None},
    ],
)  # fmt: skip
def test_a_log_with_arrays_that_do_not_fit_is_refused(tmp_path, changes):
    arrays = {k: v for k, v in (read_arrays(log_file(tmp_path)) | changes).items() if v is not None}
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match="is no log of a controller"):
        Log.load(tmp_path / "bad.npz")


def test_what_unpacks_to_more_than_the_bound_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_ARRAY_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1 << 18))
    with pytest.raises(InputError, match="more than 1 MB"):
        read_arrays(tmp_path / "x.npz")
    header = (
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape':"
        b" (10000000000000,), }".ljust(127)
        + b"\n"
    )
    (tmp_path / "y.npy").write_bytes(header)
    with pytest.raises(InputError, match="incomplete"):
        read_arrays(tmp_path / "y.npy")
    with zipfile.ZipFile(tmp_path / "z.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", bytes(1000))
    with pytest.raises(InputError, match="compressed"):
        read_arrays(tmp_path / "z.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_unopened(tmp_path):
    os.mkfifo(tmp_path / "x.npz")
    for read in (read_arrays, Log.load):
        with pytest.raises(InputError, match="not a regular file"):
            read(tmp_path / "x.npz")


def test_what_a_terminal_would_obey_is_escaped():
    assert printable("arm\x1b[2J\x9b\u202e\n\ud800") == "arm\\x1b[2J\\x9b\\u202e\\n\\ud800"
    assert printable("a\nb\tc", keep="\n") == "a\nb\\tc" and printable("Ärmel → 2") == "Ärmel → 2"
