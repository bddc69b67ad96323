"""Kernels as functions that XLA calls by itself, on the CPU and without Python: handlers of its
foreign function interface, version 0.3.

A handler is `XLA_FFI_Error* f(XLA_FFI_CallFrame*)`. Its code is written for one kernel, with
addresses and sizes as constants, so it is not cached on disk. The structures are those of
`xla/ffi/api/c_api.h` on 64-bit machines.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import math
from typing import Any

from rigidgrad.runtime import native
from rigidgrad.runtime.code import Code
from rigidgrad.runtime.job import Job

_VERSION = 3  # the newest minor version that this was written for
# where things are in XLA_FFI_CallFrame, XLA_FFI_Buffer, XLA_FFI_Api and XLA_FFI_Metadata
_EXTENSION, _API, _STAGE, _ARGS, _RETS = 8, 16, 32, 72, 112
_DATA, _RANK, _DIMS = 24, 32, 40
_API_MINOR = 36
_METADATA, _MAJOR, _MINOR, _TRAITS, _STATE_TYPE = 24, 24, 28, 32, 40
_IS_METADATA, _EXECUTE = 1, 3


_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_targets: dict[str, tuple[Any, ...]] = {}  # XLA keeps the addresses for ever, so their code stays


def registered(job: Job, alone: bool = True) -> str:
    """The name under which XLA knows the kernel of a job. Where it is not compiled `alone` for one
    state, one runs as a batch does.
    """
    name = f"rigidgrad_{job.key()}"
    if name not in _targets:
        ffi = importlib.import_module("jax").ffi
        batch = Code.of(job)
        single = Code.of(dataclasses.replace(job, width=1)) if alone else batch
        loaded = handler(batch, single)
        address = _HANDLER(loaded.address("handler"))
        ffi.register_ffi_target(name, ffi.pycapsule(address), platform="cpu")
        _targets[name] = (batch, single, loaded, address)
    return name


def handler(batch: Code, single: Code) -> native.Loaded:
    """Compiled code with the function "handler" for a kernel with lanes, used for several rows, and
    one without, used for one. Keep all three alive.
    """
    return native.load_object(native.compile_ir(_ir(batch, single)))


def _ir(batch: Code, single: Code) -> str:
    sizes = [math.prod(shape) for shape in (*batch.inputs.values(), *batch.outputs.values())]
    inputs, arrays = len(batch.inputs), len(sizes)
    dims = len(next(iter(batch.outputs.values())))
    lines = []
    for k, size in enumerate(sizes):
        owner, place = ("args", k) if k < inputs else ("rets", k - inputs)
        lines += [
            f"  %at{k} = getelementptr ptr, ptr %{owner}, i64 {place}",
            f"  %buffer{k} = load ptr, ptr %at{k}",
            f"  %data.at{k} = getelementptr i8, ptr %buffer{k}, i64 {_DATA}",
            f"  %data{k} = load ptr, ptr %data.at{k}",
            f"  %word{k} = getelementptr i64, ptr %context, i64 {2 * k}",
            f"  store ptr %data{k}, ptr %word{k}",
            f"  %size{k} = getelementptr i64, ptr %context, i64 {2 * k + 1}",
            f"  store i64 {size}, ptr %size{k}",
        ]
    for k, address in enumerate(batch.linked):
        lines += [
            f"  %linked{k} = getelementptr i64, ptr %context, i64 {2 * arrays + k}",
            f"  store i64 {address}, ptr %linked{k}",
        ]
    return f"""
define ptr @handler(ptr %frame) {{
entry:
  %context = alloca [{2 * arrays + len(batch.linked)} x i64], align 16
  %extension.at = getelementptr i8, ptr %frame, i64 {_EXTENSION}
  %extension = load ptr, ptr %extension.at
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %call, label %extended

extended:
  %kind.at = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kind.at
  %asked = icmp eq i32 %kind, {_IS_METADATA}
  br i1 %asked, label %describe, label %call

describe:
  %metadata.at = getelementptr i8, ptr %extension, i64 {_METADATA}
  %metadata = load ptr, ptr %metadata.at
  %api.at = getelementptr i8, ptr %frame, i64 {_API}
  %api = load ptr, ptr %api.at
  %theirs.at = getelementptr i8, ptr %api, i64 {_API_MINOR}
  %theirs = load i32, ptr %theirs.at
  %older = icmp slt i32 %theirs, {_VERSION}
  %minor = select i1 %older, i32 %theirs, i32 {_VERSION}
  %major.to = getelementptr i8, ptr %metadata, i64 {_MAJOR}
  store i32 0, ptr %major.to
  %minor.to = getelementptr i8, ptr %metadata, i64 {_MINOR}
  store i32 %minor, ptr %minor.to
  %traits.to = getelementptr i8, ptr %metadata, i64 {_TRAITS}
  store i32 0, ptr %traits.to
  %metadata.size = load i64, ptr %metadata
  %has.state = icmp ugt i64 %metadata.size, {_STATE_TYPE}
  br i1 %has.state, label %stateless, label %done
stateless:
  %state.to = getelementptr i8, ptr %metadata, i64 {_STATE_TYPE}
  store i64 0, ptr %state.to
  br label %done

call:
  %stage.at = getelementptr i8, ptr %frame, i64 {_STAGE}
  %stage = load i32, ptr %stage.at
  %now = icmp eq i32 %stage, {_EXECUTE}
  br i1 %now, label %arrays, label %done

arrays:
  %args.at = getelementptr i8, ptr %frame, i64 {_ARGS}
  %args = load ptr, ptr %args.at
  %rets.at = getelementptr i8, ptr %frame, i64 {_RETS}
  %rets = load ptr, ptr %rets.at
{chr(10).join(lines)}
  %rank.at = getelementptr i8, ptr %buffer{inputs}, i64 {_RANK}
  %rank = load i64, ptr %rank.at
  %dims.at = getelementptr i8, ptr %buffer{inputs}, i64 {_DIMS}
  %dims = load ptr, ptr %dims.at
  %leading = sub i64 %rank, {dims}
  br label %axis

axis:
  %k = phi i64 [ 0, %arrays ], [ %k.next, %axis.next ]
  %count = phi i64 [ 1, %arrays ], [ %count.next, %axis.next ]
  %more = icmp slt i64 %k, %leading
  br i1 %more, label %axis.next, label %run
axis.next:
  %n.at = getelementptr i64, ptr %dims, i64 %k
  %n = load i64, ptr %n.at
  %count.next = mul i64 %count, %n
  %k.next = add i64 %k, 1
  br label %axis

run:
  %alone = icmp eq i64 %count, 1
  %address = select i1 %alone, i64 {single.address}, i64 {batch.address}
  %rows = inttoptr i64 %address to ptr
  call void %rows(ptr %context, i64 0, i64 %count)
  br label %done

done:
  ret ptr null
}}
"""
