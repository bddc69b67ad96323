"""What runs when a function of a robot is called: which formulation, in which frames, as what code,
and what it was compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from rigidgrad.algorithms import catalog
from rigidgrad.algorithms.fast.gauge import Gauge, own_frames
from rigidgrad.kernels import structure
from rigidgrad.kernels.language import Call, Kernel
from rigidgrad.model.model import Model
from rigidgrad.program.program import Program
from rigidgrad.runtime import formulation
from rigidgrad.runtime.job import Job, RobotFunction, ordered

Frames = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Compared:
    """A formulation that was recorded to be compared: the operations are those of one state, before
    they are put into an order for registers.
    """

    formulation: str
    frames: Frames
    counts: Mapping[str, int]

    def __str__(self) -> str:
        return (
            f"{self.counts['instructions']:,} instructions: {self.formulation},"
            f" {_frames_text(self.frames)}"
        )


@dataclass(frozen=True)
class Explanation:
    """What runs: print it, or read its fields.

    `formulation`: the algorithm, as a name under `rigidgrad.algorithms`. `frames`: {body: bodies
    whose quantities are written in its frame}; if `canonical`, the frames of an equivalent model
    with fewer numbers. `code`: what it is recorded as. `counts`: operations of one state, as in
    `robot.compile(…).counts`; the NumPy engine does not count. `width`: states evaluated at once.
    `compared`: what was recorded to choose, the best first; `lost`: all but that.
    """

    function: str
    robot: str
    engine: str
    formulation: str
    frames: Frames
    canonical: bool
    code: str
    counts: Mapping[str, int]
    dtype: str
    width: int
    compared: tuple[Compared, ...] = ()

    @property
    def lost(self) -> tuple[Compared, ...]:
        return self.compared[1:]

    def __str__(self) -> str:
        rows = [("formulation", self.formulation), ("frames", _frames_text(self.frames))]
        if self.canonical:
            rows.append(("model", "an equivalent one with fewer numbers"))
        rows.append(("code", self.code))
        if self.counts:
            counts = self.counts
            rows.append(
                (
                    "counts",
                    (
                        f"{counts['flops']:,} flops, {counts['instructions']:,} instructions,"
                        f" {counts['live']:,} values alive at once"
                    ),
                )
            )
            rows.append(("width", f"{self.width} states at once, {self.dtype}"))
        if self.lost:
            rows += [("won" if k == 0 else "lost", str(c)) for k, c in enumerate(self.compared)]
        return "\n".join(
            [f"{self.function} of {self.robot!r}", *(f"{key:<13}{value}" for key, value in rows)]
        )

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        compared = [vars(c) for c in self.compared]
        return {**vars(self), "compared": compared, "lost": compared[1:]}


def explain(job: Job) -> Explanation:
    """What the compiled engine runs for a function of a robot. It is recorded for that, not
    compiled.
    """
    function = cast(RobotFunction, job.source)
    model = function.model
    chosen = formulation.chosen_source(model, function.name, **function.options)
    return Explanation(
        function=job.name,
        robot=job.owner,
        engine="lanes",
        formulation=_name(chosen.formulation),
        frames=_frames(model, chosen.gauge),
        canonical=not function.parameters and formulation.has_canonical_model(job.name),
        code=_code(chosen.source),
        counts=dict(structure.counts(ordered(chosen.source))),
        dtype=job.dtype,
        width=job.lanes,
        compared=tuple(
            Compared(_name(c.formulation), _frames(model, c.gauge), dict(c.counted()))
            for c in chosen.compared
        ),
    )


def explain_reference(job: Job) -> Explanation:
    """What the NumPy engine runs: the function of the catalog, on columns with one entry per
    state.
    """
    model, evaluate = cast(RobotFunction, job.source).model, catalog.FUNCTIONS[job.name].evaluate
    code = (
        "plain Python on NumPy columns with one entry per state; nothing is recorded, compared or"
        " compiled"
    )
    return Explanation(
        job.name,
        job.owner,
        "numpy",
        _name(evaluate),
        _frames(model, own_frames(model)),
        False,
        code,
        {},
        job.dtype,
        1,
    )


def _name(function: formulation.Formulation) -> str:
    return f"{function.__module__}.{function.__name__}".removeprefix("rigidgrad.").removeprefix(
        "algorithms."
    )


def _frames(model: Model, gauge: Gauge) -> Frames:
    found: dict[str, list[str]] = {}
    for name, center in zip(model.body_names, gauge, strict=True):
        found.setdefault(model.body_names[center], []).append(name)
    return {center: tuple(bodies) for center, bodies in found.items()}


def _code(source: Program | Kernel) -> str:
    if isinstance(source, Program):
        return "straight-line code"
    calls = [isinstance(step, Call) for step, _ in structure.steps(source.body)]
    return (
        f"a kernel: {sum(calls)} calls of straight-line code, {len(calls) - sum(calls)} products of"
        " matrices in tiles"
    )


def _frames_text(frames: Frames) -> str:
    shared = [
        f"{' + '.join(bodies)} in that of {center}"
        for center, bodies in frames.items()
        if len(bodies) > 1
    ]
    return ", ".join([*shared, "all others in their own"]) if shared else "each body in its own"
