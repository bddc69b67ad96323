"""MuJoCo: its C library from the wheel, constraints off, the fewest calls. It has no analytical
gradients of the dynamics.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from cases import Batch, Missing, Subject, Task

from peers import build

ADVICE = "pip install mujoco; apt-get install clang"


def library() -> ctypes.CDLL:
    try:
        import mujoco
    except ImportError:
        raise Missing(ADVICE) from None
    folder = Path(mujoco.__file__).parent
    shared = [
        path for pattern in ("libmujoco.so*", "libmujoco*.dylib") for path in folder.glob(pattern)
    ]
    if not shared:
        raise Missing(f"{ADVICE} (no libmujoco in {folder})")
    compiler = next(iter(build.compilers("c").values()))
    flags = [
        "-O3",
        "-march=native",
        f"-I{folder / 'include'}",
        str(shared[0]),
        f"-Wl,-rpath,{folder}",
    ]
    return ctypes.CDLL(
        str(
            build.shared_library(
                "mujoco", build.SOURCES / "mujoco_harness.c", compiler, flags, mujoco.__version__
            )
        )
    )


def _compile(subject: Subject):
    import mujoco

    spec = mujoco.MjSpec.from_string(subject.urdf.read_text())
    if subject.floating:
        spec.worldbody.first_body().add_freejoint()
    return spec.compile()


class Mujoco(build.CLoop):
    """Inputs are brought into MuJoCo's layout and joint order before the clock starts, results back
    after it stopped.
    """

    def __init__(self, subject: Subject, found: ctypes.CDLL):
        import mujoco

        model = _compile(subject)
        path = build.FOLDER / f"mujoco-{subject.label}.mjb"
        mujoco.mj_saveModel(model, str(path))
        found.create.restype = ctypes.c_void_p
        handle = found.create(str(path).encode())
        if not handle:
            raise RuntimeError(f"MuJoCo does not load {path}")
        super().__init__("mujoco", found, handle, ("rnea", "aba"))
        self._floating = subject.floating
        base = 6 if subject.floating else 0
        ours = {
            name: index
            for index, name in enumerate(
                joint for joint in subject.robot.joints if joint != "root_joint"
            )
        }
        theirs = [
            model.joint(i).name
            for i in range(model.njnt)
            if model.jnt_type[i] != mujoco.mjtJoint.mjJNT_FREE
        ]
        self._order = np.array([*range(base), *(base + ours[name] for name in theirs)])

    def bind(self, function: str, batch: Batch, outputs: tuple) -> Task:
        native = self._native(function, batch)
        results = (np.zeros_like(outputs[0]),)
        task = super().bind(function, native, results)
        return Task(task.run, lambda: (self._back(function, batch, results[0]),))

    def _native(self, function: str, batch: Batch) -> Batch:
        base = 7 if self._floating else 0
        joints = self._order[6:] - 6 + 7 if self._floating else self._order
        q = np.concatenate([batch.q[:, :base], batch.q[:, joints]], axis=1)
        v, x = batch.v[:, self._order], batch.x[:, self._order]
        if self._floating:
            q[:, 3:7] = batch.q[:, [6, 3, 4, 5]]
            R = rotations(batch.q)
            if function == "rnea":
                x[:, :3] += np.cross(v[:, 3:6], v[:, :3])
            x[:, :3] = np.einsum("nij,nj->ni", R, x[:, :3])
            v[:, :3] = np.einsum("nij,nj->ni", R, v[:, :3])
        return Batch(*(np.ascontiguousarray(array) for array in (q, v, x)))

    def _back(self, function: str, batch: Batch, native: np.ndarray) -> np.ndarray:
        result = np.empty_like(native)
        result[:, self._order] = native
        if self._floating:
            result[:, :3] = np.einsum("nji,nj->ni", rotations(batch.q), native[:, :3])
            if function == "aba":
                result[:, :3] -= np.cross(batch.v[:, 3:6], batch.v[:, :3])
        return result


def rotations(q: np.ndarray) -> np.ndarray:
    """World from body (N, 3, 3), of quaternions xyzw in columns 3 to 6."""
    x, y, z, w = q[:, 3:7].T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def contenders(subject: Subject, found: ctypes.CDLL) -> list:
    return [Mujoco(subject, found)]
