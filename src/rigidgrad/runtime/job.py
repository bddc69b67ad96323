"""What is compiled, whatever it is and however it is called: a job, its key, its LLVM IR.

Native code is a function of a context and two whole numbers, `function(context, begin, end)`. The
context is 64-bit words: for each argument where it lies and how far its parts are from each other,
then the functions that the code calls by address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rigidgrad.kernels.language import Kernel
from rigidgrad.model.contacts import ConstraintSet
from rigidgrad.model.model import Model
from rigidgrad.program.order import best_order
from rigidgrad.program.program import Program
from rigidgrad.runtime import cache, native
from rigidgrad.runtime.formulation import source_of
from rigidgrad.targets import llvm, llvm_kernel

if TYPE_CHECKING:
    from rigidgrad.targets.riccati_layout import Layout

OPTIMISATION = 1  # LLVM's level
# of a model: how it was described, and what it is called
_NOT_IN_RESULTS = frozenset(
    {"name", "body_names", "visuals", "description", "floating_base", "strict", "problems"}
)


@dataclass(frozen=True)
class Knots:
    """How code runs from knot to knot: inputs that all lanes share, and arrays of a kernel that are
    float64, whatever its type.
    """

    shared: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Job:
    """What is compiled: the Program or the kernel that `source` gives, to run over rows of arrays
    or along `knots`; or the backward pass of a `Layout`. `identity` tells it from others of its
    name, so that a cached one need not be made. Listings show the `owner`.
    """

    name: str
    owner: str = field(compare=False)
    identity: str
    source: Callable[[], Any] = field(repr=False, compare=False)
    packed: bool = False
    dtype: str = "float64"
    width: int = 0  # 0: what the CPU has
    streaming: tuple[int, ...] | None = (
        None  # for results larger than the caches: where in a cache line each begins
    )
    knots: Knots | None = None

    @property
    def lanes(self) -> int:
        return self.width or host_lanes(self.dtype)

    def key(self) -> str:
        """The name of its code on disk: no source is needed for it."""
        return cache.key_of(self, width=self.lanes)

    def made(self) -> Program | Kernel | Layout:
        """The source, as it is rendered for this CPU."""
        source: Program | Kernel | Layout = self.source()
        return ordered(source) if isinstance(source, Program | Kernel) else source

    def render(self, source: Program | Kernel | Layout) -> str:
        """The IR of what was `made`."""
        registers = native.host().registers
        if not isinstance(source, Program | Kernel):
            from rigidgrad.targets import llvm_riccati  # what dynamics alone need not load

            return llvm_riccati.render(source, registers)
        if self.knots is not None:
            from rigidgrad.targets import llvm_sweep

            shared, wide = self.knots.shared, self.knots.wide
            return llvm_sweep.render(source, self.dtype, self.lanes, shared, wide, registers)
        options: dict[str, Any] = {
            "packed": self.packed,
            "streaming": self.streaming,
            "registers": registers,
        }
        if isinstance(source, Program):
            return llvm.render(source, self.dtype, self.lanes, **options)
        return llvm_kernel.render(source, self.dtype, self.lanes, **options)

    def ir(self) -> str:
        return self.render(self.made())


@dataclass(frozen=True)
class RobotFunction:
    """A function of the catalog with its options, in the formulation with the fewest operations."""

    model: Model = field(repr=False)
    name: str
    external: tuple[str, ...] = ()
    frame: str | None = None
    expressed_in: str = "world"
    parameters: tuple[str, ...] = ()
    contacts: ConstraintSet | None = None

    @property
    def options(self) -> dict[str, Any]:
        """All but the model and the name."""
        return {f.name: getattr(self, f.name) for f in fields(self)[2:]}

    def __call__(self) -> Program | Kernel:
        return source_of(self.model, self.name, **self.options)


def function_job(
    model: Model,
    name: str,
    *,
    packed: bool = False,
    dtype: str = "float64",
    width: int = 0,
    streaming: tuple[int, ...] | None = None,
    **options: Any,
) -> Job:
    """The job of a function of a robot; options are those of a `RobotFunction`. Models that are
    equal but for their names have the same.
    """
    function = RobotFunction(model, name, **options)
    identity = cache.text_of(function, model=digest(model))
    return Job(name, model.name, identity, function, packed, dtype, width, streaming)


def ordered(source: Program | Kernel) -> Program | Kernel:
    """With the operations of Programs in an order for this CPU's registers."""
    registers = native.host().registers
    if isinstance(source, Program):
        return best_order(source, registers)
    return source.with_programs(lambda program: best_order(program, registers))


def host_lanes(dtype: str) -> int:
    """How many numbers the CPU's vectors hold."""
    return native.host().vector_bits // (64 if dtype == "float64" else 32)


def digest(model: Model) -> str:
    """A hash of all of a model's numbers and names that results depend on."""
    return hashlib.sha256(described(model).encode()).hexdigest()


def described(model: Model) -> str:
    """These numbers and names."""
    parts = {f.name: getattr(model, f.name) for f in fields(model) if f.name not in _NOT_IN_RESULTS}
    return repr(parts)
