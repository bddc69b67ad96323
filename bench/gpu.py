"""What compilers make of the GPU kernels, how large generated libraries are, and an estimate of the
gradient's three partitionings, none of which needs a device; and the partitionings on an OpenCL
device, for which PoCL will do.

python bench/gpu.py --json bench/results/gpu.json               everything: hours on two cores
python bench/gpu.py --robots iiwa14 --dtypes float32            one robot on all architectures
python bench/gpu.py --parts solvers --robots iiwa14             the kernels of the solvers
python bench/gpu.py --parts estimate                            the estimate alone
python bench/gpu.py --parts partitionings                       the generated OpenCL library runs
python bench/gpu.py --parts sizes                               of generated libraries for CUDA
python bench/gpu.py --parts ptx --json bench/results/ptx.json   counts of executed instructions, and
                                                                times of block kernels by a model
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from opencl_partitionings import partitionings

import rigidgrad as rg
from rigidgrad.control.device_run import solver_kernels
from rigidgrad.runtime.formulation import program_of
from rigidgrad.runtime.gpu import sweep_program
from rigidgrad.targets.gpu import block, block_code
from rigidgrad.targets.gpu.kernel import Kernel, prelude
from rigidgrad.targets.gpu.thread import ThreadFunction

ROBOTS = ("iiwa14", "hyq", "atlas", "hyq-floating", "atlas-floating")
FUNCTIONS = ("rnea", "minv", "aba", "crba", "rnea_derivatives", "fused_gradient", "aba_derivatives")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# per multiprocessor: warps, blocks, KB of shared memory, KB reserved a block; per block: KB (CUDA
# C++ programming guide, compute capabilities)
LIMITS = {
    "sm_75": (32, 16, 64, 0, 64),
    "sm_80": (64, 32, 164, 1, 163),
    "sm_86": (48, 16, 100, 1, 99),
    "sm_89": (48, 24, 100, 1, 99),
    "sm_90": (64, 32, 228, 1, 227),
    "sm_100": (64, 32, 228, 1, 227),
    "sm_120": (48, 24, 100, 1, 99),
}


def load(name: str) -> rg.Robot:
    base, _, floating = name.partition("-")
    return rg.load(base, floating_base=bool(floating))


def occupancy(arch: str, registers: int, threads: int, shared: int) -> float:
    """Resident warps over the most there can be; 0 where a block does not fit at all."""
    warps, blocks, kilobytes, reserved, largest = LIMITS[arch]
    own = threads // 32
    if shared > largest * 1024:
        return 0.0
    by_registers = 65536 // (-(-registers * 32 // 256) * 256 * own)
    by_shared = int(kilobytes * 1024 // max(shared + reserved * 1024, 1))
    return min(blocks, by_registers, by_shared, warps // own) * own / warps


def kernels_of(name: str, shapes: list[str], functions: list[str]) -> list[Kernel]:
    model = load(name).model
    made = []
    for function in functions:
        if "block" in shapes:
            made.append(Kernel(function, block.block_function(model, function)))
        if "thread" in shapes:
            made.append(Kernel(function, ThreadFunction(function, program_of(model, function))))
    return made


def compile_all(kernels: list[Kernel], dtype: str, arch: str) -> tuple[dict[str, dict], str]:
    """Per kernel what ptxas reports; and all that nvcc had to say."""
    models = [k.function.model for k in kernels if k.shape == "block"]
    parts = [prelude("cuda", dtype)] + (
        [block_code.common_code(), block_code.robot_code(models[0])] if models else []
    )
    return compile_text("\n".join([*parts, *(k.text() for k in kernels), ""]), arch)


def compile_text(text: str, arch: str) -> tuple[dict[str, dict], str]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.cu"
        source.write_text(text)
        command = [
            "nvcc",
            "-cubin",
            "-arch",
            arch,
            "-std=c++17",
            "-Xptxas",
            "-v",
            "-o",
            f"{folder}/x.cubin",
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nvcc failed on {arch}:\n{done.stderr[:3000]}")
    found = {}
    for part in done.stderr.split("Compiling entry function '")[1:]:
        name = part[: part.index("'")]
        spills = [int(x) for x in re.findall(r"(\d+) bytes spill", part)]
        stack = [int(x) for x in re.findall(r"(\d+) bytes stack", part)]
        found[name] = {
            "registers": int(re.search(r"Used (\d+) registers", part).group(1)),  # type: ignore[union-attr]
            "spill_bytes": sum(spills),
            "stack_bytes": max(stack, default=0),
        }
    return found, "\n".join(line for line in done.stderr.splitlines() if "warning" in line.lower())


def resources(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    for name in arguments.robots:
        kernels = kernels_of(name, arguments.shapes, arguments.functions)
        for dtype in arguments.dtypes:
            for arch in arguments.architectures:
                found, warnings = compile_all(kernels, dtype, arch)
                first = len(rows)
                for kernel in kernels:
                    shared = kernel.shared_bytes(dtype)
                    row = {
                        "robot": name,
                        "function": kernel.prefix,
                        "shape": kernel.shape,
                        "dtype": dtype,
                        "arch": arch,
                    }
                    row |= found[kernel.entry] | {"threads": kernel.threads, "shared_bytes": shared}
                    row["barriers"] = kernel.function.barriers if kernel.shape == "block" else None  # type: ignore[union-attr]
                    row["occupancy"] = round(
                        occupancy(arch, row["registers"], kernel.threads, shared), 3
                    )
                    row["warnings"] = warnings
                    rows.append(row)
                    print(
                        f"{name:<15}{kernel.prefix:<18}{kernel.shape:<7}{dtype:<8}{arch:<7}{row['registers']:>4}"
                        f" registers {row['spill_bytes']:>5} B spilled {shared:>6} B shared"
                        f" {row['barriers'] or '-':>3} barriers {kernel.threads:>4} threads "
                        f" occupancy {row['occupancy']:.0%}{'  WARNINGS' if warnings else ''}",
                        flush=True,
                    )
                save(arguments.json, {"resources": rows[first:]})
    return rows


def solvers(arguments: argparse.Namespace) -> list[dict]:
    """The same of the solvers' kernels, for a trajectory of 64 knots with costs of state and
    effort.
    """
    rows, knots = [], 64
    for name in arguments.robots:
        robot = load(name)
        if robot.nq != robot.nv:
            continue  # the solvers on a device are for fixed bases
        goal = np.zeros(robot.nq + robot.nv)
        problem = rg.Problem(
            robot,
            goal,
            knots - 1,
            0.01,
            costs=[rg.costs.State(goal, weight=1.0), rg.costs.Effort(1e-3)],
        )
        kernels = solver_kernels(problem.programs, direct=True)
        for dtype in arguments.dtypes:
            for arch in arguments.architectures:
                texts = [
                    kernels.source("cuda", dtype),
                    kernels.gradients_source("cuda", dtype, knots),
                    kernels.gradients_source("cuda", dtype, knots, "knot", True),
                ]
                texts += [kernels.setup_source("cuda", dtype, fused) for fused in (True, False)]
                reports = [compile_text(text, arch) for text in texts]
                found, warnings = (
                    {k: v for r, _ in reports for k, v in r.items()},
                    "\n".join(filter(None, (w for _, w in reports))),
                )
                first = len(rows)
                for entry, counts in found.items():
                    shared = kernels.shared_numbers(entry, knots) * (8 if dtype == "float64" else 4)
                    row = {
                        "robot": name,
                        "function": entry,
                        "shape": "solver",
                        "dtype": dtype,
                        "arch": arch,
                    } | counts
                    row |= {
                        "threads": kernels.threads(entry),
                        "shared_bytes": shared,
                        "barriers": None,
                        "warnings": warnings,
                    }
                    row["occupancy"] = round(
                        occupancy(arch, row["registers"], row["threads"], shared), 3
                    )
                    rows.append(row)
                    print(
                        f"{name:<8}{entry:<22}{dtype:<8}{arch:<7}{row['registers']:>4} registers"
                        f" {row['spill_bytes']:>5} B spilled {row['stack_bytes']:>6} B stack"
                        f" {shared:>6} B shared  occupancy"
                        f" {row['occupancy']:.0%}{'  WARNINGS' if row['warnings'] else ''}",
                        flush=True,
                    )
                save(arguments.json, {"resources": rows[first:]})
    return rows


# --- the estimate ---------------------------------------------------------------------------------

# Numbers of a desktop such as the dissertation's (RTX 2080, PCIe 3.0 x16, four cores); round ones,
# to be read as such.
MACHINE = {
    "pcie_bytes_per_us": 12_000.0,
    "copy_latency_us": 5.0,  # each way
    "launch_us": 4.0,
    # a stage of a block kernel: some hundred cycles of dependent instructions and a barrier at 1.7
    # GHz
    "stage_us": 0.15,
    "device_flops_per_us": 2.0e6,  # a fifth of the peak in float32: warps are partly filled
    "device_bytes_per_us": 400_000.0,
    "blocks_at_once": 46 * 8,
    "host_flops_per_us": 3_000.0,  # one core on code of this kind
    "host_threads": 4,
    "host_synchronisation_us": 8.0,  # waking the host's threads for a batch
}
# multiplications and additions of one operation
FLOPS = {
    "joint": 24,
    "forward": 246,
    "own_columns": 110,
    "column": 92,
    "force": 156,
    "back_own": 52,
    "back_add": 54,
    "back_sum": 100,
    "back": 48,
}


def block_flops(function: block.BlockFunction) -> int:
    return sum(
        FLOPS.get(re.split(r"[_(]", kind)[0], FLOPS.get(kind.partition("(")[0], 10)) * len(t)
        for kind, t in function.schedule.tables.items()
    )


def estimate(name: str = "iiwa14") -> list[dict]:
    """Time of N gradients of forward dynamics, from flops, bytes and barriers: NOT measured."""
    model, m = load(name).model, MACHINE
    functions = {
        key: block.block_function(model, key)
        for key in ("gradient_split", "gradient_fused", "fused_gradient")
    }
    n = model.nv
    sweep, product = sweep_program(model).counts()["flops"], 4 * n**3
    rows = []
    print(f"\nESTIMATE, not a measurement: {name}, gradient of FD, float32, microseconds")
    for count in (16, 32, 64, 128):
        row: dict = {"states": count}
        for title, key, host in (
            ("split", "gradient_split", sweep + product),
            ("fused", "gradient_fused", product),
            ("completely fused", "fused_gradient", 0),
        ):
            f = functions[key]
            moved = 4 * count * sum(math.prod(s) for s in (*f.inputs.values(), *f.outputs.values()))
            flops = block_flops(f) + (product if key == "fused_gradient" else 0)
            waves = math.ceil(count / m["blocks_at_once"])
            kernel = max(
                waves * f.barriers * m["stage_us"],
                count * flops / m["device_flops_per_us"],
                moved / m["device_bytes_per_us"],
            )
            copies = 2 * m["copy_latency_us"] + moved / m["pcie_bytes_per_us"]
            parts = {"split": 2, "fused": 1, "completely fused": 0}[title]
            cpu = (
                count * host / (m["host_flops_per_us"] * m["host_threads"])
                + parts * m["host_synchronisation_us"]
            )
            row[title] = {
                "kernel": kernel,
                "copies": copies,
                "host": cpu,
                "launch": m["launch_us"],
                "bytes": moved,
                "flops": flops,
                "barriers": f.barriers,
            }
            row[title]["total"] = kernel + copies + cpu + m["launch_us"]
        rows.append(row)
        text = "   ".join(
            f"{k} {row[k]['total']:7.1f} (kernel {row[k]['kernel']:.1f}, copies"
            f" {row[k]['copies']:.1f}, host {row[k]['host']:.1f})"
            for k in row
            if k != "states"
        )
        print(
            f"  N = {count:3d}   {text}   split / completely fused"
            f" {row['split']['total'] / row['completely fused']['total']:.1f}"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    listed = {
        "robots": ROBOTS,
        "functions": FUNCTIONS,
        "dtypes": ("float32", "float64"),
        "shapes": ("block", "thread"),
        "architectures": ARCHITECTURES,
    }
    for option, values in listed.items():
        parser.add_argument(
            f"--{option}",
            type=lambda text: text.split(","),
            default=list(values),
            help=f"of {', '.join(values)}",
        )
    parser.add_argument(
        "--parts", type=lambda text: text.split(","), default=["resources", "solvers", "estimate"]
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    made = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join([Path(sys.executable).name, *sys.argv]),
    }
    result: dict = {}
    if {"resources", "solvers", "estimate"} & set(arguments.parts):
        result = made | {"machine": "no GPU: compiled only"}
    if {"resources", "solvers"} & set(arguments.parts):
        if not shutil.which("nvcc"):
            raise SystemExit("nvcc is not installed: only --parts estimate works without it")
        result["nvcc"] = (
            subprocess.run(["nvcc", "--version"], capture_output=True, text=True)
            .stdout.strip()
            .splitlines()[-1]
        )
        result["resources"] = [
            row
            for part in (resources, solvers)
            if part.__name__ in arguments.parts
            for row in part(arguments)
        ]
    if "ptx" in arguments.parts:
        import gpu_counts

        robots = arguments.robots if arguments.robots != list(ROBOTS) else gpu_counts.ROBOTS
        functions = (
            arguments.functions if arguments.functions != list(FUNCTIONS) else gpu_counts.FUNCTIONS
        )
        result["machine"] = "no GPU: PTX of compute_80 executed by tests/ptx"
        result["counts"] = gpu_counts.counts(robots, functions, arguments.dtypes, arguments.shapes)
        result["times"] = {
            "note": "an estimate by a model of an RTX 5090, not a measurement",
            "rows": gpu_counts.times(result["counts"]),
        }
    if "estimate" in arguments.parts:
        result["estimate"] = {
            "note": "an estimate from flops, bytes and barriers, not a measurement",
            "machine": MACHINE,
            "iiwa14": estimate(),
        }
    if "partitionings" in arguments.parts:
        result["partitionings"] = partitionings() | made
    if "sizes" in arguments.parts:
        result["sizes"] = {"rows": sizes(arguments.robots)} | made
    save(arguments.json, result)


def sizes(robots: list[str]) -> list[dict]:
    """Megabytes of the headers of all functions here, by the kernels that they have."""
    rows = []
    for name in robots:
        row: dict = {"robot": name}
        for shapes in (("thread", "block"), ("block",), ("thread",)):
            with tempfile.TemporaryDirectory() as folder:
                paths = rg.generate(
                    load(name), list(FUNCTIONS), target="cuda", out=folder, shapes=shapes
                )
                written = sum(p.stat().st_size for p in paths if p.suffix in (".cuh", ".h"))
            row[" and ".join(shapes)] = round(written / 1e6, 2)
        rows.append(row)
        print(f"{name:<16}" + "   ".join(f"{k} {v} MB" for k, v in row.items() if k != "robot"))
    return rows


def save(path: Path | None, result: dict) -> None:
    """Adds to what the file has; rows of the same kernel are replaced."""
    if path is None:
        return
    earlier = json.loads(path.read_text()) if path.exists() else {}
    both = earlier | result
    for kind, identity in (
        ("resources", ("robot", "function", "shape", "dtype", "arch")),
        ("counts", ("robot", "function", "shape", "dtype")),
    ):
        rows = {
            tuple(r[k] for k in identity): r
            for r in (*earlier.get(kind, []), *result.get(kind, []))
        }
        both |= {kind: list(rows.values())} if rows else {}
    path.write_text(json.dumps(both, indent=1) + "\n")


if __name__ == "__main__":
    main()
