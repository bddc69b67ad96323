"""Names of robots, links and frames in generated text: whatever they hold, none of it becomes code,
and different names stay different.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.codegen import generate
from rigidgrad.targets import names
from rigidgrad.targets.verilog import tools

# each becomes code, or breaks it, somewhere if it is written as it is: in a comment, a string, a
# line, a file name
HOSTILE = [
    "*/ int pwned(void) { return 1; } /*",
    "*\\ int pwned(void) { return 1; } \\*",
    "arm\n#error pwned\nint pwned;",
    "arm\r#error pwned\v#error pwned\u2028#error pwned",
    "arm \\",
    "arm ??/",
    "*??/\n/ int pwned; /*",
    '"); pwned(); ("',
    "\\pwned ; endmodule module pwned; initial $finish; endmodule",
    '`include "pwned"',
    "${pwned}) message(FATAL_ERROR pwned) #[[",
    "--><script>pwned()</script>",
    "../../pwned/arm",
    "\u202epwned\u2066 \x00\ufeff",
    "pwned" * 100,
]
TARGETS = ("c", "cuda", "opencl", "verilog")


def robot_named(name):
    """Of a robot whose every name is that."""
    inertia = np.diag([0.1, 0.1, 0.01])
    links = (
        rg.Builder(name)
        .link("base")
        .link(f"{name} link", 1.0, (0, 0, -0.5), inertia)
        .link("tool.1")
        .link("tool:1")
        .link("tool_1")
    )
    links.joint(f"{name} joint", "revolute", "base", f"{name} link", axis=(0, 1, 0))
    for k, tool in enumerate(("tool.1", "tool:1", "tool_1")):
        links.joint(f"fix{k}", "fixed", f"{name} link", tool, xyz=(0, 0, 0.1 * k))
    return links.build()


def written(name, target, folder):
    robot = robot_named(name)
    link = f"{name} link"
    functions = [("rnea", {"external": [link]})]
    if target != "verilog":
        functions += [
            ("jacobian", {"frame": frame}) for frame in (link, "tool.1", "tool:1", "tool_1")
        ]
        held = [rg.Contact(link, offset=(0.1, 0, 0)), rg.Contact("tool:1")]
        functions += [
            (name, {"contacts": held})
            for name in ("contact_dynamics", "delassus", "contact_inverse_dynamics")
        ]
    return robot, generate(robot, functions, target=target, out=folder)


# names of joints and the model's hash as strings, all of whose special characters are octal numbers
STRINGS = re.compile(r'(?<=\[\] )= \{?("([\w .-]|\\[0-7]{3})*"(, )?)+\}?(?=;)', re.ASCII)


def without_comments(path):
    """The text as a compiler sees it, strings included: trigraphs, then spliced lines, then
    comments.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        return re.sub(r"#.*", "", text)
    text = text.replace("??/", "\\").replace("\\\n", "")
    text = STRINGS.sub("= {}", text)
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_becomes_code(tmp_path, name, target):
    (tmp_path / "out").mkdir()
    _, paths = written(name, target, tmp_path / "out")
    # nothing beside the folder
    assert sorted(tmp_path.rglob("*")) == sorted([tmp_path / "out", *paths])
    plain = written("arm", target, tmp_path / "plain")[1]
    assert len(paths) == len(plain)
    for path, usual in zip(paths, plain, strict=True):
        assert re.fullmatch(r"\w+\.\w+", path.name, re.ASCII)
        if path.suffix == ".json":
            continue  # data: names as they are, escaped
        code = without_comments(path)
        assert not re.search(r"(?<!\w)pwned(?!\w)", code, re.ASCII), path.name
        # but for identifiers, the code is that of a robot with a usual name
        words = re.compile(r"\w*(arm|pwned|int_|robot_|tool|error)\w*", re.ASCII | re.IGNORECASE)
        assert words.sub("X", code).split() == words.sub("X", without_comments(usual)).split(), (
            path.name
        )


def compiled(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:] or done.stdout[-3000:]
    return done.stdout


