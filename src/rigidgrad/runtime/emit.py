"""LLVM's code generator, called the same way in this process and, as a script, in one of its own.

LLVM cannot be stopped while it compiles, and holds a lock of the process; a process can be. The
script is given the folder of llvmlite, reads a request from its standard input and writes the code
to its standard output. So this file imports nothing of rigidgrad.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

_DONE, _REFUSED = b"+", b"-"  # the first byte of an answer; then the code, or what LLVM says


class Request(NamedTuple):
    """Text IR, what it is compiled for and how; `form` is "object" or "assembly"."""

    ir: str
    triple: str
    cpu: str
    features: str
    opt: int
    misched: bool
    form: str
    passes: bool = False  # over the IR, before code is emitted
    join: bool = True  # blocks that follow each other


def machine(llvm: Any, triple: str, cpu: str, features: str, opt: int) -> Any:
    """A target machine: small code model, so that constants are one relative address away. One is
    made for each use, as an engine owns its own.
    """
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small", jit=True
    )


def emit(llvm: Any, request: Request) -> bytes:
    """The code; a RuntimeError if LLVM does not accept the IR. LLVM's options belong to the whole
    process, so only one thread may be in here.
    """
    # a context of its own: constants and types go with it, instead of staying in the process for
    # ever
    context = llvm.create_context()
    generator = machine(llvm, request.triple, request.cpu, request.features, request.opt)
    with llvm.parse_assembly(request.ir, context) as module:
        module.triple = generator.triple
        module.data_layout = str(generator.target_data)
        module.verify()
        _check_symbols(llvm, module, request)
        if request.passes:
            _optimise(llvm, module, generator)
        try:
            _set_options(llvm, misched=request.misched, join=request.join)
            if request.opt == 0:
                # its fast selection encodes loads into the upper 16 of 32 vector registers wrongly
                llvm.set_option("rigidgrad", "-fast-isel=false")
            if request.form == "assembly":
                return bytes(generator.emit_assembly(module).encode())
            return bytes(generator.emit_object(module))
        finally:
            _set_options(llvm, misched=True, join=True)  # as LLVM has them by itself


def _set_options(llvm: Any, *, misched: bool, join: bool) -> None:
    for option, value in (("enable-misched", misched), ("disable-cgp", not join)):
        llvm.set_option("rigidgrad", f"-{option}={'true' if value else 'false'}")


def _optimise(llvm: Any, module: Any, generator: Any) -> None:
    """Variables into registers, loops rotated and vectorised, what is computed twice computed
    once.
    """
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(generator, options)
    builder.getModulePassManager().run(module, builder)


def _check_symbols(llvm: Any, module: Any, request: Request) -> None:
    """Raises for a function that the process lacks; MCJIT would end the process."""
    declared = [
        f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")
    ]
    if declared:
        open_process(llvm, request.triple, request.cpu, request.features)
        missing = [name for name in declared if not llvm.address_of_symbol(name)]
        if missing:
            raise RuntimeError(
                f"it calls functions that this process does not have: {', '.join(missing)}"
            )


def open_process(llvm: Any, triple: str, cpu: str, features: str) -> None:
    """Creating an engine opens the process's own symbols to LLVM's search."""
    llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), machine(llvm, triple, cpu, features, 0), use_lmm=True
    )


def emit_apart(llvm: Any, request: Request) -> bytes | None:
    """The code, by a process of its own, which ends at once if this thread is interrupted; None
    where no such process can be had.

    A RuntimeError if LLVM does not accept the IR.
    """
    # the executable of a program that embeds Python, or is frozen, would start that program once
    # more
    if getattr(sys, "frozen", False) or not os.path.basename(
        sys.executable or ""
    ).lower().startswith("python"):
        return None
    packages = os.path.dirname(os.path.dirname(os.path.dirname(llvm.__file__)))
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), packages, str(os.getpid())]
    try:
        # a session of its own: Ctrl-C is for this process, which decides
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        answer, _ = process.communicate(json.dumps(request).encode())
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode != 0 or answer[:1] not in (_DONE, _REFUSED):
        return None
    if answer[:1] == _REFUSED:
        raise RuntimeError(answer[1:].decode())
    return answer[1:]


def _end_with(parent: int) -> None:
    """Ends this process once its parent is gone: killed, that one can no longer stop us, and nobody
    waits for the code.
    """
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _main() -> None:
    # on Windows, the parent of a virtual environment's Python is the launcher, and it stays
    # somebody's number when it ends
    if os.name != "nt":
        threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    sys.path.append(sys.argv[1])
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    request = Request(*json.loads(sys.stdin.buffer.read()))
    try:
        answer = _DONE + emit(llvm, request)
    except RuntimeError as error:
        answer = _REFUSED + str(error).encode()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
