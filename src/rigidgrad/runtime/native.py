"""LLVM in one place: text IR to object code for this CPU, and object code to addresses. llvmlite is
loaded on first use.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from rigidgrad.errors import InputError, RigidgradError
from rigidgrad.runtime import emit

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# characters of IR from which on it is compiled in a process of its own: it takes a second or more,
# and starting one a tenth of that
_LONG = 800_000
_emitted = [0]
# what LLVM itself calls: where a CPU has no fused multiply-add, to copy and fill memory, and on
# Windows to touch the pages of a large frame one after the other
# what LLVM may call of its own accord: the type of the result and those of the arguments
_LIBRARY = {
    "fma": ("double", "double", "double", "double"),
    "fmaf": ("float", "float", "float", "float"),
    "memcpy": ("ptr", "ptr", "ptr", "i64"),
    "memmove": ("ptr", "ptr", "ptr", "i64"),
    "memset": ("ptr", "ptr", "i32", "i64"),
}
_LINK = "rigidgrad.library"  # the function that takes their addresses
_LIBRARY_WINDOWS = ("__chkstk",)
_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe")  # ELF, and Mach-O on macOS


@dataclass(frozen=True)
class Host:
    """The CPU at hand, as LLVM names it."""

    triple: str
    cpu: str
    features: str
    vector_bits: int

    @property
    def is_arm(self) -> bool:
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def fused(self) -> bool:
        """Whether a multiply-add is an instruction."""
        return self.is_arm or "+fma" in self.features.split(",")

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 32 if self.vector_bits == 512 or self.is_arm else 16


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
    return Host(
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        features.flatten() if features is not None else "",
        bits,
    )


def version() -> str:
    """The version of llvmlite, which pins that of LLVM."""
    import llvmlite

    return str(llvmlite.__version__)


def compile_ir(
    ir: str, *, opt: int = 2, misched: bool = False, passes: bool = False, join: bool = True
) -> bytes:
    """Object code for this CPU from text IR: verified, and emitted as it stands, unless `passes`
    over the IR are asked for.

    What takes long is compiled in a process of its own, so that Ctrl-C stops it. `opt` is the code
    generator's level, 0 to 3. `misched` lets LLVM reorder instructions; without it they keep the
    order of the IR. `join` lets it make one block of blocks that follow each other.
    """
    _emitted[0] += 1
    level = opt if passes else min(opt, highest_level())  # loops are there to run long
    return _emit(ir, level, misched, "object", passes, join)


def highest_level() -> int:
    """The level of the code generator above which no kernel is compiled. RIGIDGRAD_LLVM_LEVEL
    lowers it: 0 compiles sooner, code that is slower and gives the same bits.
    """
    chosen = os.environ.get("RIGIDGRAD_LLVM_LEVEL", "").strip() or "3"
    if chosen not in ("0", "1", "2", "3"):
        raise InputError(f"RIGIDGRAD_LLVM_LEVEL is 0, 1, 2 or 3, not {chosen!r}")
    return int(chosen)


def compiled_count() -> int:
    """How often this process compiled something, and did not find it in the cache."""
    return _emitted[0]


def assembly(ir: str, *, opt: int = 2, misched: bool = False, join: bool = True) -> str:
    """The assembly text of what `compile_ir` would emit."""
    return _emit(ir, min(opt, highest_level()), misched, "assembly", join=join).decode()


class Loaded:
    """Object code in memory, ready to be called. The code lives as long as this object: keep it
    beside every address taken.
    """

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
    """Links object code of `compile_ir` into this process; C, Python and maths functions resolve to
    those of the process.

    LLVM crashes on damaged object code: what comes from a file must have been verified.
    """
    if not obj.startswith(_MAGIC):
        raise RigidgradError("this is not object code")
    if missing := missing_symbols():
        raise RigidgradError(
            f"this process lacks functions that compiled code calls: {', '.join(missing)}. Use"
            " engine='numpy'."
        )
    llvm = _llvm()
    with _lock():
        machine = emit.machine(llvm, _triple(), host().cpu, host().features, 2)
        module = llvm.parse_assembly("")
        module.triple = machine.triple
        # llvmlite's memory manager puts code and constants into one block, within reach of the
        # relative addresses of the small code model; but on x86 it has no room for the jumps to
        # functions of the process, and ends that. So code has jumps of its own, but for Windows'
        whole = host().is_arm or not _calls_windows(obj)
        engine = llvm.create_mcjit_compiler(module, machine, use_lmm=whole)
        engine.add_object_file(llvm.ObjectFileRef.from_data(obj))
        engine.finalize_object()
        if not host().is_arm:
            link = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address(_LINK))
            link(ctypes.addressof(_library_addresses()))
    return Loaded(engine, obj)


def library() -> tuple[str, ...]:
    """Functions that LLVM may call of its own accord, on this system."""
    return (*_LIBRARY, *(_LIBRARY_WINDOWS if os.name == "nt" else ()))


def _calls_windows(obj: bytes) -> bool:
    """Whether the names in object code have a function that Windows' code calls in its own way."""
    return any(b"\0" + name.encode() + b"\0" in obj for name in _LIBRARY_WINDOWS)


