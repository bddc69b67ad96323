"""A Python function in native code: arrays in through the buffer protocol, a kernel's rows
evaluated, True returned if all was as expected.

The general way (`runtime.arrays`) converts, broadcasts and explains; it takes microseconds. This
one only accepts arrays that need none of that: C-contiguous, of the kernel's dtype, all with the
same batch axes, no output overlapping another array. Otherwise it returns False and has done
nothing.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from rigidgrad.runtime import cache, native
from rigidgrad.runtime.shared import Shared

# CPython's Py_buffer on 64-bit machines: buf 0, obj 8, len 16, itemsize 24, readonly 32, ndim 36,
# format 40, shape 48, strides 56, …
_VIEW = 80
# arrays that an entry's buffers hold, at least and at most: each takes 104 bytes of the stack
_ROOM, _MOST_ROOM = (24, 768)
_READ, _WRITE = 0x38 | 0x4, 0x38 | 0x4 | 0x1  # PyBUF_C_CONTIGUOUS | PyBUF_FORMAT (| PyBUF_WRITABLE)
# below this many rows the GIL is kept: releasing it would cost more than the work
_KEEP_GIL = 16

_FUNCTIONS = (
    "PyObject_GetBuffer",
    "PyBuffer_Release",
    "PyBool_FromLong",
    "PyErr_Clear",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)
_LINKED = 6  # functions that the kernel calls by address: their words begin at 8
_PYTHON = 8 + _LINKED  # the word of the first function of Python
_ARRAYS = _PYTHON + len(_FUNCTIONS)  # the word of the first array
_BYTES_HEAD = bytes.__basicsize__ - 1  # where the contents of a bytes object begin


def _ir(room: int) -> str:
    """The entry of functions of up to `room` arrays."""
    return f"""
