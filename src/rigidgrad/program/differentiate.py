"""Derivatives of Programs, as Programs: Jacobians, and products with them from either side.

The program is replayed on recorders, so that derivatives share their work with each other and with
the values, and constants fold. Multiply-adds come apart on the way: `fuse` the result. Zeros known
from the structure are skipped, and come out as the constant 0.0.

`min`, `max` and `select` have the derivative of the branch taken. Forward mode never looks at the
other branch; in reverse mode an infinite derivative there (a root at zero, say) gives NaN, so guard
the argument and not only the result.

Griewank and Walther 2008, Evaluating Derivatives, chapters 3 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rigidgrad.errors import InputError, unknown_name
from rigidgrad.program.nesting import flatten
from rigidgrad.program.program import LEAVES, Node, Program, Shape, evaluate, operands
from rigidgrad.program.recorder import Value, record
from rigidgrad.scalars import add, is_constant, less, mul, neg, select, sincos

MODES = ("auto", "forward", "reverse")

Place = tuple[str, int]  # one number of a named input
_BRANCHES = ("min", "max", "select")


def differentiate(
    program: Program,
    outputs: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    mode: str = "auto",
    *,
    values: bool = False,
) -> Program:
    """The Jacobians of the named outputs with respect to the named inputs; None means all of them.

    There is one output for each pair, "d{output}/d{input}", of the output's shape followed by the
    input's. `values` puts the outputs themselves first. Mode "forward" carries the derivatives with
    respect to each input number through the program, "reverse" those of each output number back
    through it, "auto" does what needs fewer products.
    """
    if mode not in MODES:
        raise InputError(f"mode is one of {', '.join(map(repr, MODES))}, not {mode!r}")
    of, by = _named("output", outputs, program.outputs), _named("input", inputs, program.inputs)
    if mode == "auto":
        mode = _cheaper_mode(program, of, by)

    def jacobians(arguments: dict[str, Any]) -> tuple[Any, ...]:
        replay = _Replay(program, arguments, by)
        columns = [(name, k) for name, shape in by.items() for k in range(math.prod(shape))]
        rows = [r for name in of for r in replay.results[name]]
        if mode == "forward":
            tangents = replay.forward({place: {i: 1.0} for i, place in enumerate(columns)})
            matrix = [[_signed(r, t) for t in _row(r, tangents, len(columns))] for r in rows]
        else:
            gradients = [replay.reverse([(r, 1.0)]) for r in rows]
            matrix = [[gradient.get(place, 0.0) for place in columns] for gradient in gradients]
        blocks, top = [], 0
        for shape in of.values():
            left = 0
            for other in by.values():
                blocks.append(
                    [
                        matrix[top + i][left + j]
                        for i in range(math.prod(shape))
                        for j in range(math.prod(other))
                    ]
                )
                left += math.prod(other)
            top += math.prod(shape)
        return replay.values(of if values else ()) + tuple(blocks)

    names = {f"d{y}/d{x}": (*of[y], *by[x]) for y in of for x in by}
    return record(program.inputs, (of if values else {}) | names, jacobians)


def pushforward(
    program: Program, inputs: Iterable[str] | None = None, *, values: bool = False
) -> Program:
    """J·t, the rate of all outputs when the named inputs move along t: more inputs
    "tangent:{input}", and outputs "tangent:{output}".
    """
    by = _named("input", inputs, program.inputs)

    def products(arguments: dict[str, Any]) -> tuple[Any, ...]:
        replay = _Replay(program, arguments, by)
        moving = {name: tuple(flatten(arguments[f"tangent:{name}"])) for name in by}
        tangents = replay.forward(
            {(name, k): {0: t} for name, ts in moving.items() for k, t in enumerate(ts)}
        )
        rates = (
            [_signed(r, _row(r, tangents, 1)[0]) for r in results]
            for results in replay.results.values()
        )
        return replay.values(program.outputs if values else ()) + tuple(rates)

    names = {f"tangent:{name}": shape for name, shape in program.outputs.items()}
    return _extended(
        program,
        {f"tangent:{name}": shape for name, shape in by.items()},
        (program.outputs if values else {}) | names,
        products,
    )


def pullback(
    program: Program,
    outputs: Iterable[str] | None = None,
    inputs: Iterable[str] | None = None,
    *,
    values: bool = False,
) -> Program:
    """cᵀ·J, the gradient of the named outputs weighted by c: more inputs "cotangent:{output}", and
    an output "cotangent:{input}" for each input.

    Differentiated once more it gives cᵀ times the second derivatives, without the tensor between.
    """
    of, by = _named("output", outputs, program.outputs), _named("input", inputs, program.inputs)

    def products(arguments: dict[str, Any]) -> tuple[Any, ...]:
        replay = _Replay(program, arguments, by)
        weights = [
            (r, c)
            for name in of
            for r, c in zip(
                replay.results[name], flatten(arguments[f"cotangent:{name}"]), strict=True
            )
        ]
        gradient = replay.reverse(weights)
        sums = (
            [gradient.get((name, k), 0.0) for k in range(math.prod(shape))]
            for name, shape in by.items()
        )
        return replay.values(of if values else ()) + tuple(sums)

    names = {f"cotangent:{name}": shape for name, shape in by.items()}
    return _extended(
        program,
        {f"cotangent:{name}": shape for name, shape in of.items()},
        (of if values else {}) | names,
        products,
    )


def _extended(
    program: Program,
    more: dict[str, Shape],
    outputs: dict[str, Shape],
    function: Callable[[dict[str, Any]], tuple[Any, ...]],
) -> Program:
    if taken := more.keys() & program.inputs.keys():
        raise InputError(f"the program has an input {min(taken)!r} already")
    return record(program.inputs | more, outputs, function)


def _named(kind: str, names: Iterable[str] | None, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    chosen = list(shapes) if names is None else [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in shapes:
            raise unknown_name(kind, name, shapes)
    return {name: shapes[name] for name in chosen}


# --- running a program on recorders ---------------------------------------------------------------


class _Replay:
    """A program run once more, keeping each node's value, and the tangents or adjoints that pass
    through it.
    """

    def __init__(self, program: Program, arguments: Mapping[str, Any], by: Mapping[str, Shape]):
        self.nodes = program.nodes
        flat = {name: tuple(flatten(arguments[name])) for name in program.inputs}
        self.x: list[Any] = []
        for node in program.nodes:
            self.x.append(
                _extreme(node, self.x)
                if node[0] in ("min", "max")
                else evaluate(node, self.x, flat)
            )
        self.results = dict(
            zip(program.outputs, _split(program.results, program.outputs.values()), strict=True)
        )
        masks = _input_masks(
            program, [(name, k) for name in by for k in range(math.prod(by[name]))]
        )
        # what folds to a constant is not
        active = [mask != 0 and isinstance(x, Value) for mask, x in zip(masks, self.x, strict=True)]
        self.edges = [
            _edges(node, self.x, self.x[i], active) if active[i] else []
            for i, node in enumerate(program.nodes)
        ]

    def values(self, names: Iterable[str]) -> tuple[Any, ...]:
        return tuple(
            [_signed(r, self.x[r[1]]) if isinstance(r, tuple) else r for r in self.results[name]]
            for name in names
        )

    def forward(self, seeds: Mapping[Place, dict[int, Any]]) -> list[dict[int, Any]]:
        """Per node its derivative along each direction that reaches it."""
        tangents: list[dict[int, Any]] = []
        for node, edges in zip(self.nodes, self.edges, strict=True):
            if node[0] == "input":
                tangents.append(seeds.get(node[1:], {}))
                continue
            own: dict[int, Any] = {}
            if node[0] in _BRANCHES and edges:
                condition, yes, no = _branches(node, self.x)
                for k in tangents[yes].keys() | tangents[no].keys():
                    own[k] = _choose(condition, tangents[yes].get(k, 0.0), tangents[no].get(k, 0.0))
            else:
                for j, derivative in edges:
                    for k, t in tangents[j].items():
                        own[k] = add(own.get(k, 0.0), derivative(t))
            tangents.append({k: t for k, t in own.items() if not is_constant(t, 0.0)})
        return tangents

    def reverse(self, weights: Iterable[tuple[Any, Any]]) -> dict[Place, Any]:
        """The gradient of a weighted sum of results, for each input number that reaches it."""
        adjoints: dict[int, Any] = {}
        for r, weight in weights:
            if isinstance(r, tuple):
                adjoints[r[1]] = add(adjoints.get(r[1], 0.0), _signed(r, weight))
        gradient: dict[Place, Any] = {}
        for i in range(max(adjoints, default=-1), -1, -1):
            adjoint = adjoints.pop(i, 0.0)
            if is_constant(adjoint, 0.0):
                continue
            if self.nodes[i][0] == "input":
                gradient[self.nodes[i][1:]] = adjoint
            for j, derivative in self.edges[i]:
                adjoints[j] = add(adjoints.get(j, 0.0), derivative(adjoint))
        return gradient


def _split(flat: Sequence[Any], shapes: Iterable[Shape]) -> list[Sequence[Any]]:
    parts, start = [], 0
    for shape in shapes:
        parts.append(flat[start : start + math.prod(shape)])
        start += math.prod(shape)
    return parts


def _signed(result: Any, x: Any) -> Any:
    return neg(x) if isinstance(result, tuple) and result[0] < 0 else x


def _row(result: Any, tangents: list[dict[int, Any]], size: int) -> list[Any]:
    own = tangents[result[1]] if isinstance(result, tuple) else {}
    return [own.get(k, 0.0) for k in range(size)]


def _extreme(node: Node, x: list[Any]) -> Any:
    a, b = x[node[1]], x[node[2]]
    if not isinstance(a, Value):
        a, b = b, a
    if not isinstance(a, Value):
        return min(a, b) if node[0] == "min" else max(a, b)
    return a.minimum(b) if node[0] == "min" else a.maximum(b)


# --- the derivative of each operation -------------------------------------------------------------


def _branches(node: Node, x: list[Any]) -> tuple[Any, int, int]:
    """(condition, operand taken where it holds, operand taken elsewhere)."""
    a, b = node[1], node[2]
    if node[0] == "min":
        return less(x[b], x[a]), b, a
    if node[0] == "max":
        return less(x[a], x[b]), b, a
    return less(x[a], x[b]), node[3], node[4]


def _choose(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(a, Value) and isinstance(b, Value) and (a.sign, a.index) == (b.sign, b.index):
        return a
    return select(condition, a, b)


def _edges(
    node: Node, x: list[Any], y: Any, active: list[bool]
) -> list[tuple[int, Callable[[Any], Any]]]:
    """For each operand that depends on an input: its index, and what multiplies a number by
    ∂node/∂operand.
    """
    if node[0] in LEAVES:
        return []
    if node[0] in _BRANCHES:
        condition, yes, no = _branches(node, x)
        pairs: list[tuple[int, Callable[[Any], Any]]] = [
            (yes, lambda t: _choose(condition, t, 0.0)),
            (no, lambda t: _choose(condition, 0.0, t)),
        ]
        return [(j, derivative) for j, derivative in pairs if active[j]]
    if not any(active[j] for j in operands(node)):
        return []
    return [
        (j, _times(d))
        for j, d in zip(operands(node), _partials(node, x, y), strict=True)
        if active[j]
    ]


def _times(d: Any) -> Callable[[Any], Any]:
    return lambda t: mul(d, t)


def _partials(node: Node, x: list[Any], y: Any) -> tuple[Any, ...]:
    """∂node/∂operand, in the operands' order."""
    a, b = (x[j] for j in (node[1:3] if len(node) > 2 else (node[1], node[1])))
    match node[0]:
        case "add":
            return 1.0, 1.0
        case "sub":
            return 1.0, -1.0
        case "mul":
            return b, a
        case "fma":
            return b, a, 1.0
        case "fms":
            return b, a, -1.0
        case "fnma":
            return neg(b), neg(a), 1.0
        case "fnms":
            return neg(b), neg(a), -1.0
        case "div":
            inverse = 1.0 / b
            return inverse, neg(mul(y, inverse))
        case "neg":
            return (-1.0,)
        case "sin":
            return (sincos(a)[1],)
        case "cos":
            return (neg(sincos(a)[0]),)
        case "sqrt":
            return (0.5 / y,)
        case "atan2":
            square = a * a + b * b
            return b / square, neg(a / square)
    raise AssertionError(node[0])


