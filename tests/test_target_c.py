"""Generated C: compiled by the system's compiler, it gives what Robot gives, for any batch, and
touches nothing outside its arrays.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.algorithms import catalog
from rigidgrad.codegen import generate
from rigidgrad.program.fuse import fuse
from rigidgrad.program.recorder import record
from rigidgrad.runtime.formulation import program_of
from rigidgrad.targets import c
from rigidgrad.targets.names import identifier

CC = os.environ.get("CC") or shutil.which("cc")
needs_compiler = pytest.mark.skipif(not CC, reason="there is no C compiler (cc)")
WARNINGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
SAME_BITS = ["-ffp-contract=off", "-O1"]
X86 = platform.machine() in ("x86_64", "AMD64")
CPUINFO = Path("/proc/cpuinfo")
HAS_AVX2 = X86 and CPUINFO.exists() and {"avx2", "fma"} <= set(CPUINFO.read_text().split())
VECTORS = ["-mavx2", "-mfma"] if HAS_AVX2 else []
GUARD = 64  # numbers on each side of an array that must stay as they are


class Library:
    """A compiled library, called with NumPy arrays of rows."""

    def __init__(self, folder, name, flags, programs):
        path = folder / f"{name}.so"
        subprocess.run(
            [CC, "-shared", "-fPIC", *WARNINGS, *flags, "-o", path, folder / f"{name}.c", "-lm"],
            check=True,
        )
        self.dll, self.name, self.programs = ctypes.CDLL(str(path)), name, programs

    def lanes(self, dtype):
        return getattr(self.dll, f"{self.name}_lanes{'_f32' if dtype == np.float32 else ''}")()

    def call(self, function, inputs, dtype, batch):
        """Outputs as flat rows; every array stands between guards."""
        program = self.programs[function]
        n = len(inputs[0])
        sizes = [
            math.prod(shape) for shape in (*program.inputs.values(), *program.outputs.values())
        ]
        outputs = [np.full((n, size), 7.0) for size in sizes[len(inputs) :]]
        arrays = [guarded(x.astype(dtype)) for x in (*inputs, *outputs)]
        suffix = "_f32" if dtype == np.float32 else ""
        symbol = getattr(self.dll, f"{self.name}_{function}{'_batch' if batch else ''}{suffix}")
        symbol.restype = None
        if batch:
            symbol(ctypes.c_long(n), *(middle(x) for x in arrays))
        else:
            for row in range(n):
                symbol(*(middle(x, row * size) for x, size in zip(arrays, sizes, strict=True)))
        for x in arrays:
            assert np.all(np.isnan(x[:GUARD])) and np.all(np.isnan(x[-GUARD:])), (
                "written outside the array"
            )
        return [
            x[GUARD:-GUARD].reshape(n, size)
            for x, size in list(zip(arrays, sizes, strict=True))[len(inputs) :]
        ]


def guarded(x):
    """NaN around the numbers: what reads it shows it, what writes it removes it."""
    edge = np.full(GUARD, np.nan, x.dtype)
    return np.concatenate([edge, x.ravel(), edge])


def middle(x, offset=0):
    return ctypes.c_void_p(x.ctypes.data + (GUARD + offset) * x.itemsize)


def build(robot, functions, folder, flags=()):
    name = identifier(robot.name)
    generate(robot, functions, out=folder)
    return Library(
        folder,
        name,
        [*SAME_BITS, *VECTORS, *flags],
        {f: program_of(robot.model, f) for f in functions},
    )


IIWA = ["rnea", "aba", "crba", "rnea_derivatives", "aba_derivatives", "rnea_hessian"]


@pytest.fixture(scope="module")
def iiwa(tmp_path_factory):
    robot = rg.load("iiwa14", engine="numpy")
    return robot, build(robot, IIWA, tmp_path_factory.mktemp("iiwa14"))


def expected(robot, function, inputs):
    result = getattr(robot, function)(*inputs)
    return [
        x.reshape(len(x), math.prod(x.shape[1:]))
        for x in (result if isinstance(result, tuple) else (result,))
    ]


def states(robot, function, n, seed=0):
    rng = np.random.default_rng(seed)
    q = robot.random(batch=n, seed=seed).q
    return [
        q if name == "q" else rng.uniform(-1, 1, (n, robot.nv))
        for name in catalog.FUNCTIONS[function].inputs
    ]


def batches(lanes):
    return sorted({0, 1, lanes - 1, lanes, lanes + 1, 37})


@needs_compiler
@pytest.mark.parametrize("function", IIWA)
def test_doubles_are_those_of_the_robot(iiwa, function):
    robot, library = iiwa
    for n in batches(library.lanes(np.float64)):
        inputs = states(robot, function, n)
        computed = library.call(function, inputs, np.float64, batch=True)
        for x, y in zip(computed, expected(robot, function, inputs), strict=True):
            assert np.max(abs(x - y), initial=0.0) <= 1e-12 * np.max(abs(y), initial=1.0)


@needs_compiler
@pytest.mark.parametrize("function", IIWA)
def test_floats_are_near_those_of_the_robot(iiwa, function):
    robot, library = iiwa
    for n in batches(library.lanes(np.float32)):
        inputs = [x.astype(np.float32).astype(float) for x in states(robot, function, n)]
        condition = (
            max(np.linalg.cond(robot.crba(inputs[0])), default=1.0)
            if function.startswith("aba")
            else 1.0
        )
        computed = library.call(function, inputs, np.float32, batch=True)
        for x, y in zip(computed, expected(robot, function, inputs), strict=True):
            assert x.dtype == np.float32
            assert np.max(abs(x - y), initial=0.0) <= 1e-6 * condition * np.max(abs(y), initial=1.0)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", IIWA)
def test_a_row_of_a_batch_has_the_bits_of_one_state(iiwa, function, dtype):
    robot, library = iiwa
    for n in batches(library.lanes(dtype)):
        inputs = states(robot, function, n)
        together, alone = (library.call(function, inputs, dtype, batch) for batch in (True, False))
        for x, y in zip(together, alone, strict=True):
            assert np.array_equal(x, y)


@needs_compiler
def test_nan_stays_in_its_row(iiwa):
    robot, library = iiwa
    q, v, a = states(robot, "rnea", 37)
    (clean,) = library.call("rnea", [q, v, a], np.float64, batch=True)
    q[36] = v[5] = np.nan
    (spoiled,) = library.call("rnea", [q, v, a], np.float64, batch=True)
    others = np.isin(np.arange(37), (5, 36), invert=True)
    assert np.array_equal(clean[others], spoiled[others]) and np.all(np.isnan(spoiled[5]))


@needs_compiler
@pytest.mark.parametrize("width", [0, 16])
def test_a_floating_base_at_other_widths_has_the_same_bits(tmp_path, width):
    """width: bytes in a vector; 0 is what a compiler without vectors sees."""
    robot = rg.load("hyq", floating_base=True, engine="numpy")
    library = build(robot, ["rnea"], tmp_path, [f"-DHYQ_VECTOR_BYTES={width}"])
    assert library.lanes(np.float64) == max(1, width // 8) and library.lanes(np.float32) == max(
        1, width // 4
    )
    inputs = states(robot, "rnea", 37)
    together, alone = (
        library.call("rnea", inputs, np.float64, batch)[0] for batch in (True, False)
    )
    (y,) = expected(robot, "rnea", inputs)
    assert np.array_equal(together, alone)
    assert np.max(abs(together - y)) <= 1e-12 * np.max(abs(y))


@needs_compiler
def test_every_kind_of_node_is_rendered(tmp_path):
    """Choices, roots, angles, signs, and outputs that are inputs or constants."""

    def function(v):
        x, y, z = v["n"]
        results = (
            x.minimum(y),
            x.maximum(-z),
            (x < y).select(z, 2.5),
            (x * x + 1.0).sqrt(),
            x.atan2(y, z),
            -(x / y),
            x - y * z,
            x * y - z,
            -(x * z) - y,
        )
        return ((*results, -x, 3.5, -0.25, *[0.0] * 8, math.inf, x.maximum(-z).sincos()[1]), z)

    program = record({"n": (3,)}, {"n": (22,), "t1": ()}, function)
    files = c.render({"for": fuse(program)}, "2 robots/")
    assert set(files) == {"robot_2_robots.h", "robot_2_robots.c"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    library = Library(tmp_path, "robot_2_robots", [*SAME_BITS, *VECTORS], {"for_": program})
    x = np.random.default_rng(0).normal(size=(37, 3))
    many, one = program.interpret({"n": tuple(x.T)})
    outputs = [
        np.array([np.broadcast_to(column, 37) for column in columns]).T
        for columns in (many, (one,))
    ]
    for batch in (True, False):
        for computed, direct in zip(
            library.call("for_", [x], np.float64, batch), outputs, strict=True
        ):
            np.testing.assert_allclose(computed, direct, rtol=1e-14, atol=1e-15)


@needs_compiler
@pytest.mark.parametrize("compiler", ["cc", "gcc", "clang"])
def test_the_plain_part_is_standard_c(tmp_path, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    generate(rg.load("iiwa14"), ["aba", "normalize", "energy"], out=tmp_path)
    plain = [*WARNINGS, "-Wshadow", "-Wconversion", "-DIIWA14_VECTOR_BYTES=0"]
    for source in ("iiwa14.c", "main.c"):
        subprocess.run([compiler, *plain, "-fsyntax-only", tmp_path / source], check=True)


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler (c++)")
def test_the_header_serves_c_plus_plus(tmp_path):
    generate(rg.load("double_pendulum"), ["rnea"], out=tmp_path)
    (tmp_path / "use.cpp").write_text(
        '#include "double_pendulum.h"\nvoid (*f)(long, const double *, const double *, const double'
        " *, double *) = double_pendulum_rnea_batch;\n"
    )
    subprocess.run(
        ["c++", "-std=c++11", "-Wall", "-Werror", "-fsyntax-only", tmp_path / "use.cpp"], check=True
    )


@needs_compiler
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_the_example_builds_and_finds_what_python_found(tmp_path):
    robot = rg.load("quadrotor")
    generate(
        robot,
        [
            "rnea",
            "aba",
            "integrate",
            "difference",
            "energy",
            "fused_gradient",
            ("jacobian", {"frame": robot.frames[-1]}),
        ],
        out=tmp_path,
    )
    built = tmp_path / "built"
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run(["cmake", "-S", tmp_path, "-B", built, "-DCMAKE_BUILD_TYPE=Release"], **quiet)
    subprocess.run(["cmake", "--build", built], **quiet)
    example = subprocess.run([built / "quadrotor_example"], capture_output=True, text=True)
    assert example.returncode == 0 and "WRONG" not in example.stdout
    assert example.stdout.count("\n") == 2 * 9  # each output, alone and in a batch
    main = (tmp_path / "main.c").read_text()
    (tmp_path / "main.c").write_text(re.sub(r"(expected_tau\[6\] = \{\s*)", r"\g<1>1e3 + ", main))
    subprocess.run(["cmake", "--build", built], **quiet)
    assert subprocess.run([built / "quadrotor_example"], capture_output=True).returncode == 1


@needs_compiler
def test_sanitizers_find_nothing(tmp_path):
    generate(rg.load("quadrotor"), ["rnea", "crba", "integrate"], out=tmp_path)
    example = tmp_path / "example"
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", *SAME_BITS, *VECTORS]
    built = subprocess.run(
        [CC, *flags, "-o", example, tmp_path / "main.c", tmp_path / "quadrotor.c", "-lm"],
        capture_output=True,
        text=True,
    )
    if built.returncode:
        pytest.skip(f"no sanitizers: {built.stderr[-200:]}")
    ran = subprocess.run([example], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# --- names and files ------------------------------------------------------------------------------


def test_functions_take_options(tmp_path):
    robot = rg.load("iiwa14")
    generate(
        robot,
        ["rnea", ("jacobian", {"frame": "iiwa_link_7", "expressed_in": "local"})],
        out=tmp_path,
        dtypes=["float64"],
        name="My arm",
    )
    header = (tmp_path / "My_arm.h").read_text()
    assert (
        "void My_arm_jacobian_iiwa_link_7_local_batch(long n, const double *q, double *J);"
        in header
    )
    assert "J (6, 7)" in header and "float *" not in header
    generate(robot, [("rnea", {"external": ["iiwa_link_7"]})], out=tmp_path / "pushed")
    generate(robot, {"rnea": {"external": ["iiwa_link_7"]}}, out=tmp_path / "named")
    for written in (tmp_path / "pushed").iterdir():
        assert (tmp_path / "named" / written.name).read_bytes() == written.read_bytes()
    assert (
        "const double *external_iiwa_link_7, double *tau"
        in (tmp_path / "pushed" / "iiwa14.h").read_text()
    )


def test_what_does_not_exist_is_named_and_nothing_is_written(tmp_path):
    robot = rg.load("double_pendulum")
    with pytest.raises(errors.InputError, match=r"target is one of 'c'.*'fortran'"):
        generate(robot, ["rnea"], target="fortran", out=tmp_path / "x")
    with pytest.raises(errors.UnknownNameError, match="rnea_derivatives"):
        generate(robot, ["rnea", "rnea_derivative"], out=tmp_path / "x")
    for pair in (("jacobian", "tool"), ("rnea", {}, 1), 3):
        with pytest.raises(errors.InputError, match="a function is named, or a pair"):
            generate(robot, [pair], out=tmp_path / "x")
    with pytest.raises(errors.InputError, match="needs the name of a frame"):
        generate(robot, ["jacobian"], out=tmp_path / "x")
    with pytest.raises(errors.UnknownNameError, match="frame"):
        generate(robot, [("jacobian", {"frames": "tip"})], out=tmp_path / "x")
    with pytest.raises(errors.UnknownNameError, match="float32"):
        generate(robot, ["rnea"], out=tmp_path / "x", dtypes=["float16"])
    with pytest.raises(errors.InputError, match="twice"):
        generate(robot, ["rnea", "rnea"], out=tmp_path / "x")
    with pytest.raises(errors.InputError, match="at least one function"):
        generate(robot, [], out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_files_have_the_mode_of_any_new_file_and_the_umask_is_not_touched(tmp_path, monkeypatch):
    old = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda mask: pytest.fail("the umask is that of all threads"))
            files = generate(rg.load("pendulum"), ["rnea"], out=tmp_path / "code")
    finally:
        os.umask(old)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
    assert sorted(os.listdir(tmp_path / "code")) == sorted(path.name for path in files)


def test_files_of_the_user_are_left_alone(tmp_path):
    robot = rg.load("double_pendulum")
    (tmp_path / "notes.txt").write_text("mine")
    paths = generate(robot, ["rnea"], out=tmp_path)
    assert {p.name for p in paths} == {
        "double_pendulum.h",
        "double_pendulum.c",
        "main.c",
        "CMakeLists.txt",
    }
    before = {p: p.read_bytes() for p in paths}
    assert generate(robot, ["rnea"], out=tmp_path) == paths  # ours are replaced, by the same
    assert {p: p.read_bytes() for p in paths} == before
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    with pytest.raises(errors.InputError, match=r"main\.c"):
        generate(robot, ["rnea", "aba"], out=tmp_path)
    assert (tmp_path / "main.c").read_text() == "int main(void) { return 0; }"
    assert (tmp_path / "double_pendulum.h").read_bytes() == before[tmp_path / "double_pendulum.h"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "CMakeLists.txt",
        "double_pendulum.c",
        "double_pendulum.h",
        "main.c",
        "notes.txt",
    ]
    with pytest.raises(errors.InputError, match="folder"):
        generate(robot, ["rnea"], out=tmp_path / "notes.txt")


def test_names_become_identifiers_that_do_not_meet():
    assert (
        identifier("iiwa 14/-b") == "iiwa_14_b"
        and identifier("7axis") == "robot_7axis"
        and identifier("...") == "robot"
    )
    assert (
        identifier("double") == "double_"
        and identifier("t12") == "t12_"
        and identifier("FMA") == "FMA_"
    )
    program = record(
        {"a.b": (1,), "a:b": (1,), "q": ()},
        {"q": ()},
        lambda v: (v["q"] * v["a.b"][0] * v["a:b"][0],),
    )
    header = c.render({"f": program, "f_batch": program, "f.batch": program}, "r")["r.h"]
    assert re.search(
        r"void r_f\(const double \*a_b_\w{8}, const double \*a_b_\w{8}, const double \*q, double"
        r" \*q_out\);",
        header,
    )
    functions = re.findall(r"void (\w+)\(", header)
    assert len(functions) == len(set(functions)) == 12
