"""Straight pieces of a function as Python: compiled when a warp first comes there, once for all
lanes and once under a mask.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ptx import arithmetic
from ptx.memory import LANES
from ptx.text import LOCAL, TYPES, Function, Module, Statement, number

_SPECIAL = {
    "%tid.x": "W.threads.astype(np.uint32)",
    "%ntid.x": "W.constant(W.block.threads)",
    "%ctaid.x": "W.constant(W.block.number)",
    "%nctaid.x": "W.constant(W.block.count)",
    "%laneid": "np.arange(32, dtype=np.uint32)",
}


class Piece:
    """Statements from `start` to `end`; the last may be one that ends it."""

    def __init__(self, owner: Pieces, start: int, end: int):
        self.owner, self.start, self.end = owner, start, end
        code = owner.function.code
        last = code[end - 1]
        self.last: Statement | None = (
            last if last.name in ("bra", "ret", "exit", "call", "bar", "trap") else None
        )
        self.inner = code[start : end - 1] if self.last else code[start:end]
        self.target = (
            owner.at.get(owner.function.labels.get(last.operands[0], -1))
            if self.last and last.name == "bra"
            else None
        )
        if self.last and self.last.guard:
            self.guard, self.negated = owner.register[self.last.guard], self.last.negated
        else:
            self.guard, self.negated = None, False

    @cached_property
    def classes(self) -> list[str]:
        return [arithmetic.counts_as(s) for s in self.owner.function.code[self.start : self.end]]

    @cached_property
    def whole(self) -> Callable[..., None]:
        return self._compiled(False)

    @cached_property
    def partial(self) -> Callable[..., None]:
        return self._compiled(True)

    def _compiled(self, masked: bool) -> Callable[..., None]:
        if not self.inner:
            return lambda R, W, m: None
        lines = [line for s in self.inner for line in self.owner.lines(s, masked)]
        text = "def run(R, W, m):\n" + "".join(f"    {line}\n" for line in lines)
        space: dict[str, Any] = {**vars(arithmetic), "np": np, "K": self.owner.constants}
        space["TYPES"] = TYPES
        exec(compile(text, f"<{self.owner.function.name} at {self.start}>", "exec"), space)
        return space["run"]


class Pieces:
    """A function, ready to run."""

    def __init__(self, module: Module, function: Function):
        self.module, self.function = module, function
        self.register = {name: k for k, name in enumerate(function.registers)}
        self.zeros = [np.zeros(LANES, TYPES[t]) for t in function.registers.values()]
        self.constants: list[np.ndarray] = []
        self._constant: dict[tuple[str, str], int] = {}
        starts = [*function.starts, len(function.code)]
        self.at = {start: k for k, start in enumerate(starts[:-1])}
        self.pieces = [Piece(self, a, b) for a, b in itertools.pairwise(starts)]

    # --- operands -------------------------------------------------------------------------------

    def value(self, operand: str, kind: str) -> str:
        if operand in _SPECIAL:
            return _SPECIAL[operand]
        if operand.startswith("%"):
            own, wanted = self.function.registers[operand], TYPES[kind]
            text = f"R[{self.register[operand]}]"
            if TYPES[own] == wanted:
                return text
            if TYPES[own].itemsize == wanted.itemsize:
                return f"{text}.view({wanted.str!r})"
            return f"{text}.astype({wanted.str!r})"
        if operand in self.function.places:
            return f"W.constant(W.frame + {LOCAL + self.function.places[operand]}).astype('u8')"
        if operand in self.module.places:
            return self._number(
                np.dtype(kind_of(kind)).type(self.module.places[operand]), operand, kind
            )
        return self._number(number(operand, kind), operand, kind)

    def _number(self, x: np.generic, name: str, kind: str) -> str:
        key = name, kind
        if key not in self._constant:
            self._constant[key] = len(self.constants)
            self.constants.append(np.full(LANES, x))
        return f"K[{self._constant[key]}]"

    def _address(self, operand: str) -> str:
        found = re.fullmatch(r"([%\w$.]+)\s*(?:\+\s*(-?\d+))?", operand.strip("[] "))
        assert found, operand
        base, offset = found.group(1), int(found.group(2) or 0)
        text = self.value(
            base,
            "u64" if not base.startswith("%") else self.function.registers[base].replace("b", "s"),
        )
        return f"{text} + {offset}" if offset else text

    def _put(self, register: str, text: str, kind: str, mask: str) -> str:
        if register == "_":
            return "pass"
        k, own, made = (
            self.register[register],
            TYPES[self.function.registers[register]],
            TYPES[kind],
        )
        if own != made:
            text = (
                f"({text}).view({own.str!r})"
                if own.itemsize == made.itemsize
                else f"({text}).astype({own.str!r})"
            )
        return f"R[{k}] = np.where({mask}, {text}, R[{k}])" if mask else f"R[{k}] = {text}"

    # --- statements -----------------------------------------------------------------------------

    def lines(self, s: Statement, masked: bool) -> list[str]:
        mask = "m" if masked else ""
        if s.guard:
            guard = f"{'~' if s.negated else ''}R[{self.register[s.guard]}]"
            mask = f"({guard} & m)" if masked else f"({guard})"
        if s.name in ("ld", "st", "ldu"):
            return self._memory(s, mask)
        if s.name == "mov" and any(o.startswith("{") for o in s.operands):
            return self._packed(s, mask)
        if "cc" in s.operation.split(".") or s.name in ("addc", "subc", "madc"):
            return self._carried(s, mask)
        try:
            text, kind = arithmetic.expression(s, self.value)
            return [self._put(s.operands[0], text, kind, mask)]
        except NotImplementedError as error:
            return [f"raise NotImplementedError({str(error)!r})"]

    def _memory(self, s: Statement, mask: str) -> list[str]:
        parts, kind = s.operation.split("."), s.type
        dtype = TYPES[kind]
        first, second = s.operands
        listed, place = (first, second) if s.name != "st" else (second, first)
        registers = [x.strip() for x in listed.strip("{} ").split(",")]
        if "param" in parts:
            found = re.fullmatch(r"([\w$]+)\s*(?:\+\s*(\d+))?", place.strip("[] "))
            assert found
            key = f"{found.group(1)!r}, {int(found.group(2) or 0)}"
            if s.name == "st":
                return [f"W.give({key}, {self.value(registers[0], kind)}, {mask or None})"]
            return [self._put(registers[0], f"W.given({key}, {dtype.str!r})", kind, mask)]
        where = f"{self._address(place)}, {mask or None}, W"
        if s.name == "st":
            values = ", ".join(self.value(r, kind) for r in registers)
            return [f"W.spaces.store(TYPES[{kind!r}], [{values}], {where})"]
        read = f"x = W.spaces.load(TYPES[{kind!r}], {len(registers)}, {where})"
        return [read, *(self._put(r, f"x[{k}]", kind, mask) for k, r in enumerate(registers))]

    def _carried(self, s: Statement, mask: str) -> list[str]:
        """Parts of longer sums: a carry goes from one to the next."""
        values = ", ".join(self.value(o, "u32") for o in s.operands[1:])
        carry = "W.carry" if s.name in ("addc", "subc", "madc") else "0"
        high = ".hi" in s.operation
        call = f"x, W.carry = carried({s.name[:3]!r}, {high}, {carry}, {values})"
        return [call, self._put(s.operands[0], "x", "u32", mask)]

    def _packed(self, s: Statement, mask: str) -> list[str]:
        to, source = s.operands
        bits = 8 * TYPES[s.type].itemsize
        if to.startswith("{"):
            names = [x.strip() for x in to.strip("{} ").split(",")]
            part = f"b{bits // len(names)}"
            read = f"x = {self.value(source, f'u{bits}')}.reshape(-1, 1).view({TYPES[part].str!r})"
            return [
                read,
                *(self._put(n, f"x[:, {k}].copy()", part, mask) for k, n in enumerate(names)),
            ]
        names = [x.strip() for x in source.strip("{} ").split(",")]
        part = f"u{bits // len(names)}"
        columns = ", ".join(self.value(n, part) for n in names)
        text = f"np.stack([{columns}], 1).view('u{bits // 8}')[:, 0]"
        return [self._put(to, text, f"b{bits}", mask)]


def kind_of(kind: str) -> str:
    return TYPES[kind].str
