"""Inverse dynamics through contacts as a kernel: a Program poses the cone program of a state,
another one is a round of its solution until it is done, a third turns it into forces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from rigidgrad.algorithms.fast import cone_program
from rigidgrad.algorithms.fast.contact_inverse_dynamics import Layout, Posed, solution
from rigidgrad.kernels.language import Kernel
from rigidgrad.model.contacts import Grip
from rigidgrad.program.fuse import fuse
from rigidgrad.program.program import Program, Shape
from rigidgrad.program.recorder import record

_ROUNDING = 1  # why rounds end early


def contact_inverse_dynamics_kernel(
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    posed: Callable[[Mapping[str, Any]], Posed],
    shape: Layout,
    grip: Grip,
    most: float = math.inf,
) -> Kernel:
    """The kernel from what poses a state, in a Program of at most so many nodes."""
    head, parts = _head(inputs, posed, most)
    n, m = len(shape.parts), len(grip.undriven)
    k = Kernel()
    arguments = {
        name: k.input(name, *size).matrix(1, math.prod(size)) for name, size in inputs.items()
    }
    results = {
        name: k.output(name, *size).matrix(1, math.prod(size)) for name, size in outputs.items()
    }
    numbers = {name: k.scratch(name, size).at(0, size) for name, (size,) in head.outputs.items()}
    k.call(head, arguments, numbers)
    sizes: dict[str, Shape] = {
        name: (size,) for name, size in {"z": n, "y": m, "s": n}.items() if size
    } | {"error": (), "eager": ()}
    x = {
        name: k.scratch(name, math.prod(size)).matrix(1, math.prod(size))
        for name, size in sizes.items()
    }
    begin = cone_program.start(n, m, shape.blocks)
    k.call(fuse(record({}, sizes, lambda _: tuple(getattr(begin, name) for name in sizes))), {}, x)

    def iterate(values: Mapping[str, Any]) -> cone_program.Iterate:
        return cone_program.Iterate(
            *(values.get(name, ()) for name in cone_program.Iterate._fields)
        )

    def one_round(values: dict[str, Any]) -> tuple[Any, ...]:
        p = parts.whole(values).program
        new, sound = cone_program.one_round(p, iterate(values), shape.blocks)
        return (*(getattr(new, name) for name in sizes), cone_program.is_done(p, new.error), sound)

    known = {"program": head.outputs["program"]}
    done, failed, sound = k.scratch("done", 1), k.scratch("failed", 1), k.scratch("sound", 1)
    step = fuse(record(known | sizes, sizes | {"done": (), "sound": ()}, one_round))
    with k.until(cone_program.ROUNDS, done, failed):
        k.call(
            step,
            {"program": numbers["program"]} | x,
            x | {"done": done.at(0, 1), "sound": sound.at(0, 1)},
        )
        k.require(sound.at(0, 1), _ROUNDING)
    rows = math.prod(outputs["force"])
    tail = record(
        dict(head.outputs) | sizes,
        outputs,
        lambda values: solution(parts.whole(values), iterate(values), rows, shape, grip),
    )
    k.call(fuse(tail), numbers | x, results)
    return k


class _Parts:
    """Which numbers of a state's cone program are computed, each once, and which are constants."""

    def __init__(self) -> None:
        self.plan: Any = None

    def split(self, p: Posed) -> dict[str, tuple[Any, ...]]:
        """What is computed, for the rounds and for their end."""
        found: dict[str, dict[Any, tuple[int, Any]]] = {"program": {}, "rest": {}}

        def place(x: Any, part: str) -> Any:
            if isinstance(x, tuple):
                kind = type(x)
                places = [place(y, part) for y in x]
                return kind(*places) if hasattr(x, "_fields") else tuple(places)
            if isinstance(x, float):
                return x
            return part, found[part].setdefault((x.sign, x.index), (len(found[part]), x))[0]

        self.plan = Posed(
            *(
                place(x, "program" if name == "program" else "rest")
                for name, x in p._asdict().items()
            )
        )
        return {part: tuple(x for _, x in numbers.values()) for part, numbers in found.items()}

    def whole(self, values: Mapping[str, Any]) -> Posed:
        """Constants and numbers in their places; without those of the end, only the program is
        whole.
        """

        def fill(x: Any) -> Any:
            if isinstance(x, float):
                return x
            if isinstance(x[0] if x else None, str):
                return values[x[0]][x[1]] if x[0] in values else 0.0
            filled = [fill(y) for y in x]
            return type(x)(*filled) if hasattr(x, "_fields") else tuple(filled)

        found: Posed = fill(self.plan)
        return found


def _head(
    inputs: Mapping[str, Shape], posed: Callable[[Mapping[str, Any]], Posed], most: float
) -> tuple[Program, _Parts]:
    shapes: dict[str, Shape] = {}
    parts = _Parts()

    def evaluate(values: dict[str, Any]) -> tuple[Any, ...]:
        numbers = parts.split(posed(values))
        for part, found in numbers.items():
            shapes[part] = (len(found),)
        return tuple(numbers.values())

    return fuse(record(inputs, shapes, evaluate, most)), parts