; self: bytes with words rows, inputs, arrays, format, crew, crew_run, grain, least, the kernel's functions, six of Python;
; then per array the size of a row, its number of axes and the word at which their lengths begin; then these lengths
define ptr @entry(ptr %self, ptr %args, i64 %nargs) {{
entry:
  %views = alloca [{room * _VIEW} x i8], align 16
  %context = alloca [{2 * room + _LINKED} x i64], align 16
  %ends = alloca [{room} x ptr], align 16
  %spec = getelementptr i8, ptr %self, i64 {_BYTES_HEAD}
  %PyObject_GetBuffer.at = getelementptr ptr, ptr %spec, i64 {_PYTHON + 0}
  %PyObject_GetBuffer = load ptr, ptr %PyObject_GetBuffer.at
  %PyBuffer_Release.at = getelementptr ptr, ptr %spec, i64 {_PYTHON + 1}
  %PyBuffer_Release = load ptr, ptr %PyBuffer_Release.at
  %PyBool_FromLong.at = getelementptr ptr, ptr %spec, i64 {_PYTHON + 2}
  %PyBool_FromLong = load ptr, ptr %PyBool_FromLong.at
  %PyErr_Clear.at = getelementptr ptr, ptr %spec, i64 {_PYTHON + 3}
  %PyErr_Clear = load ptr, ptr %PyErr_Clear.at
  %PyEval_SaveThread.at = getelementptr ptr, ptr %spec, i64 {_PYTHON + 4}
  %PyEval_SaveThread = load ptr, ptr %PyEval_SaveThread.at
  %PyEval_RestoreThread.at = getelementptr ptr, ptr %spec, i64 {_PYTHON + 5}
  %PyEval_RestoreThread = load ptr, ptr %PyEval_RestoreThread.at
  %p1 = getelementptr i64, ptr %spec, i64 1
  %inputs = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %spec, i64 2
  %arrays = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %spec, i64 3
  %format = load i64, ptr %p3
  %wanted = trunc i64 %format to i16
  %enough = icmp eq i64 %nargs, %arrays
  br i1 %enough, label %array, label %no

array:
  %a = phi i64 [ 0, %entry ], [ %a.next, %array.ok ]
  %count = phi i64 [ 1, %entry ], [ %count.next, %array.ok ]
  %arg.at = getelementptr ptr, ptr %args, i64 %a
  %arg = load ptr, ptr %arg.at
  %view.offset = mul i64 %a, {_VIEW}
  %view = getelementptr i8, ptr %views, i64 %view.offset
  %is.input = icmp slt i64 %a, %inputs
  %flags = select i1 %is.input, i32 {_READ}, i32 {_WRITE}
  %status = call i32 %PyObject_GetBuffer(ptr %arg, ptr %view, i32 %flags)
  %got = icmp eq i32 %status, 0
  br i1 %got, label %inspect, label %refused

inspect:
  %format.at = getelementptr i8, ptr %view, i64 40
  %text = load ptr, ptr %format.at
  %code = load i16, ptr %text, align 1
  %same.format = icmp eq i16 %code, %wanted
  %ndim.at = getelementptr i8, ptr %view, i64 36
  %ndim32 = load i32, ptr %ndim.at
  %ndim = sext i32 %ndim32 to i64
  %spec.place = mul i64 %a, 3
  %spec.index = add i64 %spec.place, {_ARRAYS}
  %own = getelementptr i64, ptr %spec, i64 %spec.index
  %size = load i64, ptr %own
  %dims.at = getelementptr i64, ptr %own, i64 1
  %dims = load i64, ptr %dims.at
  %lengths.at = getelementptr i64, ptr %own, i64 2
  %lengths = load i64, ptr %lengths.at
  %expected = getelementptr i64, ptr %spec, i64 %lengths
  %leading = sub i64 %ndim, %dims
  %deep = icmp sge i64 %leading, 0
  %plausible = and i1 %same.format, %deep
  br i1 %plausible, label %trailing, label %mismatch

trailing:
  %shape.at = getelementptr i8, ptr %view, i64 48
  %shape = load ptr, ptr %shape.at
  %last = getelementptr i64, ptr %shape, i64 %leading
  br label %row.axis
row.axis:
  %d = phi i64 [ 0, %trailing ], [ %d.next, %row.axis.ok ]
  %more.row.axes = icmp slt i64 %d, %dims
  br i1 %more.row.axes, label %row.axis.check, label %trailing.done
row.axis.check:
  %m.at = getelementptr i64, ptr %last, i64 %d
  %m = load i64, ptr %m.at
  %m.expected.at = getelementptr i64, ptr %expected, i64 %d
  %m.expected = load i64, ptr %m.expected.at
  %same.m = icmp eq i64 %m, %m.expected
  br i1 %same.m, label %row.axis.ok, label %mismatch
row.axis.ok:
  %d.next = add i64 %d, 1
  br label %row.axis

trailing.done:
  %is.first = icmp eq i64 %a, 0
  %lead0.at = getelementptr i8, ptr %views, i64 36
  %ndim0.32 = load i32, ptr %lead0.at
  %ndim0 = sext i32 %ndim0.32 to i64
  %dims0.at = getelementptr i64, ptr %spec, i64 {_ARRAYS + 1}
  %dims0 = load i64, ptr %dims0.at
  %leading0 = sub i64 %ndim0, %dims0
  %same.leading = icmp eq i64 %leading, %leading0
  %shape0.at = getelementptr i8, ptr %views, i64 48
  %shape0 = load ptr, ptr %shape0.at
  br i1 %same.leading, label %axis, label %mismatch

axis:
  %k = phi i64 [ 0, %trailing.done ], [ %k.next, %axis.ok ]
  %rows = phi i64 [ 1, %trailing.done ], [ %rows.next, %axis.ok ]
  %more.axes = icmp slt i64 %k, %leading
  br i1 %more.axes, label %axis.check, label %array.fits
axis.check:
  %n.at = getelementptr i64, ptr %shape, i64 %k
  %n = load i64, ptr %n.at
  %n0.at = getelementptr i64, ptr %shape0, i64 %k
  %n0 = load i64, ptr %n0.at
  %same.n = icmp eq i64 %n, %n0
  br i1 %same.n, label %axis.ok, label %mismatch
axis.ok:
  %k.next = add i64 %k, 1
  %rows.next = mul i64 %rows, %n
  br label %axis

array.fits:
  %buf = load ptr, ptr %view
  %len.at = getelementptr i8, ptr %view, i64 16
  %len = load i64, ptr %len.at
  %end = getelementptr i8, ptr %buf, i64 %len
  %end.at = getelementptr ptr, ptr %ends, i64 %a
  store ptr %end, ptr %end.at
  %word = mul i64 %a, 2
  %word.at = getelementptr i64, ptr %context, i64 %word
  store ptr %buf, ptr %word.at
  %stride.at = getelementptr i64, ptr %word.at, i64 1
  store i64 %size, ptr %stride.at
  %count.next = select i1 %is.first, i64 %rows, i64 %count
  br i1 %is.input, label %array.ok, label %overlap

overlap:
  %j = phi i64 [ 0, %array.fits ], [ %j.next, %overlap.next ]
  %more.others = icmp slt i64 %j, %a
  br i1 %more.others, label %overlap.check, label %array.ok
overlap.check:
  %j.word = mul i64 %j, 2
  %j.at = getelementptr i64, ptr %context, i64 %j.word
  %j.buf = load ptr, ptr %j.at
  %j.end.at = getelementptr ptr, ptr %ends, i64 %j
  %j.end = load ptr, ptr %j.end.at
  %starts.before = icmp ult ptr %buf, %j.end
  %ends.after = icmp ult ptr %j.buf, %end
  %overlaps = and i1 %starts.before, %ends.after
  br i1 %overlaps, label %mismatch, label %overlap.next
overlap.next:
  %j.next = add i64 %j, 1
  br label %overlap

array.ok:
  %a.next = add i64 %a, 1
  %more = icmp slt i64 %a.next, %arrays
  br i1 %more, label %array, label %work

work:
  %function = load ptr, ptr %spec
  %last.word = mul i64 %arrays, 2
  %linked.to = getelementptr i64, ptr %context, i64 %last.word
  %linked.from = getelementptr i64, ptr %spec, i64 8
  %linked = load <{_LINKED} x i64>, ptr %linked.from, align 8
  store <{_LINKED} x i64> %linked, ptr %linked.to, align 8
  %many = icmp sge i64 %count.next, {_KEEP_GIL}
  br i1 %many, label %released, label %kept
kept:
  call void %function(ptr %context, i64 0, i64 %count.next)
  br label %finished
released:
  %state = call ptr %PyEval_SaveThread()
  %crew.at = getelementptr i64, ptr %spec, i64 4
  %crew = load ptr, ptr %crew.at
  %least.at = getelementptr i64, ptr %spec, i64 7
  %least = load i64, ptr %least.at
  %has.crew = icmp ne ptr %crew, null
  %worth = icmp sge i64 %count.next, %least
  %share = and i1 %has.crew, %worth
  br i1 %share, label %together, label %alone
together:
  %run.at = getelementptr i64, ptr %spec, i64 5
  %run = load ptr, ptr %run.at
  %grain.at = getelementptr i64, ptr %spec, i64 6
  %grain = load i64, ptr %grain.at
  call void %run(ptr %crew, ptr %function, ptr %context, i64 %count.next, i64 %grain)
  br label %restore
alone:
  call void %function(ptr %context, i64 0, i64 %count.next)
  br label %restore
restore:
  call void %PyEval_RestoreThread(ptr %state)
  br label %finished

finished:
  br label %release
mismatch:
  %taken = add i64 %a, 1
  br label %release
refused:
  call void %PyErr_Clear()
  br label %release

release:
  %held = phi i64 [ %arrays, %finished ], [ %taken, %mismatch ], [ %a, %refused ]
  %answer = phi i64 [ 1, %finished ], [ 0, %mismatch ], [ 0, %refused ]
  br label %release.ask
release.ask:
  %r = phi i64 [ 0, %release ], [ %r.next, %release.one ]
  %more.views = icmp slt i64 %r, %held
  br i1 %more.views, label %release.one, label %done
release.one:
  %r.offset = mul i64 %r, {_VIEW}
  %r.view = getelementptr i8, ptr %views, i64 %r.offset
  call void %PyBuffer_Release(ptr %r.view)
  %r.next = add i64 %r, 1
  br label %release.ask
done:
  %result = call ptr %PyBool_FromLong(i64 %answer)
  ret ptr %result
no:
  %false = call ptr %PyBool_FromLong(i64 0)
  ret ptr %false
}}
"""


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_definitions: Shared[tuple[_MethodDef, native.Loaded]] = Shared(forever=True)


def _definition(room: int) -> tuple[_MethodDef, native.Loaded]:
    """How Python calls the entry of functions of up to `room` arrays, and its code; one for all of
    them.
    """
    ir = _ir(room)
    entry = cache.fetch(
        cache.key({"entry": ir}),
        lambda: cache.Entry({"function": "entry", "robot": ""}, native.compile_ir(ir)),
    )
    loaded = native.load_object(entry.code)
    definition = _MethodDef(b"rows", loaded.address("entry"), 0x80, None)  # METH_FASTCALL
    # CPython reads a definition and calls its code until the last function is gone, which may be
    # after all modules are: they are never given back
    for kept in (definition, loaded):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    return definition, loaded


class Team(NamedTuple):
    """The threads that an entry may use: addresses of a crew and of `crew_run`, rows in a chunk,
    and from how many rows on they pay.
    """

    crew: int
    run: int
    grain: int
    least: int


def available() -> bool:
    """Whether this interpreter is one whose buffers we know: CPython on a 64-bit machine."""
    return sys.implementation.name == "cpython" and struct.calcsize("P") == 8


def make_entry(
    rows: int,
    inputs: int,
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    linked: Sequence[int],
    team: Team | None,
) -> Any:
    """A Python function of `inputs` input and further output arrays. `rows` is the kernel's
    address; keep its code alive beside this.
    """
    room = _ROOM
    while room < len(shapes):
        room *= 2
    if room > _MOST_ROOM or not available():
        return _decline
    words = [
        rows,
        inputs,
        len(shapes),
        ord("d" if dtype == "float64" else "f"),
        *(team or (0, 0, 0, 0)),
        *linked,
    ]
    words += [
        ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
        for name in _FUNCTIONS
    ]
    begin = _ARRAYS + 3 * len(shapes)
    for shape in shapes:
        words += [math.prod(shape), len(shape), begin]
        begin += len(shape)
    words += [n for shape in shapes for n in shape]
    spec = struct.pack(f"{len(words)}q", *words)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = (
        ctypes.py_object,
        (ctypes.POINTER(_MethodDef), ctypes.py_object, ctypes.py_object),
    )
    definition, _ = _definitions.get(str(room), lambda: _definition(room))
    return new(ctypes.byref(definition), spec, None)


def _decline(*_: Any) -> bool:
    return False
