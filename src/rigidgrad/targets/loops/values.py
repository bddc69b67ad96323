"""What translated code computes with: numbers and lanes of numbers, each standing for a value of
the IR that is being written.

Arithmetic on a `Number` writes an instruction, so plain Python functions over numbers are called as
they are, and leave straight-line code behind. Python's own numbers are constants, and take the type
of what they meet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
CONTRACT = (
    "contract",
)  # a product and a sum may become one instruction, nothing else may change a rounding
REORDER = (
    "contract",
    "nsz",
    "reassoc",
)  # sums may be reordered for SIMD; NaN and infinity keep their meaning


C_FUNCTIONS = (
    "sin",
    "cos",
    "exp",
    "log",
)  # of the C library, called through a table of addresses: object code then needs no linking


class Code:
    """A function that is being written."""

    def __init__(self, name: str, flags: tuple[str, ...] = CONTRACT) -> None:
        self.flags = flags  # of arithmetic
        self.module = ir.Module(name)
        self.function = ir.Function(
            self.module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()] * 3), "kernel"
        )
        self.function.attributes.add("nounwind")
        self._entry = ir.IRBuilder(self.function.append_basic_block("entry"))
        self._start = self.function.append_basic_block("start")
        self.builder = ir.IRBuilder(self._start)

    def finish(self) -> str:
        """The module's text."""
        self.builder.ret_void()
        self._entry.branch(self._start)
        # without attributes for builtins, loops that copy would become calls of the C library
        return str(self.module).replace(" nounwind\n", ' nounwind "no-builtins"\n')

    def block(self, name: str) -> Any:
        return self.function.append_basic_block(name)

    def goto(self, block: Any) -> None:
        """Ends the current block, unless it has ended, and goes on in another."""
        self.jump(block)
        self.builder.position_at_end(block)

    def jump(self, block: Any) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def room(self, type_: Any, count: Any = None) -> Any:
        """Memory on the stack, for as long as the function runs."""
        if isinstance(count, Number):
            return self.builder.alloca(type_, count.ir)
        return self._entry.alloca(type_, None if count is None else I64(count))

    def call(self, name: str, result: Any, arguments: list[Any]) -> Any:
        """An intrinsic of LLVM."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(
                self.module, ir.FunctionType(result, [a.type for a in arguments]), name
            )
        return self.builder.call(function, arguments)

    def c_function(self, name: str, x: Number) -> Number:
        """Of a number in the C library."""
        place = self.builder.gep(self.function.args[2], [I64(C_FUNCTIONS.index(name))])
        pointer = self.builder.inttoptr(
            self.builder.load(place), ir.FunctionType(F64, [F64]).as_pointer()
        )
        result = Number(self, self.builder.call(pointer, [self.cast(x, F64)]))
        return Number(self, self.cast(result, x.ir.type)) if x.is_float else result

    def number(self, x: Any) -> Number:
        """A Python number as a value of its own type."""
        if isinstance(x, Number):
            return x
        if isinstance(x, bool | np.bool_):
            return Number(self, I1(int(x)))
        if isinstance(x, int | np.integer):
            return Number(self, I64(int(x)))
        if isinstance(x, np.float32):
            return Number(self, F32(float(x)))
        if isinstance(x, float | np.floating):
            return Number(self, F64(float(x)))
        raise TypeError(f"compiled code has no {type(x).__name__}")

    def index(self, x: Any) -> Any:
        """The IR of an integer."""
        return self.cast(x, I64)

    def truth(self, x: Any) -> Any:
        """The IR of a condition."""
        x = self.number(x)
        if x.count > 1:
            raise TypeError("code cannot branch on lanes")
        if x.ir.type == I1:
            return x.ir
        return (x != 0).ir

    def cast(self, x: Any, type_: Any) -> Any:
        """The IR of a number as another type."""
        element = type_.element if isinstance(type_, ir.VectorType) else type_
        if not isinstance(x, Number):
            value: Any = float(x) if element in (F32, F64) else int(x)
            return ir.Constant(
                type_, [value] * type_.count if isinstance(type_, ir.VectorType) else value
            )
        value, old, b = x.ir, x.ir.type, self.builder
        if old == type_:
            return value
        if isinstance(old, ir.VectorType):
            raise TypeError(f"lanes {old} cannot become {type_}")
        if isinstance(type_, ir.VectorType):
            return self.splat(self.cast(x, element), type_.count)
        if isinstance(old, ir.IntType):
            if type_ in (F32, F64):
                return b.uitofp(value, type_) if old == I1 else b.sitofp(value, type_)
            return (
                b.zext(value, type_)
                if old == I1
                else b.trunc(value, type_)
                if type_.width < old.width
                else b.sext(value, type_)
            )
        if isinstance(type_, ir.IntType):
            return b.fptosi(value, type_)
        return b.fpext(value, type_) if type_ == F64 else b.fptrunc(value, type_)

    def splat(self, number: Any, count: int) -> Any:
        """The IR of a vector with the same number in all lanes."""
        vector = ir.VectorType(number.type, count)
        undefined = ir.Constant(vector, ir.Undefined)
        one = self.builder.insert_element(undefined, number, I32(0))
        return self.builder.shuffle_vector(
            one, undefined, ir.Constant(ir.VectorType(I32, count), [0] * count)
        )


def _rank(type_: Any) -> int:
    """Which of two types their sum has: the one of higher rank."""
    if isinstance(type_, ir.VectorType):
        return 4
    return {I1: 0, I64: 1, F32: 2, F64: 3}[type_]


@dataclass(frozen=True, eq=False)
class Number:
    """A number, a truth value, or lanes of numbers."""

    code: Code
    ir: Any

    @property
    def is_float(self) -> bool:
        return not isinstance(self.ir.type, ir.IntType)

    @property
    def count(self) -> int:
        """Lanes."""
        return int(self.ir.type.count) if isinstance(self.ir.type, ir.VectorType) else 1

    def _common(
        self, other: Any, reflected: bool, real: bool = False
    ) -> tuple[Any, Any, bool] | None:
        """The IR of both operands as one type, and whether that is of floats."""
        if not isinstance(other, Number | int | float | np.number | np.bool_):
            return None
        type_ = self.ir.type
        if isinstance(other, Number):
            type_ = max(type_, other.ir.type, key=_rank)
        elif not self.is_float and isinstance(other, float | np.floating):
            type_ = F64
        if real and isinstance(type_, ir.IntType):
            type_ = F64
        elif type_ == I1:
            type_ = I64
        pair = self.code.cast(self, type_), self.code.cast(other, type_)
        return (*(pair[::-1] if reflected else pair), not isinstance(type_, ir.IntType))

    def _arithmetic(self, other: Any, name: str, reflected: bool = False) -> Any:
        common = self._common(other, reflected, name == "div")
        if common is None:
            return NotImplemented
        a, b, is_float = common
        if is_float:
            return Number(
                self.code, getattr(self.code.builder, "f" + name)(a, b, flags=self.code.flags)
            )
        return Number(self.code, getattr(self.code.builder, name)(a, b))

    def _bits(self, other: Any, name: str) -> Number:
        b = self.code.builder
        if self.ir.type == I1 and (
            isinstance(other, bool) or (isinstance(other, Number) and other.ir.type == I1)
        ):
            return Number(self.code, getattr(b, name)(self.ir, self.code.cast(other, I1)))
        if (
            self.count > 1
            and isinstance(other, Number)
            and other.ir.type == self.ir.type
            and self.ir.type.element == I1
        ):
            return Number(self.code, getattr(b, name)(self.ir, other.ir))
        return Number(self.code, getattr(b, name)(self.code.index(self), self.code.index(other)))

    def _compare(self, other: Any, sign: str) -> Any:
        common = self._common(other, False)
        if common is None:
            return NotImplemented
        a, b, is_float = common
        if is_float:
            compare = (
                self.code.builder.fcmp_unordered if sign == "!=" else self.code.builder.fcmp_ordered
            )
            return Number(self.code, compare(sign, a, b))
        return Number(self.code, self.code.builder.icmp_signed(sign, a, b))

    def __add__(self, other: Any) -> Any:
        return self._arithmetic(other, "add")

    def __radd__(self, other: Any) -> Any:
        return self._arithmetic(other, "add", True)

    def __sub__(self, other: Any) -> Any:
        return self._arithmetic(other, "sub")

    def __rsub__(self, other: Any) -> Any:
        return self._arithmetic(other, "sub", True)

    def __mul__(self, other: Any) -> Any:
        return self._arithmetic(other, "mul")

    def __rmul__(self, other: Any) -> Any:
        return self._arithmetic(other, "mul", True)

    def __truediv__(self, other: Any) -> Any:
        return self._arithmetic(other, "div")

    def __rtruediv__(self, other: Any) -> Any:
        return self._arithmetic(other, "div", True)

    def __neg__(self) -> Number:
        if self.is_float:
            return Number(self.code, self.code.builder.fneg(self.ir))
        negated: Number = 0 - self
        return negated

    def __and__(self, other: Any) -> Number:
        return self._bits(other, "and_")

    def __or__(self, other: Any) -> Number:
        return self._bits(other, "or_")

    def __lshift__(self, other: Any) -> Number:
        return self._bits(other, "shl")

    def __rshift__(self, other: Any) -> Number:
        return self._bits(other, "ashr")

    def __floordiv__(self, other: Any) -> Number:
        """Rounded down, as in Python."""
        if (
            self.is_float
            or isinstance(other, float)
            or (isinstance(other, Number) and other.is_float)
        ):
            return intrinsic_of("floor", self / other)
        if isinstance(other, int) and other > 0 and other & (other - 1) == 0:
            return self >> (other.bit_length() - 1)
        whole: Number = (self - self % other)._arithmetic(other, "sdiv")
        return whole

    def __mod__(self, other: Any) -> Number:
        """With the divisor's sign, as in Python."""
        if (
            self.is_float
            or isinstance(other, float)
            or (isinstance(other, Number) and other.is_float)
        ):
            rest: Number = self - self // other * other
            return rest
        if isinstance(other, int) and other > 0 and other & (other - 1) == 0:
            return self & (other - 1)
        left = self._arithmetic(other, "srem")
        wrong = ((left < 0) & (self.code.number(other) > 0)) | (
            (left > 0) & (self.code.number(other) < 0)
        )
        signed: Number = left + select(wrong, self.code.number(other), self.code.number(0))
        return signed

    def __pow__(self, other: Any) -> Any:
        if not isinstance(other, int) or other < 1:
            raise TypeError("powers are positive whole constants")
        return self if other == 1 else self * self ** (other - 1)

    # what `rigidgrad.scalars` asks of a scalar, so that functions over any scalar run in lanes

    def sqrt(self) -> Number:
        return intrinsic_of("sqrt", self)

    def select(self, yes: Any, no: Any) -> Any:
        """Of a comparison: yes where it holds, else no. Constants take the type of what was
        compared.
        """
        if not isinstance(yes, Number) and not isinstance(no, Number):
            if yes == no:
                return yes
            type_ = self.ir.operands[0].type
        else:
            type_ = max((x.ir.type for x in (yes, no) if isinstance(x, Number)), key=_rank)
        if isinstance(self.ir.type, ir.VectorType) and not isinstance(type_, ir.VectorType):
            type_ = ir.VectorType(type_, self.count)
        return Number(
            self.code,
            self.code.builder.select(
                self.ir, self.code.cast(yes, type_), self.code.cast(no, type_)
            ),
        )

    def __abs__(self) -> Number:
        return intrinsic_of("fabs", self) if self.is_float else select(self < 0, -self, self)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<")

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=")

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, ">")

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, ">=")

    def __eq__(self, other: Any) -> Any:
        return self._compare(other, "==")

    def __ne__(self, other: Any) -> Any:
        return self._compare(other, "!=")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a plain function cannot branch on a number that is known at run time only")


