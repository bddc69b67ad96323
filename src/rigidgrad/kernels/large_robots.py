"""Functions of robots too large for straight-line code, as kernels that loop over bodies and
multiply blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rigidgrad.algorithms.sparsity import supports
from rigidgrad.kernels import blocks, factor
from rigidgrad.kernels.blocks import Matrix, columns_of
from rigidgrad.kernels.bodies import Bodies
from rigidgrad.kernels.language import Array, Kernel, View
from rigidgrad.model.model import Frame, Model
from rigidgrad.model.pose import Pose


def _begin(
    model: Model, external: tuple[str, ...], last: str | None
) -> tuple[Kernel, Array, Array | None, Array | None, list[tuple[Frame, View]]]:
    k = Kernel()
    q = k.input("q", model.nq)
    v = k.input("v", model.nv) if last else None
    x = k.input(last, model.nv) if last else None
    wrenches = [(model.frame(name), k.input(f"external:{name}", 6).at(0, 6)) for name in external]
    return k, q, v, x, wrenches


def rnea_derivatives(model: Model, external: tuple[str, ...] = ()) -> Kernel:
    k, q, v, a, wrenches = _begin(model, external, "a")
    assert v is not None and a is not None
    n = model.nv
    dq, dv, da = (k.output(name, n, n) for name in ("dq", "dv", "da"))
    bodies = Bodies(k, model)
    bodies.outward(q, v, a, wrenches)
    bodies.gradient(dq, dv, da)
    return k


def crba(model: Model, external: tuple[str, ...] = ()) -> Kernel:
    k, q, *_ = _begin(model, external, None)
    bodies = Bodies(k, model)
    bodies.outward(q, bodies.zero, None)
    bodies.composite(k.output("M", model.nv, model.nv), None)
    return k


def minv(model: Model, external: tuple[str, ...] = ()) -> Kernel:
    k, q, *_ = _begin(model, external, None)
    n, tree = model.nv, supports(model)
    bodies, target = Bodies(k, model), k.output("minv", n, n)
    bodies.outward(q, bodies.zero, None)
    M, W, scaled = (k.scratch(name, n, n) for name in ("M", "W", "-W / D"))
    bodies.composite(M, None)
    factor.factorize(k, tree, M.matrix(n, n), W.matrix(n, n), scaled.matrix(n, n))
    blocks.inverse(k, tree, W.matrix(n, n), scaled.matrix(n, n), Matrix.of(target, n))
    return k


def aba_derivatives(
    model: Model, external: tuple[str, ...] = (), *, dtau: bool = True, factored: bool = False
) -> Kernel:
    k, q, v, tau, wrenches = _begin(model, external, "tau")
    assert v is not None and tau is not None
    n, tree = model.nv, supports(model)
    w = k.output("W", n, n) if factored else k.scratch("W", n, n)
    results = [k.output(name, n, n) for name in (("Z_dq", "Z_dv") if factored else ("dq", "dv"))]
    M, scaled = k.scratch("M", n, n), k.scratch("-W / D", n, n).matrix(n, n)
    bias, rest, a = k.scratch("bias", n), k.scratch("rest", n), k.scratch("a", n)
    bodies, W = Bodies(k, model), w.matrix(n, n)
    bodies.outward(q, v, None, wrenches)
    bodies.composite(M, bias)
    factor.factorize(k, tree, M.matrix(n, n), W, scaled)
    bodies.difference(tau, bias, rest)
    factor.solve(k, tree, W, scaled, rest.matrix(n, 1), a.matrix(n, 1))
    by_q, by_v = k.scratch("x_q", n, n), k.scratch("x_v", n, n)
    bodies.outward(q, v, a, wrenches)
    bodies.gradient(by_q, by_v, None)
    columns = columns_of(tree)
    for x, output in zip((by_q, by_v), results, strict=True):
        z = Matrix.of(output if factored else k.scratch(f"Z_{output.name}", n, n), n)
        blocks.reduce(k, tree, scaled, x.matrix(n, n), z, columns)
        if not factored:
            blocks.expand(k, tree, W, z.whole, Matrix.of(output, n), columns)
    if dtau and not factored:
        blocks.inverse(k, tree, W, scaled, Matrix.of(k.output("dtau", n, n), n))
    return k


def aba_state_derivatives(model: Model, external: tuple[str, ...] = ()) -> Kernel:
    return aba_derivatives(model, external, dtau=False)


def aba_derivatives_factored(model: Model, external: tuple[str, ...] = ()) -> Kernel:
    return aba_derivatives(model, external, factored=True)


def torque_regressor(
    model: Model, external: tuple[str, ...] = (), *, frames: Sequence[Pose]
) -> Kernel:
    """`frames`: on each body, the one in which its parameters are told."""
    k, q, v, a, _ = _begin(model, external, "a")
    assert v is not None and a is not None
    bodies = Bodies(k, model)
    bodies.outward(q, v, a)
    bodies.regressor(k.output("Y", model.nv, 10 * len(model.joints)), frames)
    return k


KERNELS: dict[str, Callable[..., Kernel]] = {
    f.__name__: f
    for f in (
        rnea_derivatives,
        crba,
        minv,
        aba_derivatives,
        aba_state_derivatives,
        aba_derivatives_factored,
        torque_regressor,
    )
}