def _jumps() -> str:
    """IR of the library's functions, as jumps to addresses that `load_object` writes down: LLVM's
    calls then stay within the object.
    """
    lines = [f"@{_LINK}.to = internal global [{len(_LIBRARY)} x ptr] zeroinitializer"]
    body = []
    for k, (name, (result, *takes)) in enumerate(_LIBRARY.items()):
        place = f"getelementptr ([{len(_LIBRARY)} x ptr], ptr @{_LINK}.to, i64 0, i64 {k})"
        names = ", ".join(f"{kind} %a{i}" for i, kind in enumerate(takes))
        lines += [
            f"define {result} @{name}({names}) noinline nobuiltin {{",
            f"  %to = load ptr, ptr {place}",
            f"  %r = tail call {result} %to({names})",
            f"  ret {result} %r",
            "}",
        ]
        body += [
            f"  %p{k} = getelementptr ptr, ptr %from, i64 {k}",
            f"  %a{k} = load ptr, ptr %p{k}",
            f"  store ptr %a{k}, ptr {place}",
        ]
    return "\n".join([*lines, f"define void @{_LINK}(ptr %from) {{", *body, "  ret void", "}", ""])


@cache
def _library_addresses() -> Any:
    return (ctypes.c_void_p * len(_LIBRARY))(*(symbol(name) for name in _LIBRARY))


@cache
def missing_symbols() -> tuple[str, ...]:
    """Those of them that this process does not have; MCJIT would end the process."""
    llvm = _process_symbols()
    return tuple(name for name in library() if not llvm.address_of_symbol(name))


def symbol(name: str) -> int:
    """The address of a function of this process, such as the C library's `sin`."""
    found = _process_symbols().address_of_symbol(name)
    if not found:
        raise RigidgradError(f"this process has no function {name!r}")
    return int(found)


def _emit(
    ir: str, opt: int, misched: bool, form: str, passes: bool = False, join: bool = True
) -> bytes:
    llvm, triple, cpu, features = _llvm(), _triple(), host().cpu, host().features
    if form == "object" and not host().is_arm:
        ir = f"{ir}\n{_jumps()}"
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
    """llvmlite's own lock, held while an option is set, code is emitted and the option is restored:
    options belong to the whole process.

    A fork waits for it, as the child would inherit LLVM half-way through another thread's work.
    """
    lock: Any = getattr(getattr(_llvm().ffi.lib, "_lock", None), "_lock", None)
    if not hasattr(lock, "_at_fork_reinit"):  # nothing promises that llvmlite keeps it there
        lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock._at_fork_reinit
        )
    return lock


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        llvm.check_jit_execution()
    except OSError as error:
        raise RigidgradError(
            f"this system does not allow compiled code to be run: {error}. Use engine='numpy'."
        ) from None
    return llvm