ALL = "".join(HOSTILE[:8])


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_c_of_a_hostile_name_compiles_and_is_right(tmp_path, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    _, paths = written(ALL, "c", tmp_path)
    flags = ["-std=c99", "-trigraphs", "-Wall", "-Wextra", "-Werror", "-O1", "-ffp-contract=off"]
    sources = [path.name for path in paths if path.suffix == ".c"]
    compiled(compiler, *flags, *sources, "-lm", "-o", "example", cwd=tmp_path)
    said = compiled("./example", cwd=tmp_path)
    assert "WRONG" not in said and said.count("numbers") == 24
    if shutil.which("nm"):
        assert not re.search(r"\bpwned\b", compiled("nm", "example", cwd=tmp_path))


@pytest.mark.skipif(
    not shutil.which("cmake") or not shutil.which("cc"), reason="needs CMake and a C compiler"
)
def test_cmake_takes_a_hostile_name(tmp_path):
    written(ALL, "c", tmp_path / "source")
    compiled("cmake", "-S", "source", "-B", "build", cwd=tmp_path)


def test_opencl_of_a_hostile_name_compiles(tmp_path):
    cl = pytest.importorskip("pyopencl", reason="pyopencl is not installed")
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    except cl.Error:
        devices = []
    if not devices:
        pytest.skip("no OpenCL device: apt-get install pocl-opencl-icd")
    _, paths = written(ALL, "opencl", tmp_path)
    source = next(path for path in paths if path.suffix == ".cl").read_text()
    program = cl.Program(cl.Context(devices[:1]), source).build(options=["-DREAL64=0"])
    kernels = {kernel.function_name for kernel in program.all_kernels()}
    assert sum(name.endswith("_thread_kernel") for name in kernels) == 8 and "pwned" not in kernels
    if shutil.which("c++") and Path("/usr/include/CL/cl.h").exists():
        compiled("c++", "-std=c++17", "-fsyntax-only", "-trigraphs", "main.cpp", cwd=tmp_path)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not installed")
def test_cuda_of_a_hostile_name_compiles(tmp_path):
    robot = robot_named(ALL)
    generate(
        robot,
        [("rnea", {"external": [f"{ALL} link"]})],
        target="cuda",
        out=tmp_path,
        dtypes=["float32"],
    )
    compiled(
        "nvcc", "-std=c++17", "-ptx", "-arch", "sm_75", "main.cu", "-o", "main.ptx", cwd=tmp_path
    )


@pytest.mark.skipif(
    not tools.find("verilator") and not tools.find("yosys"),
    reason="neither Verilator nor yosys is installed",
)
def test_verilog_of_a_hostile_name_compiles(tmp_path):
    _, paths = written(ALL, "verilog", tmp_path)
    circuit, bench = sorted((p for p in paths if p.suffix == ".v"), key=lambda p: len(p.name))
    if icarus := tools.find("iverilog"):
        sources = [bench.name, circuit.name]
        compiled(*icarus, "-g2005", "-s", bench.stem, "-o", "model", *sources, cwd=tmp_path)
    if verilator := tools.find("verilator"):
        compiled(
            *verilator,
            "--lint-only",
            "-Wno-fatal",
            "--top-module",
            circuit.stem,
            circuit.name,
            cwd=tmp_path,
        )
    if yosys := tools.find("yosys"):
        script = (
            f"read_verilog {circuit.name}; hierarchy -check -top {circuit.stem}; select"
            " -assert-none pwned"
        )
        compiled(*yosys, "-q", "-p", script, cwd=tmp_path)


def test_different_names_are_different_identifiers():
    alike = [
        "a.b",
        "a:b",
        "a_b",
        "a b",
        "a__b",
        "é",
        "è",
        "Ω",
        "机器人一",
        "机器人二",
        "",
        "robot",
        "x" * 200,
        "x" * 201,
        "double",
        "double_",
        "a_",
    ]
    found = names.identifiers(alike)
    assert len(set(found.values())) == len(alike)
    assert found == names.identifiers(alike[::-1])  # whatever their order
    assert found["a_b"] == "a_b" and all(
        re.fullmatch(r"[A-Za-z]\w{0,99}", x, re.ASCII) for x in found.values()
    )
    for one, other in (
        ("é", "è"),
        ("机器人一", "机器人二"),
        ("x" * 200, "x" * 201),
        ("a*/", "a/*"),
    ):
        assert names.identifier(one) != names.identifier(other)
    assert (
        names.identifier("math") == "math_"
        and names.identifier("test") == "test_"
        and names.identifier("rigidgrad") == "rigidgrad_"
    )
    suffixed = names.identifiers(["f", "f_batch", "f.batch"], suffixes=("", "_batch"))
    assert len({x + suffix for x in suffixed.values() for suffix in ("", "_batch")}) == 6


def test_comments_keep_words_and_nothing_that_ends_them():
    assert names.comment("Panda hand-v2 (left): 3.1") == "Panda hand-v2 (left): 3.1"
    assert names.comment("dJ/dt (…, 6, nv): Ṁ M⁻¹") == "dJ/dt (…, 6, nv): Ṁ M⁻¹"
    for name in [*HOSTILE, "not UTF-8: \udcff"]:
        assert re.fullmatch(r"[A-Za-z]\w*", names.identifier(name), re.ASCII)
        assert not set(names.comment(name)) & set("*\\?\"'`$#<>{}\n\r\v\u2028\u202e\udcff")
        assert len(names.comment(name)) <= 200


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_frames_with_similar_names_are_different_functions(tmp_path, target):
    _, paths = written("arm", target, tmp_path)
    header = next(path for path in paths if path.suffix in (".cuh", ".hpp")).read_text()
    functions = set(
        re.findall(
            r"inline void (jacobian_\w+)\((?:rigidgrad::Workspace|rigidgrad::Device)", header
        )
    )
    assert len(functions) == 4 and "jacobian_tool_1" in functions
