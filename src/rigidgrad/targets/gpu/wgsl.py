"""WebGPU shaders: a Program in the registers of one thread, in float32, the only floating type that
WGSL has everywhere.

All inputs are one array and all results that depend on them another, a state in a column: number k
of state i is at `k * states + i`, so that neighbouring threads touch neighbouring addresses.
Results that are constants, most of them structural zeros, never leave the host. WGSL's own sine and
arctangent may be wrong by thousands of units in the last place; those of the prelude are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rigidgrad.program.program import Program, Shape
from rigidgrad.targets.gpu.thread import Spelling, Writer, constants

THREADS = 64  # of a workgroup: what every GPU has
GROUPS = 65535  # of a dispatch, at most
STATEMENTS = 1000  # of a pass

# Angles are reduced by multiples of π/2 in three pieces, then Cephes' polynomials, as in lanes; the
# arctangent is Cephes', too.
PRELUDE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> work: array<f32>;
@group(0) @binding(3) var<uniform> size: vec4u;
var<private> infinity_bits: u32 = 0x7f800000u;
fn infinity() -> f32 { return bitcast<f32>(infinity_bits); }
fn sin_cos(a: f32) -> vec2f {
  let turns = round(a * 0.63661977f);
  let r = fma(turns, -7.549790126404332e-8f,
    fma(turns, -4.837512969970703125e-4f, fma(turns, -1.5703125f, a)));
  let z = r * r;
  let s = fma(r * z,
    fma(fma(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f), r);
  let c = fma(z * z,
    fma(fma(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f),
    fma(-0.5f, z, 1.0f));
  let quadrant = u32(i32(turns)) & 3u;
  let odd = (quadrant & 1u) == 1u;
  let sine = select(s, c, odd);
  let cosine = select(c, s, odd);
  return vec2f(select(sine, -sine, quadrant >= 2u),
    select(cosine, -cosine, quadrant == 1u || quadrant == 2u));
}
fn arctangent(b: f32, a: f32) -> f32 {
  let low = min(abs(a), abs(b));
  let high = max(abs(a), abs(b));
  let q = select(low / high, 0.0f, high == 0.0f);
  let far = q > 0.41421356f;
  let t = select(q, (q - 1.0f) / (q + 1.0f), far);
  let z = t * t;
  let p = fma(fma(fma(fma(8.05374449538e-2f, z, -1.38776856032e-1f), z, 1.99777106478e-1f), z,
    -3.33329491539e-1f), z * t, t);
  var angle = select(p, 0.78539816f + p, far);
  angle = select(angle, 1.57079633f - angle, abs(b) > abs(a));
  angle = select(angle, 3.14159265f - angle, a < 0.0f);
  return select(angle, -angle, b < 0.0f);
}
"""


def _number(x: float) -> str:
    if math.isnan(x):
        return "(infinity() - infinity())"
    if math.isinf(x) or abs(x) > np.finfo(np.float32).max:
        return "infinity()" if x > 0 else "(-infinity())"
    text = f"{np.float32(x)!s}"
    text += "" if any(c in text for c in ".e") else ".0"
    return f"{text}f" if math.copysign(1, x) > 0 else f"({text}f)"


_WGSL = Spelling(
    {
        "add": "{} + {}",
        "sub": "{} - {}",
        "mul": "{} * {}",
        "div": "{} / {}",
        "neg": "-{}",
        "fma": "fma({}, {}, {})",
        "fms": "fma({}, {}, -{})",
        "fnma": "fma(-{}, {}, {})",
        "fnms": "fma(-{}, {}, -{})",
        "sqrt": "sqrt({})",
        "atan2": "arctangent({}, {})",
        "min": "select({0}, {1}, {1} < {0})",
        "max": "select({0}, {1}, {0} < {1})",
        "select": "select({3}, {2}, {0} < {1})",
    },
    "let {} = {};",
    "work[{}u * size.x + row]",
    _number,
    lambda j, x: [f"let a{j} = sin_cos({x});", f"let s{j} = a{j}.x;", f"let c{j} = a{j}.y;"],
)


@dataclass(frozen=True)
class Shader:
    """A function as compute shaders, whose entries are `main`."""

    program: Program

    @property
    def inputs(self) -> Mapping[str, Shape]:
        return self.program.inputs

    @property
    def outputs(self) -> Mapping[str, Shape]:
        return self.program.outputs

    @cached_property
    def input_places(self) -> dict[str, int]:
        """Where the numbers of an input begin in a state's column."""
        places, start = {}, 0
        for key, shape in self.inputs.items():
            places[key] = start
            start += math.prod(shape)
        return places

    @cached_property
    def input_numbers(self) -> int:
        return sum(math.prod(shape) for shape in self.inputs.values())

    @cached_property
    def constants(self) -> dict[str, dict[int, float]]:
        """Results that are the same for all states, by output and place."""
        found: dict[str, dict[int, float]] = {key: {} for key in self.outputs}
        for key, k, value in constants(self.program):
            found[key][k] = value
        return found

    @cached_property
    def results(self) -> list[tuple[str, int]]:
        """What a column of results holds: output and place."""
        return [
            (key, k)
            for key, shape in self.outputs.items()
            for k in range(math.prod(shape))
            if k not in self.constants[key]
        ]

    @cached_property
    def _written(self) -> tuple[list[list[str]], int]:
        """Statements of each pass, and how many numbers of a state they share."""
        place = {result: o for o, result in enumerate(self.results)}
        writer = Writer(
            self.program,
            lambda key, k: f"x[{self.input_places[key] + k}u * size.x + row]",
            cut=self.program.counts().instructions > STATEMENTS,
            store=lambda key, k, value: f"y[{place[key, k]}u * size.x + row] = {value};",
            spelling=_WGSL,
            part=STATEMENTS,
        )
        return [s.lines for s in writer.segments() if s.lines], writer.slots

    @property
    def passes(self) -> list[str]:
        """Shaders that run one after the other. Compilers need time that grows faster than a
        shader's length, so a long Program is several, which pass what they share through memory.
        """
        return [_shader(lines) for lines in self._written[0]]

    @property
    def work(self) -> int:
        """Numbers of a state that passes share."""
        return self._written[1]

    def columns(self, rows: list[np.ndarray]) -> np.ndarray:
        """Inputs, each (states, numbers), as the shader reads them."""
        return np.ascontiguousarray(np.concatenate(rows, axis=1, dtype=np.float32).T)

    def scatter(self, columns: np.ndarray, outputs: list[np.ndarray]) -> None:
        """Results as the shader leaves them into outputs, each (states, numbers)."""
        for (key, constant), array in zip(self.constants.items(), outputs, strict=True):
            kept = [o for o, (name, _) in enumerate(self.results) if name == key]
            if constant:
                array[:, list(constant)] = list(constant.values())
            if kept:
                array[:, [self.results[o][1] for o in kept]] = columns[kept].T


def _shader(lines: list[str]) -> str:
    return "\n".join(
        [
            (
                f"@compute @workgroup_size({THREADS})"
                " fn main(@builtin(global_invocation_id) thread: vec3u) {"
            ),
            "  if (thread.x >= size.x) { return; }",
            "  let row = thread.x;",
            *(f"  {line}" for line in lines),
            "}",
            "",
        ]
    )
