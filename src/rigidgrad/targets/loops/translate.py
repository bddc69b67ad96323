"""Python functions with loops, conditions and assignments as IR.

Everything that does not depend on run-time values happens while the code is written: constants
fold, a condition that is known leaves one branch, and innermost loops of a few constant steps are
unrolled. Calls leave the callee's code behind: of another `Loops`, of an `@emits` function, which
writes IR itself, or of a plain function over numbers.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from rigidgrad.targets.loops.arrays import Array, loop
from rigidgrad.targets.loops.cells import Cell
from rigidgrad.targets.loops.source import Loops
from rigidgrad.targets.loops.values import (
    C_FUNCTIONS,
    F64,
    I1,
    I64,
    Code,
    Number,
    intrinsic_of,
    operators,
    select,
)

_UNROLLED = 32  # steps of a loop, at most
_OPERATORS = operators()


class AgainError(Exception):
    """Something was found out that earlier code should have known."""


class Translation:
    """One call of a function: its names, and where its code goes."""

    def __init__(self, code: Code, function: Loops, arguments: list[Any]) -> None:
        self.code, self.loops = code, function
        self.names: dict[str, Any] = {}
        self.end: Any = (
            None  # the block behind the function, once something returns from its middle
        )
        self.returned: Any = None
        self.exits: list[tuple[Any, Any]] = []  # blocks for `continue` and `break`
        self.scope: tuple[int, ...] = ()  # the loops and branches that code is in
        self.scopes = itertools.count()
        for name, value in zip(function.parameters, arguments, strict=True):
            self.bind(name, value)

    def run(self) -> Any:
        """What the function returns."""
        body = self.loops.tree.body
        last = body[-1]
        if isinstance(last, ast.Return) and not any(
            isinstance(n, ast.Return) for s in body[:-1] for n in ast.walk(s)
        ):
            self.block(body[:-1])
            return None if last.value is None else self.value(last.value)
        self.block(body)
        if self.end is not None:
            self.code.goto(self.end)
        return self.returned.load() if self.returned is not None else None

    # --- statements -------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            name = f"_{type(statement).__name__.lower()}"
            if not hasattr(self, name):
                raise TypeError(
                    f"line {statement.lineno} of {self.loops.__name__}: compiled code has no such"
                    " statement"
                )
            getattr(self, name)(statement)

    def bind(self, name: str, value: Any) -> None:
        if name not in self.loops.cells or isinstance(value, Loops):
            self.names[name] = value
            return
        if name in self.loops.reals:
            value = Number(self.code, self.code.cast(value, F64))
        cell = self.names.get(name)
        if not isinstance(cell, Cell) or not cell.fits(value):
            if (
                isinstance(cell, Cell)
                and len(cell.scope) < len(self.scope)
                and cell.scope == self.scope[: len(cell.scope)]
            ):
                self.changed(name, cell, value)
            cell = self.names[name] = Cell(self.code, value, self.scope)
        cell.store(value)

    def changed(self, name: str, cell: Cell, value: Any) -> None:
        """A loop or a branch gives a name of the code around it another type."""
        if (
            cell.parts is None
            and cell.type in (I1, I64)
            and (isinstance(value, float) or (isinstance(value, Number) and value.is_float))
        ):
            self.loops.reals.add(name)
            raise AgainError
        raise TypeError(
            f"{self.loops.__name__}: '{name}' has another type in a loop or a branch than before it"
        )

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """A loop or a branch."""
        outside = self.scope
        self.scope = (*outside, next(self.scopes))
        yield
        self.scope = outside

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value))

    def _augassign(self, node: ast.AugAssign) -> None:
        apply = _OPERATORS[type(node.op).__name__]
        if isinstance(node.target, ast.Name):
            self.assign(node.target, apply(self.name(node.target.id), self.value(node.value)))
            return
        if not isinstance(node.target, ast.Subscript):
            raise TypeError("only names and elements are assigned")
        part = self.value(node.target.value).part(self.key(node.target.slice))
        part.store(apply(part.load(part.data), self.value(node.value)), part.data)

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, ast.Tuple):
            values = (
                [value.item(k) for k in range(len(target.elts))]
                if isinstance(value, Array)
                else value
            )
            for part, x in zip(target.elts, values, strict=True):
                self.assign(part, x)
        elif isinstance(target, ast.Subscript):
            part = self.value(target.value).part(self.key(target.slice))
            if part.ndim == 0:
                part.store(value, part.data)
            else:
                part.fill(value)
        else:
            raise TypeError("only names and elements are assigned")

    def _if(self, node: ast.If) -> None:
        condition = self.value(node.test)
        if not isinstance(condition, Number):
            self.block(node.body if condition else node.orelse)
            return
        yes, no, after = (self.code.block(name) for name in ("then", "else", "after"))
        self.code.builder.cbranch(self.code.truth(condition), yes, no)
        for block, body in ((yes, node.body), (no, node.orelse)):
            self.code.builder.position_at_end(block)
            with self.inside():
                self.block(body)
            self.code.jump(after)
        self.code.builder.position_at_end(after)

    def _for(self, node: ast.For) -> None:
        if not isinstance(node.target, ast.Name):
            raise TypeError("a loop has one variable")
        name = node.target.id
        if isinstance(node.iter, ast.Tuple):
            for x in self.value(node.iter):
                self.names[name] = x
                self.block(node.body)
            return
        if not (isinstance(node.iter, ast.Call) and self.value(node.iter.func) is range):
            raise TypeError("loops run over a range or a tuple")
        bounds = [self.value(x) for x in node.iter.args]
        start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        inner = any(
            isinstance(n, ast.For | ast.While | ast.Continue | ast.Break)
            for s in node.body
            for n in ast.walk(s)
        )
        if (
            not inner
            and all(isinstance(x, int) for x in (start, stop, step))
            and len(range(start, stop, step)) <= _UNROLLED
        ):
            for k in range(start, stop, step):
                self.names[name] = k
                self.block(node.body)
            return
        again, leave = self.code.block("next"), self.code.block("after")

        def body(k: Number) -> None:
            self.names[name] = k
            self.exits.append((again, leave))
            with self.inside():
                self.block(node.body)
            self.exits.pop()

        loop(self.code, start, stop, step, body, leave, again)

    def _while(self, node: ast.While) -> None:
        head, inside, after = (self.code.block(name) for name in ("head", "body", "after"))
        self.code.goto(head)
        self.code.builder.cbranch(self.code.truth(self.value(node.test)), inside, after)
        self.code.builder.position_at_end(inside)
        self.exits.append((head, after))
        with self.inside():
            self.block(node.body)
        self.exits.pop()
        self.code.jump(head)
        self.code.builder.position_at_end(after)

    def _continue(self, node: ast.Continue) -> None:
        self._jump(self.exits[-1][0])

    def _break(self, node: ast.Break) -> None:
        self._jump(self.exits[-1][1])

    def _return(self, node: ast.Return) -> None:
        self.end = self.end or self.code.block("end")
        if node.value is not None:
            value = self.value(node.value)
            self.returned = self.returned or Cell(self.code, value)
            self.returned.store(value)
        self._jump(self.end)

    def _jump(self, block: Any) -> None:
        """What follows in the same block of the source is never reached."""
        self.code.jump(block)
        self.code.builder.position_at_end(self.code.block("unreached"))

    # --- expressions ------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Tuple):
            return tuple(self.value(x) for x in node.elts)
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op).__name__](self.value(node.left), self.value(node.right))
        if isinstance(node, ast.UnaryOp):
            operand = self.value(node.operand)
            if isinstance(node.op, ast.Not):
                return (
                    Number(self.code, self.code.builder.not_(self.code.truth(operand)))
                    if isinstance(operand, Number)
                    else not operand
                )
            return _OPERATORS[type(node.op).__name__](operand)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.BoolOp):
            return self._bool(node.values, isinstance(node.op, ast.And))
        if isinstance(node, ast.IfExp):
            condition = self.value(node.test)
            if not isinstance(condition, Number):
                return self.value(node.body if condition else node.orelse)
            return self._either(
                condition, lambda: self.value(node.body), lambda: self.value(node.orelse)
            )
        if isinstance(node, ast.Subscript):
            base, key = self.value(node.value), self.key(node.slice)
            return base.item(key) if isinstance(base, Array) else base[key]
        if isinstance(node, ast.Attribute):
            return getattr(self.value(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise TypeError(
            f"line {node.lineno} of {self.loops.__name__}: compiled code has no such expression"
        )

    def name(self, name: str) -> Any:
        if name in self.names:
            found = self.names[name]
            return found.load() if isinstance(found, Cell) else found
        try:
            return self.loops.outside[name]
        except KeyError:
            raise NameError(f"{self.loops.__name__}: name '{name}' is not defined") from None

    def key(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            return slice(
                *(None if x is None else self.value(x) for x in (node.lower, node.upper, node.step))
            )
        if isinstance(node, ast.Tuple):
            return tuple(self.key(x) for x in node.elts)
        return self.value(node)

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise TypeError("comparisons have two sides")
        return _OPERATORS[type(node.ops[0]).__name__](
            self.value(node.left), self.value(node.comparators[0])
        )

    def _bool(self, nodes: list[ast.expr], every: bool) -> Any:
        """`and` or `or`: what comes later is worked out only if it decides."""
        first = self.value(nodes[0])
        if len(nodes) == 1:
            return first
        if not isinstance(first, Number):
            return self._bool(nodes[1:], every) if bool(first) == every else first
        truth = Number(self.code, self.code.truth(first))

        def rest() -> Any:
            value = self._bool(nodes[1:], every)
            return Number(self.code, self.code.truth(value))

        known = Number(self.code, I1(int(not every)))
        return self._either(truth, *((rest, lambda: known) if every else (lambda: known, rest)))

    def _either(self, condition: Number, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        blocks = [self.code.block(name) for name in ("then", "else", "after")]
        self.code.builder.cbranch(self.code.truth(condition), *blocks[:2])
        cell: Cell | None = None
        for block, make in zip(blocks, (yes, no), strict=False):
            self.code.builder.position_at_end(block)
            value = make()
            cell = cell or Cell(self.code, value)
            cell.store(value)
            self.code.jump(blocks[2])
        self.code.builder.position_at_end(blocks[2])
        assert cell is not None
        return cell.load()

    def _call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        arguments = []
        for x in node.args:
            if isinstance(x, ast.Starred):
                arguments += self.value(x.value)
            else:
                arguments.append(self.value(x))
        if isinstance(function, Loops):
            return Translation(self.code, function, arguments).run()
        if getattr(function, "writes_code", False):
            return function(self.code, *arguments)
        if function in (np.empty, np.zeros):
            return self._array(function, *arguments)
        known = (
            _FUNCTIONS.get(function)
            if callable(function) and getattr(function, "__hash__", None)
            else None
        )
        if known is not None and any(isinstance(x, Number | Array) for x in arguments):
            return known(*arguments)
        return function(*arguments)

    def _array(self, function: Any, shape: Any, dtype: Any = np.float64) -> Array:
        result = Array.fresh(self.code, shape, dtype)
        if function is np.zeros:
            result.fill(0)
        return result


def _smaller(x: Any, y: Any) -> Any:
    return select(x < y, x, y) if isinstance(x < y, Number) else min(x, y)


def _larger(x: Any, y: Any) -> Any:
    return select(x > y, x, y) if isinstance(x > y, Number) else max(x, y)


def _length(x: Any) -> Any:
    return x.shape[0]


def _of_library(name: str, x: Number) -> Number:
    return x.code.c_function(name, x)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    min: _smaller,
    max: _larger,
    len: _length,
    abs: abs,
    **{
        getattr(module, name): partial(intrinsic_of, name)
        for module in (math, np)
        for name in ("sqrt", "floor")
    },
    **{
        getattr(module, name): partial(_of_library, name)
        for module in (math, np)
        for name in C_FUNCTIONS
    },
}