# --- counting -------------------------------------------------------------------------------------


def _smooth_operands(node: Node) -> tuple[int, ...]:
    return node[3:] if node[0] == "select" else operands(node)


def _input_masks(program: Program, columns: Sequence[Place]) -> list[int]:
    """Per node the set of input numbers that its value depends on, as bits."""
    bit = {place: 1 << i for i, place in enumerate(columns)}
    masks: list[int] = []
    for node in program.nodes:
        mask = bit.get(node[1:], 0) if node[0] == "input" else 0
        for j in _smooth_operands(node):
            mask |= masks[j]
        masks.append(mask)
    return masks


def _cheaper_mode(program: Program, of: Mapping[str, Shape], by: Mapping[str, Shape]) -> str:
    """One product for each operand and direction in forward mode, for each operand and result in
    reverse mode.
    """
    reaching = _input_masks(
        program, [(name, k) for name, shape in by.items() for k in range(math.prod(shape))]
    )
    reached = [0] * len(program.nodes)
    results = dict(
        zip(program.outputs, _split(program.results, program.outputs.values()), strict=True)
    )
    for bit, r in enumerate(r for name in of for r in results[name]):
        if isinstance(r, tuple):
            reached[r[1]] |= 1 << bit
    forward = reverse = 0
    for i in range(len(program.nodes) - 1, -1, -1):
        if not reached[i]:
            continue
        for j in _smooth_operands(program.nodes[i]):
            if reaching[j]:
                reached[j] |= reached[i]
                forward += reaching[j].bit_count()
                reverse += reached[i].bit_count()
    return "forward" if forward <= reverse else "reverse"
