"""Pinocchio: its C++ instantiated from the wheel's headers by each compiler here, and its own
Python call.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from cases import FUNCTIONS, Batch, Missing, Subject, Task

from peers import build

ADVICE = "pip install pin; for its C++ also pip install cmeel-eigen and apt-get install clang"
DEFINITIONS = [
    "-DNDEBUG",
    "-DBOOST_MPL_LIMIT_LIST_SIZE=30",
    "-DBOOST_MPL_LIMIT_VECTOR_SIZE=30",
    "-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS",
    "-DBOOST_FUSION_INVOKE_MAX_ARITY=10",
]


def _pinocchio():
    try:
        import pinocchio
    except ImportError:
        raise Missing(ADVICE) from None
    return pinocchio


def _model(subject: Subject):
    pin = _pinocchio()
    root = [pin.JointModelFreeFlyer()] if subject.floating else []
    return pin.buildModelFromUrdf(str(subject.urdf), *root)


def _eigen() -> Path:
    """Eigen's headers, which the wheel of Pinocchio does not have: of the package cmeel-eigen, or
    of the system.
    """
    places = [Path(folder) / "cmeel.prefix" for folder in sys.path] + [
        Path("/usr"),
        Path("/usr/local"),
    ]
    for place in places:
        if (place / "include" / "eigen3" / "Eigen" / "Core").is_file():
            return place / "include" / "eigen3"
    raise Missing(ADVICE)


def _flags(pin) -> list[str]:
    prefix = next(
        folder
        for folder in Path(pin.__file__).parents
        if (folder / "include" / "pinocchio").is_dir()
    )
    return [
        "-std=c++17",
        "-O3",
        "-march=native",
        *DEFINITIONS,
        f"-I{prefix / 'include'}",
        f"-I{_eigen()}",
    ]


def libraries() -> dict[str, ctypes.CDLL]:
    """One a compiler: {"pinocchio clang": …, "pinocchio gcc": …}. The first build takes minutes."""
    pin = _pinocchio()
    flags = _flags(pin)
    found = {}
    for family, compiler in build.compilers("c++").items():
        path = build.shared_library(
            f"pinocchio-{family}",
            build.SOURCES / "pinocchio_harness.cpp",
            compiler,
            flags,
            pin.__version__,
            slow=True,
        )
        found[f"pinocchio {family}"] = ctypes.CDLL(str(path))
    return found


def contact_library() -> ctypes.CDLL:
    """Constrained dynamics, compiled by clang, which makes the fastest code."""
    pin = _pinocchio()
    compiler = build.compilers("c++").get("clang")
    if compiler is None:
        raise Missing(ADVICE)
    source = build.SOURCES / "pinocchio_contacts.cpp"
    flags = [
        *(f for f in _flags(pin) if "MAX_ARITY" not in f),
        "-DBOOST_FUSION_INVOKE_MAX_ARITY=12",
    ]
    depends = pin.__version__ + (build.SOURCES / "pinocchio_harness.cpp").read_text()
    return ctypes.CDLL(
        str(
            build.shared_library(
                "pinocchio-contacts-clang", source, compiler, flags, depends, slow=True
            )
        )
    )


def hold(library: ctypes.CDLL, model, contacts: list[tuple[int, int, np.ndarray]]) -> int:
    """A handle for `contact_dynamics`: of each contact its joint's number, its rows and its pose
    (4, 4) on that joint.
    """
    library.hold.restype = ctypes.c_void_p
    places = np.array([[*pose[:3, :3].ravel(), *pose[:3, 3]] for _, _, pose in contacts])
    count = len(contacts)
    joints, rows = ((ctypes.c_int * count)(*(c[k] for c in contacts)) for k in range(2))
    return library.hold(
        ctypes.c_void_p(_handle(library, model)),
        count,
        joints,
        rows,
        places.ctypes.data_as(build.DOUBLES),
    )


def _handle(library: ctypes.CDLL, model) -> int:
    """The model that Pinocchio's URDF reader made, handed over as numbers."""
    bodies = model.njoints - 1
    rows = np.zeros((bodies, 28))
    types = []
    for i in range(bodies):
        joint, placement, inertia = (
            model.joints[i + 1],
            model.jointPlacements[i + 1],
            model.inertias[i + 1],
        )
        types.append(joint.shortname().encode())
        if joint.shortname().endswith("Unaligned"):
            rows[i, :3] = joint.extract().axis if hasattr(joint, "extract") else joint.axis
        rows[i, 3:12] = placement.rotation.ravel()
        rows[i, 12:15] = placement.translation
        rows[i, 15] = inertia.mass
        rows[i, 16:19] = inertia.lever
        rows[i, 19:] = inertia.inertia.ravel()
    library.create.restype = ctypes.c_void_p
    gravity = np.array(model.gravity.linear)
    handle = library.create(
        bodies,
        (ctypes.c_char_p * bodies)(*types),
        (ctypes.c_int * bodies)(*list(model.parents)[1:]),
        rows.ctypes.data_as(build.DOUBLES),
        gravity.ctypes.data_as(build.DOUBLES),
    )
    if not handle:
        raise RuntimeError(f"the Pinocchio harness does not know one of the joints {types}")
    return handle


class FromPython:
    """One state by Pinocchio's Python binding."""

    name = "pinocchio python"

    def __init__(self, model):
        pin = _pinocchio()
        self._model, self._data = model, model.createData()
        self._calls = {
            "rnea": pin.rnea,
            "aba": pin.aba,
            "rnea_derivatives": pin.computeRNEADerivatives,
            "aba_derivatives": pin.computeABADerivatives,
        }

    def offers(self, function: str, count: int) -> bool:
        return count == 1

    def bind(self, function: str, batch: Batch, outputs: tuple) -> Task:
        call, model, data = self._calls[function], self._model, self._data
        q, v, x = (array[0] for array in batch)

        def run(repeats: int) -> None:
            for _ in range(repeats):
                call(model, data, q, v, x)

        def results() -> tuple[np.ndarray, ...]:
            result = call(model, data, q, v, x)
            if not isinstance(result, tuple):
                return (np.array(result)[None],)
            dq, dv, upper = (np.array(matrix) for matrix in result)
            return tuple(matrix[None] for matrix in (dq, dv, np.triu(upper) + np.triu(upper, 1).T))

        return Task(run, results)


def contenders(subject: Subject, found: dict[str, ctypes.CDLL]) -> list:
    model = _model(subject)
    loops = [
        build.CLoop(name, library, _handle(library, model), tuple(FUNCTIONS))
        for name, library in found.items()
    ]
    return [*loops, FromPython(model)]