def select(condition: Number, yes: Any, no: Any) -> Number:
    """yes where the condition holds, else no."""
    code = condition.code
    type_ = max((code.number(x).ir.type for x in (yes, no)), key=_rank)
    return Number(
        code, code.builder.select(condition.ir, code.cast(yes, type_), code.cast(no, type_))
    )


def intrinsic_of(name: str, x: Any, *more: Any) -> Number:
    """LLVM's function of that name, such as floor, of numbers or lanes."""
    type_ = x.ir.type if x.is_float else F64
    scalar = type_.element if isinstance(type_, ir.VectorType) else type_
    suffix = ("" if type_ is scalar else f"v{type_.count}") + ("f64" if scalar == F64 else "f32")
    code = x.code
    return Number(
        code, code.call(f"llvm.{name}.{suffix}", type_, [code.cast(y, type_) for y in (x, *more)])
    )


def operators() -> dict[str, Callable[..., Any]]:
    """Python's operators by the names of their syntax."""
    named = {
        "Add": "add",
        "Sub": "sub",
        "Mult": "mul",
        "Div": "truediv",
        "FloorDiv": "floordiv",
        "Mod": "mod",
        "Pow": "pow",
    }
    named |= {
        "BitAnd": "and_",
        "BitOr": "or_",
        "LShift": "lshift",
        "RShift": "rshift",
        "USub": "neg",
        "UAdd": "pos",
    }
    named |= {
        "Lt": "lt",
        "LtE": "le",
        "Gt": "gt",
        "GtE": "ge",
        "Eq": "eq",
        "NotEq": "ne",
        "Is": "is_",
        "IsNot": "is_not",
    }
    return {syntax: getattr(operator, name) for syntax, name in named.items()}
