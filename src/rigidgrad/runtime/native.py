"""LLVM in one place: text IR to object code for this CPU, and object code to addresses. llvmlite is loaded on first use."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rigidgrad.errors import RigidgradError
from rigidgrad.runtime import emit

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# characters of IR from which on it is compiled in a process of its own: it takes a second or more, and starting one a tenth of that
_LONG = 800_000
_emitted = [0]
_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # ELF, and Mach-O on macOS


@dataclass(frozen=True)
class Host:
    """The CPU at hand, as LLVM names it."""

    triple: str
    cpu: str
    features: str
    vector_bits: int

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 32 if self.vector_bits == 512 or self.triple.startswith(("aarch64", "arm64")) else 16


@cache
def host() -> Host:
    """What code is compiled for: the CPU of this machine with all its features."""
    llvm = _llvm()
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell on every platform; the CPU's name then decides alone
        features = None
    has = features.get if features is not None else lambda name, default=False: default
    bits = 512 if has("avx512f", False) else 256 if has("avx", False) else 128
    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten() if features is not None else "", bits)


def version() -> str:
    """The version of llvmlite, which pins that of LLVM."""
    import llvmlite

    return str(llvmlite.__version__)


def compile_ir(ir: str, *, opt: int = 2, misched: bool = False, passes: bool = False, join: bool = True) -> bytes:
    """Object code for this CPU from text IR: verified, and emitted as it stands, unless `passes` over the IR are asked for.

    What takes long is compiled in a process of its own, so that Ctrl-C stops it. `opt` is the code generator's level, 0 to 3. `misched` lets LLVM reorder instructions; without it they keep the order of the IR. `join` lets it make one block of blocks that follow each other.
    """
    _emitted[0] += 1
    return _emit(ir, opt, misched, "object", passes, join)


def compiled_count() -> int:
    """How often this process compiled something, and did not find it in the cache."""
    return _emitted[0]


def assembly(ir: str, *, opt: int = 2, misched: bool = False, join: bool = True) -> str:
    """The assembly text of what `compile_ir` would emit."""
    return _emit(ir, opt, misched, "assembly", join=join).decode()


class Loaded:
    """Object code in memory, ready to be called. The code lives as long as this object: keep it beside every address taken."""

    def __init__(self, engine: llvm.ExecutionEngine, obj: bytes) -> None:
        self._engine = engine
        self._obj = obj

    def address(self, name: str) -> int:
        """The address of the function `name`."""
        with _lock():
            found = int(self._engine.get_function_address(name))
        if not found:
            raise RigidgradError(f"the compiled code has no function {name!r}")
        return found


def load_object(obj: bytes) -> Loaded:
    """Links object code of `compile_ir` into this process; C, Python and maths functions resolve to those of the process.

    LLVM crashes on damaged object code: what comes from a file must have been verified.
    """
    if not obj.startswith(_MAGIC):
        raise RigidgradError("this is not object code")
    llvm = _llvm()
    with _lock():
        machine = emit.machine(llvm, _triple(), host().cpu, host().features, 2)
        module = llvm.parse_assembly("")
        module.triple = machine.triple
        # llvmlite's memory manager puts code and constants into one block, within reach of the relative addresses of the small code model
        engine = llvm.create_mcjit_compiler(module, machine, use_lmm=True)
        engine.add_object_file(llvm.ObjectFileRef.from_data(obj))
        engine.finalize_object()
    return Loaded(engine, obj)


def symbol(name: str) -> int:
    """The address of a function of this process, such as the C library's `sin`."""
    found = _process_symbols().address_of_symbol(name)
    if not found:
        raise RigidgradError(f"this process has no function {name!r}")
    return int(found)


def _emit(ir: str, opt: int, misched: bool, form: str, passes: bool = False, join: bool = True) -> bytes:
    llvm, triple, cpu, features = _llvm(), _triple(), host().cpu, host().features
    request = emit.Request(ir, triple, cpu, features, opt, misched, form, passes, join)
    try:
        code = emit.emit_apart(llvm, request) if len(ir) > _LONG else None
        if code is None:
            with _lock():
                code = emit.emit(llvm, request)
    except RuntimeError as error:
        raise RigidgradError(f"LLVM does not accept the generated code: {error}") from None
    return code


@cache
def _process_symbols() -> Any:
    """llvmlite, after the process's own symbols were opened to LLVM's search."""
    llvm = _llvm()
    emit.open_process(llvm, _triple(), host().cpu, host().features)
    return llvm


def _triple() -> str:
    # MCJIT loads ELF on Windows, not COFF
    return host().triple + ("-elf" if os.name == "nt" else "")


@cache
def _lock() -> Any:
    """llvmlite's own lock, held while an option is set, code is emitted and the option is restored: options belong to the whole process.

    A fork waits for it, as the child would inherit LLVM half-way through another thread's work.
    """
    lock: Any = getattr(getattr(_llvm().ffi.lib, "_lock", None), "_lock", None)
    if not hasattr(lock, "_at_fork_reinit"):  # nothing promises that llvmlite keeps it there
        lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock._at_fork_reinit)
    return lock


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        llvm.check_jit_execution()
    except OSError as error:
        raise RigidgradError(f"this system does not allow compiled code to be run: {error}. Use engine='numpy'.") from None
    return llvm
