"""A robot's functions as WebGPU shaders: WGSL files, a JavaScript module that runs them, and a page
that compares with Python's numbers and shows the speed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from rigidgrad.errors import InputError
from rigidgrad.kernels import language as kernels
from rigidgrad.kernels.interpret import results_of
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import Program
from rigidgrad.targets.c import MARK
from rigidgrad.targets.gpu.block_code import CODE
from rigidgrad.targets.gpu.wgsl import GROUPS, PRELUDE, THREADS, Shader
from rigidgrad.targets.names import comment, identifier, identifiers


def render(
    programs: Mapping[str, Program | kernels.Kernel],
    name: str,
    *,
    dtypes: Sequence[str] = ("float32",),
    notes: Mapping[str, str] | None = None,
    samples: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, str]:
    """Files by name. WGSL has float32 alone: other dtypes are left out, and one must be left."""
    if "float32" not in dtypes:
        raise InputError('target="wgsl" is float32: WebGPU has no double precision')
    shaders: dict[str, Shader] = {}
    for key, program in programs.items():
        if isinstance(program, kernels.Kernel):
            raise InputError(f"{key} of a robot this large is a loop, which has no shader yet")
        shaders[key] = Shader(program)
    prefix, names = identifier(name), identifiers(programs, taken=("device", "functions"))
    files = {}
    for key, shader in shaders.items():
        passes = shader.passes
        for i, text in enumerate(passes):
            part = f"_{i}" if len(passes) > 1 else ""
            files[f"{prefix}_{names[key]}{part}.wgsl"] = (
                f"// {comment(f'{key} of {name}')}: {MARK}; do not edit.\n{PRELUDE.strip()}\n{text}"
            )
    module = library(name, {names[key]: shader for key, shader in shaders.items()}, notes or {})
    files[f"{prefix}.js"] = module
    if samples:
        expected = {names[key]: _sample(programs[key], samples[key]) for key in programs}
        files["index.html"] = Template(
            (CODE / "webgpu.html").read_text(encoding="utf-8")
        ).substitute(
            mark=MARK,
            title=comment(name),
            library=module.replace("export ", ""),
            samples=safe_json(expected),
        )
    return files


def library(name: str, shaders: Mapping[str, Shader], notes: Mapping[str, str]) -> str:
    """The JavaScript module of some functions."""
    described = {
        key: {
            "inputs": {k: math.prod(shape) for k, shape in shader.inputs.items()},
            "outputs": {k: math.prod(shape) for k, shape in shader.outputs.items()},
            "results": [
                [k for name, k in shader.results if name == output] for output in shader.outputs
            ],
            "constants": [_grouped(places) for places in shader.constants.values()],
            "work": shader.work,
            "passes": shader.passes,
        }
        for key, shader in shaders.items()
    }
    host = Template((CODE / "webgpu.js").read_text(encoding="utf-8"))
    lines = [
        f"// {comment(name)}: {MARK}; do not edit.",
        *(f"//   {key}: {comment(text)}" for key, text in notes.items() if text),
        host.substitute(threads=THREADS, groups=GROUPS),
        f"const prelude = {safe_json(PRELUDE.strip())} + '\\n';",
        f"export const functions = {safe_json(described)};",
        "",
    ]
    return "\n".join(lines)


def _grouped(places: Mapping[int, float]) -> list[tuple[float, list[int]]]:
    """Constants other than zero, which arrays hold from the start, and where they are."""
    values = sorted({x for x in places.values() if x})
    return [(x, [k for k, y in places.items() if y == x]) for x in values]


def _sample(program: Program | kernels.Kernel, inputs: Mapping[str, Any]) -> dict[str, Any]:
    found = results_of(program, inputs)
    return {
        "inputs": {k: [float(x) for x in flatten(inputs[k])] for k in program.inputs},
        "outputs": {
            k: [float(x) for x in row] for k, row in zip(program.outputs, found, strict=True)
        },
    }


def safe_json(value: Any) -> str:
    """JSON that may stand in the script of a page: nothing in it ends the script."""
    return json.dumps(value).replace("</", "<\\/")
