"""The source of a generated solver: recorded functions, the backward pass, and the driver."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

import numpy as np

from rigidgrad.kernels import structure
from rigidgrad.kernels.language import Kernel
from rigidgrad.kernels.structure import programs as programs_of
from rigidgrad.program.program import Program
from rigidgrad.targets import c_math, c_program, c_types, llvm_riccati, llvm_to_c
from rigidgrad.targets.c_kernel import CKernel
from rigidgrad.targets.c_solver.parts import WIDTH, Parts
from rigidgrad.targets.cstyle_kernel import Step, array
from rigidgrad.targets.names import comment

_REGISTERS = 16  # of vectors, that products of the backward pass are cut for


@cache
def code(name: str) -> str:
    """A text that is the same for all solvers, but for its names."""
    return resources.files(__package__).joinpath("code", name).read_text()


def named(text: str, prefix: str) -> str:
    """With the names of one solver."""
    return text.replace("PFX_", f"{prefix.upper()}_").replace("pfx_", f"{prefix}_")


class Function:
    """A recorded function in C: arguments are its inputs, its outputs, and work of a kernel."""

    def __init__(self, name: str, source: Program | Kernel, shared: Collection[str] = ()):
        self.name, self.source, self.shared = name, source, frozenset(shared)
        self.kernel = CKernel(name, source) if isinstance(source, Kernel) else None
        self.inputs = {key: math.prod(shape) for key, shape in source.inputs.items()}
        carried = source.of("carried") if isinstance(source, Kernel) else []
        self.outputs = {a.name: math.prod(a.shape) for a in carried}
        self.outputs |= {key: math.prod(shape) for key, shape in source.outputs.items()}

    @property
    def kinds(self) -> set[str]:
        programs = [self.source] if isinstance(self.source, Program) else programs_of(self.source)
        found = {node[0] for program in programs for node in program.nodes}
        return found | {"fma"} if self.kernel else found

    def nonzero(self, output: str) -> list[int]:
        """Places of an output that are not structurally zero."""
        return [k for k, there in enumerate(structure.pattern(self.source)[output]) if there]

    def body(self, zeros: bool = True) -> str:
        """Over REAL. Without `zeros`, structural zeros are left as they are."""
        if isinstance(self.source, Kernel):
            assert self.kernel is not None
            return self.kernel.body()
        inputs = {key: f"a{k}" for k, key in enumerate(self.inputs)}
        outputs = {key: f"b{k}" for k, key in enumerate(self.outputs)}
        arguments = {
            name: f"const {'SCALAR' if key in self.shared else 'REAL'} *restrict {name}"
            for key, name in inputs.items()
        }
        arguments |= {name: f"REAL *restrict {name}" for name in outputs.values()}
        left_out = frozenset(
            (key, k)
            for key, size in self.outputs.items()
            if not zeros
            for k in set(range(size)) - set(self.nonzero(key))
        )

        def read(key: str, k: int) -> str:
            x = f"{inputs[key]}[{k}]"
            return f"WIDE({x})" if key in self.shared else x

        return c_program.render(
            Step(
                self.name,
                self.source,
                arguments,
                read,
                lambda key, k, x: f"{outputs[key]}[{k}] = {x};",
                left_out,
                fill=lambda key, constants: c_program.filled(outputs[key], constants),
            )
        )

    def call(self, place: str, arguments: Mapping[str, str], work: str = "") -> str:
        """`place` is the macro or suffix that tells the type: "WIDE_NAME" or "__64"."""
        passed = [arguments[key] for key in (*self.inputs, *self.outputs)]
        passed += [work] if self.kernel else []
        name = f"{self.name}__64" if place == "__64" else f"{place}({self.name})"
        return f"{name}({', '.join(passed)});"


class Source:
    """The text of `prefix.c`."""

    def __init__(self, parts: Parts, prefix: str):
        self.parts, self.prefix = parts, prefix
        self.wide = {
            name: Function(name, source, parts.shared if name.startswith("roll_out") else _of(name))
            for name, source in parts.wide.items()
        }
        self.narrow = {name: Function(name, source) for name, source in parts.narrow.items()}
        self.policies = {name: Function(name, source) for name, source in parts.policies.items()}

    def text(self) -> str:
        once = f"{self.prefix.upper()}_FUNCTIONS"
        narrow = [*self.narrow.values(), *self.policies.values()]
        kernels = [f.kernel for f in (*self.wide.values(), *narrow) if f.kernel]
        kinds = set().union(*(f.kinds for f in self.wide.values()))

        def include(which: int) -> str:
            return f'#define {once} {which}\n#include "{self.prefix}.c"\n#undef {once}'

        wide_names = "#define WIDE_NAME(f) f ## __{}\ntypedef {} wide;\n#define WIDTH {}"
        texts = [
            (
                f"/* {comment(self.parts.name)}: generated by rigidgrad; do not edit. This file"
                " includes itself once for each\n * type of number. */"
            ),
            f"#ifndef {once}",
            f'#include "{self.prefix}.h"',
            "#include <math.h>\n#include <stdint.h>\n#include <string.h>",
            c_types.vectors(self.prefix),
            code("vectors.h"),
            c_math.scalar(),
            *(table for k in kernels for table in k.tables()),
            *(numbers for k in kernels for numbers in k.constants("float64")),
            c_types.scalar("float64", include(1), c_math.OWN),
            "#if LANES",
            c_types.lanes("float64", include(2), kinds, rows=False, own=c_math.lanes()),
            wide_names.format("lanes64", "lanes64", "LANES64"),
            "#else",
            c_types.scalar("float64", include(2), c_math.OWN),
            wide_names.format("64", "double", "1"),
            "#endif",
            self._sizes(),
            *(self._policy(f) for f in self.policies.values() if sum(f.outputs.values()) == 1),
            self._riccati(),
            *self._tables(),
            *self._driver(),
            f"#elif {once} == 1",
            *(f.body() for f in narrow),
            "#else",
            *(f.body(zeros=name != "expansion") for name, f in self.wide.items()),
            "#endif",
            "",
        ]
        return named("\n\n".join(texts), self.prefix)

    # --- what is known of sizes -------------------------------------------------------------------

    def _sizes(self) -> str:
        p, o = self.parts, self.parts.layout
        F, L = (self.wide["expansion"].outputs[name] for name in ("F", "L"))
        values: dict[str, object] = {
            "STEPS": p.steps,
            "NX": p.nx,
            "NDX": p.ndx,
            "NU": p.nu,
            "PARAMETERS": p.parameters,
            "COLUMNS": o.columns,
            "STATE_COLUMNS": o.state_columns,
            "CORRECTION": o.correction,
            "VALUE_SIZE": o.value_size,
            "SCRATCH": o.scratch_size,
            "F_SIZE": F,
            "L_SIZE": L,
            "MOVE_SIZE": o.move_size if o.form == "floating" else 0,
            "DIAGONAL": int(o.diagonal),
            "BOUNDED": int(o.bounded),
            "GAPS": int(p.gaps),
            "CONSTRAINTS": len(p.controlled),
            "SIZES": len(p.alphas),
            "PARTS": "((SIZES + WIDTH - 1) / WIDTH)",
            "ALPHAS": "{" + ", ".join(map(repr, p.alphas)) + "}",
            "WEIGHTS": len(p.places("weight")),
            "TARGETS": len(p.places("target")),
            "DIRECT": int(p.direct),
            "LQ_WORK": max((f.kernel.work for f in self.narrow.values() if f.kernel), default=1),
            "WORK": max((f.kernel.work for f in self.wide.values() if f.kernel), default=1),
            "MESSAGES": "{" + ", ".join(f'"{m}"' for m in p.messages) + "}",
        }
        values |= {k.upper(): v for k, v in p.controller.items() if k != "iterations"}
        return "\n".join(f"#define {k} {v}" for k, v in (values | dict(p.options)).items())

    def _tables(self) -> Iterable[str]:
        p, o = self.parts, self.parts.layout
        yield _places("state_columns", [o.state(i) for i in range(o.n)])
        yield _places("weight_places", p.places("weight"))
        if p.controller.get("phases") == "1" and p.places("target"):
            yield _places("target_places", p.places("target"))
        for name in self.wide["expansion"].outputs:
            yield _places(f"{name}_places", self.wide["expansion"].nonzero(name))
        if p.controlled:
            for kind in ("lower", "upper", "multiplier", "penalty", "softness"):
                yield _places(f"{kind}_places", p.places(kind))
            yield _places("stride_knots", p.strides)
            yield _places("controlled", [int(x) for x in p.controlled])
        yield from defaults_tables(p.defaults)

    def _policy(self, f: Function) -> str:
        arguments = [f"double {name}" for name in f.inputs]
        passed = ", ".join([*(f"&{name}" for name in f.inputs), "&y"])
        return (
            f"OWN double policy_{f.name}({', '.join(arguments)})\n{{\n    double y;\n"
            f"    {f.name}__64({passed});\n    return y;\n}}"
        )

    def _riccati(self) -> str:
        kinds = {
            word: "const long" if word == "ranges" else "double" for word in llvm_riccati.CONTEXT
        }
        return llvm_to_c.function(
            llvm_riccati.render(self.parts.layout, _REGISTERS), "riccati", kinds
        )

    # --- the driver -------------------------------------------------------------------------------

    def _driver(self) -> Iterable[str]:
        f = self.wide["expansion"]
        columns = [f"    wide {key}[{size or 1}];" for key, size in (f.inputs | f.outputs).items()]
        yield (
            "/* What a vector of knots is expanded in; what no knot writes stays zero. */\n"
            + "typedef struct {\n"
            + "\n".join([*columns, "    wide work[WORK];"])
            + "\n} expansion_columns;"
        )
        struct, driver = code("driver.c").split("static const double step_sizes", 1)
        if self.parts.controlled:
            yield code("outer.h")
        if self.parts.direct:
            yield code("direct.h")
        yield struct.rstrip()
        yield (
            "OWN double *row_of(const pfx_solver *s, int k)\n{\n"
            "    return (double *)(uintptr_t)(const void *)&s->own.knot[k];\n}"
        )
        head, rest = ("static const double step_sizes" + driver).split(
            "/* --- functions of a whole trajectory --- */", 1
        )
        yield head.rstrip()
        yield self._expand_knots()
        yield self._roll_out_knot()
        yield _SIZES_OF
        if "consensus" in self.narrow:
            yield self._consensus_knot()
        yield self._subtract()
        before, after = rest.split("/* --- a solve --- */", 1)
        yield "/* --- functions of a whole trajectory --- */" + before.rstrip()
        if self.parts.controlled:
            yield self._constraints()
            yield code("augmented.c")
        direct = code("direct.c") if self.parts.direct else ""
        yield "/* --- a solve --- */" + after.replace("/*DIRECT*/\n", direct).rstrip()
        yield defaults_function(self.parts.defaults, bool(self.parts.controlled))
        if self.parts.hold is not None:
            yield self._hold()
        if self.parts.controller:
            yield from self._controller()

    def _controller(self) -> Iterable[str]:
        inputs = self.parts.places("input")
        row = f"p + {inputs[0]}" if inputs else "NULL"
        step = self.narrow["step"]
        passed = {"x": "x", "u": "u", "h": "h", "inputs": row}
        called = ", ".join([*(passed[key] for key in step.inputs), "next"])
        yield (
            "static void one_step(const double *x, const double *u, const double *h, const double *p,"
            f" double *next)\n{{\n    (void)p;\n    step__64({called});\n}}"
        )
        if "inverse_dynamics" in self.narrow:
            passed = {"q": "q", "v": "v", "a": "a", "inputs": row}
            forces = self.narrow["inverse_dynamics"]
            called = ", ".join([*(passed[key] for key in forces.inputs), "tau"])
            yield (
                "static void inverse_forces(const double *q, const double *v, const double *a,"
                " const double *p, double *tau)\n{\n    (void)p;\n"
                f"    inverse_dynamics__64({called});\n}}"
            )
        for name, numbers in self.parts.tables.items():
            yield _numbers(name, numbers.ravel())
        limits = code("mpc_limits.c") if self.parts.controlled else ""
        text = code("mpc.c").replace("/*POSTURES*/", code("mpc_posture.c").rstrip())
        yield text.replace("/*LIMITS*/", limits.rstrip())

    def _expand_knots(self) -> str:
        f = self.wide["expansion"]
        sources = {"x": "s->x[k]", "u": "s->u[k]", "h": "&s->own.h[k]", "p": "row_of(s, k)"}
        moved = [
            f"        fill_lane(c->{key}, {sources[key]}, lane, {size});"
            for key, size in f.inputs.items()
            if size
        ]
        results = [
            f"        take_places({_row(key)}, c->{key}, lane, {key}_places, {len(f.nonzero(key))});"
            for key in f.outputs
        ]
        call = f.call("WIDE_NAME", {key: f"c->{key}" for key in (*f.inputs, *f.outputs)}, "c->work")
        return "\n".join(
            [
                "/* Derivatives of some neighbouring knots; spare lanes repeat the last one. */",
                "static void expand_knots(pfx_solver *s, int first, int rows)",
                "{",
                "    expansion_columns *const c = &s->columns;",
                "    int lane;",
                "    for (lane = 0; lane < WIDTH; ++lane) {",
                "        const int k = first + (lane < rows ? lane : rows - 1);",
                *moved,
                "    }",
                f"    {call}",
                "    for (lane = 0; lane < rows; ++lane) {",
                *results,
                "    }",
                "}",
            ]
        )

    def _roll_out_knot(self) -> str:
        arguments = {
            "x": "s->X[part][k]",
            "cost": "s->C[part][k]",
            "alpha": "alpha",
            "x_ref": "s->x[k]",
            "u_ref": "s->u[k]",
            "gains": "s->gains[k][0]",
            "h": "&s->own.h[k]",
            "p": "row_of(s, k)",
            "lower": "s->own.lower[k]",
            "upper": "s->own.upper[k]",
            "gap": "s->gap[k]",
        }

        # outputs have names of inputs: u, the next x, the cost so far
        def call(f: Function) -> str:
            passed = [arguments[key] for key in f.inputs]
            passed += ["s->U[part][k]", "s->X[part][k + 1]", "s->C[part][k + 1]"]
            return f"WIDE_NAME({f.name})({', '.join(passed)});"

        lines = [f"    {call(self.wide['roll_out'])}"]
        if "roll_out_with_gaps" in self.wide:
            lines = [
                f"    if (with_gaps) {call(self.wide['roll_out_with_gaps'])}",
                f"    else {call(self.wide['roll_out'])}",
            ]
        else:
            lines.insert(0, "    (void)with_gaps;")
        head = "static void roll_out_knot(pfx_solver *s, int part, int k, int with_gaps,"
        return "\n".join(
            [
                "/* One step of a vector of simulations. */",
                f"{head} const wide *alpha)",
                "{",
                *lines,
                "}",
            ]
        )

    def _consensus_knot(self) -> str:
        f = self.narrow["consensus"]
        arguments = {
            "dx": "s->dx[k]",
            "alpha": "alpha",
            "F": "s->F[k]",
            "gains": "s->gains[k][0]",
            "gap": "s->gap[k]",
            "h": "&s->own.h[k]",
            "move": "s->move[k]",
        }
        passed = ", ".join([*(arguments[key] for key in f.inputs), "s->dx[k + 1]"])
        return (
            "static void consensus_knot(pfx_solver *s, int k, const double *alpha)\n{\n"
            f"    consensus__64({passed});\n}}"
        )

    def _subtract(self) -> str:
        head = "OWN void subtract(const double *x, const double *origin, double *dx)\n{\n"
        if self.parts.flat:
            return (
                "/* x - origin, of states. */\n"
                + head
                + "    int i;\n    for (i = 0; i < NX; ++i) dx[i] = x[i] - origin[i];\n}"
            )
        return f"/* x - origin on the manifold of states. */\n{head}    difference__64(x, origin, dx);\n}}"

    def _constraints(self) -> str:
        lines = []
        for name, outputs in (
            ("constraint_values", "double *c"),
            ("constraint_jacobians", "double *gx, double *gu"),
        ):
            f = self.narrow[name]
            passed = {"x": "x", "u": "u", "p": "p"} | {key: key for key in f.outputs}
            lines.append(
                f"static void {name}_of(const double *x, const double *u, const double *p,"
                f" {outputs})\n{{\n    {f.call('__64', passed)}\n}}"
            )
        return "\n\n".join(lines)

    def _hold(self) -> str:
        f = self.narrow["hold"]
        passed = {"q": "numbers->start", "tau": "numbers->u[0]"}
        return "\n".join(
            [
                "void pfx_hold(pfx_numbers *numbers)",
                "{",
                "    int k;",
                f"    {f.call('__64', passed)}",
                "    for (k = 1; k < STEPS; ++k)"
                " memcpy(numbers->u[k], numbers->u[0], sizeof numbers->u[0]);",
                "}",
            ]
        )


_SIZES_OF = """\
/* A vector of step sizes; where they are fewer they come again. */
OWN wide sizes_of(int part)
{
    double sizes[WIDTH];
    wide found;
    int lane;
    for (lane = 0; lane < WIDTH; ++lane) sizes[lane] = step_sizes[(part * WIDTH + lane) % SIZES];
    memcpy(&found, sizes, sizeof found);
    return found;
}"""


def defaults_tables(defaults: Mapping[str, np.ndarray]) -> Iterable[str]:
    """The numbers that a solver was generated with."""
    return (_numbers(f"default_{name}", rows) for name, rows in defaults.items())


def defaults_function(defaults: Mapping[str, np.ndarray], learns: bool) -> str:
    """What copies them into a structure of its user's."""
    lines = []
    for name, rows in defaults.items():
        if rows.ndim == 1:
            line = f"    for (k = 0; k < {len(rows)}; ++k) numbers->{name}[k] = default_{name}[k];"
        else:
            count = rows.shape[-1]
            place = "(void *)&numbers->knot[k]" if name == "knot" else f"numbers->{name}[k]"
            line = (
                f"    for (k = 0; k < {len(rows)}; ++k)\n        memcpy({place}, default_{name} +"
                f" default_{name}_row[k] * {count}, {count} * sizeof(double));"
            )
        lines.append(line)
    if learns:
        lines.append("    numbers->learnt = 0;")
    return "\n".join(["void pfx_defaults(pfx_numbers *numbers)", "{", "    int k;", *lines, "}"])


def _of(name: str) -> tuple[str, ...]:
    return ("p",) if name == "final_cost" else ()


def _row(key: str) -> str:
    return "s->l[first + lane]" if key == "l" else f"s->{key}[first + lane]"


def _places(name: str, numbers: Sequence[int]) -> str:
    return array(f"static const int {name}", [str(x) for x in numbers])


def _numbers(name: str, rows) -> str:  # type: ignore[no-untyped-def]
    """Rows of numbers, those that are the same once, and for each row which one it is."""
    if rows.ndim == 1:
        return array(f"static const double {name}", [repr(float(x)) for x in rows])
    known: dict[bytes, int] = {}
    which = [known.setdefault(row.tobytes(), len(known)) for row in rows]
    kept = [rows[which.index(k)] for k in range(len(known))]
    numbers = [repr(float(x)) for row in kept for x in row]
    numbers = [x.replace("inf", "INFINITY").replace("nan", "NAN") for x in numbers]
    return array(f"static const double {name}", numbers) + "\n" + _places(f"{name}_row", which)


__all__ = ["WIDTH", "Function", "Source", "code", "defaults_function", "defaults_tables", "named"]
