"""Native code with all of its buffers: `function(context, begin, end)` does some of its groups,
such as lanes of a batch or blocks of a trajectory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from rigidgrad.errors import InputError
from rigidgrad.runtime import cache, native
from rigidgrad.runtime.shared import Shared
from rigidgrad.runtime.threads import Crew

_WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_SHORT_WORK = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
Call = tuple[int, int]  # addresses of a function and of its context


class Bound:
    """A native function with a context of 64-bit words; what it reads and writes is `kept`. Along
    knots it makes the `calls` of each knot, `function(context, group, knot)`.
    """

    def __init__(
        self,
        function: int,
        words: Sequence[int],
        count: int,
        kept: object,
        calls: Sequence[Call] = (),
        knots: int = 0,
    ):
        self.function, self.count, self._kept = function, count, kept
        self.calls, self.knots = calls, knots
        self._context = np.array(words, np.int64)
        self.context = self._context.ctypes.data
        self._call, self._short_call = _WORK(function), _SHORT_WORK(function)

    def run(self, crew: Crew | None = None, count: int | None = None) -> None:
        """All groups, or the first few; with a crew on several threads."""
        many = self.count if count is None else count
        if crew is not None and crew.threads > 1 and many > 1:
            crew.run(self.function, self.context, many, 1)
        else:
            self._call(self.context, 0, many)

    def run_short(self, begin: int, end: int) -> None:
        """Some groups, with Python's lock held: getting it back from another thread can take longer
        than short work.
        """
        self._short_call(self.context, begin, end)

    def run_group(self, group: int) -> None:
        self._call(self.context, group, group + 1)


def chain(parts: Sequence[Bound]) -> Bound:
    """One after the other for each group, before the next group begins: its numbers stay in the
    cache, and threads meet once.
    """
    words = [len(parts), 0, *(word for part in parts for word in (part.function, part.context))]
    return Bound(_code().address("chain"), words, min(part.count for part in parts), tuple(parts))


def along(calls: Sequence[Call], knots: int, count: int, kept: object) -> Bound:
    """For each group and each of its knots all calls."""
    words = [len(calls), knots, *(word for call in calls for word in call)]
    return Bound(_code().address("nested"), words, count, kept, calls, knots)


def interleave(sweeps: Sequence[Bound]) -> Bound:
    """Several sweeps in step, knot by knot, so that what they share of a knot is read from far away
    once.
    """
    sizes = {(sweep.knots, sweep.count) for sweep in sweeps}
    if len(sizes) != 1:
        raise InputError(f"sweeps in step differ in (knots, groups): {sorted(sizes)}")
    calls = [call for sweep in sweeps for call in sweep.calls]
    return along(calls, sweeps[0].knots, sweeps[0].count, tuple(sweeps))


# a context has the number of calls and of steps, then functions and contexts in turn
_CALLS = """
define internal void @calls(ptr %context, i64 %a, i64 %b) nounwind {
entry:
  %count = load i64, ptr %context, align 8
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %kn, %work ]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %work, label %done
work:
  %kn = add i64 %k, 1
  %at = shl i64 %kn, 1
  %next = add i64 %at, 1
  %function.at = getelementptr i64, ptr %context, i64 %at
  %own.at = getelementptr i64, ptr %context, i64 %next
  %function = load ptr, ptr %function.at, align 8
  %own = load ptr, ptr %own.at, align 8
  call void %function(ptr %own, i64 %a, i64 %b)
  br label %each
done:
  ret void
}

define void @chain(ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  br label %group
group:
  %g = phi i64 [ %begin, %entry ], [ %gn, %work ]
  %more = icmp slt i64 %g, %end
  br i1 %more, label %work, label %done
work:
  %gn = add i64 %g, 1
  call void @calls(ptr %context, i64 %g, i64 %gn)
  br label %group
done:
  ret void
}

define void @nested(ptr %context, i64 %begin, i64 %end) nounwind {
entry:
  %steps.at = getelementptr i64, ptr %context, i64 1
  %steps = load i64, ptr %steps.at, align 8
  br label %group
group:
  %g = phi i64 [ %begin, %entry ], [ %gn, %next ]
  %more = icmp slt i64 %g, %end
  br i1 %more, label %step, label %done
step:
  %k = phi i64 [ 0, %group ], [ %kn, %work ]
  %left = icmp slt i64 %k, %steps
  br i1 %left, label %work, label %next
work:
  call void @calls(ptr %context, i64 %g, i64 %k)
  %kn = add i64 %k, 1
  br label %step
next:
  %gn = add i64 %g, 1
  br label %group
done:
  ret void
}
"""


_loaded: Shared[native.Loaded] = Shared(forever=True)


def _code() -> native.Loaded:
    return _loaded.get("", _load)


def _load() -> native.Loaded:
    made = cache.fetch(
        cache.key({"groups": ""}),
        lambda: cache.Entry({"function": "groups", "robot": "any"}, native.compile_ir(_CALLS)),
    )
    return native.load_object(made.code)
