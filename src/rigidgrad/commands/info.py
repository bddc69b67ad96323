"""`rigidgrad info ROBOT`: a robot as a tree and a table, what its functions cost, and which are
compiled; or how one of them is computed.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import TYPE_CHECKING, Any

from rigidgrad.commands.terminal import add_output, add_robot, load_robot, progress, show, table

if TYPE_CHECKING:
    from rigidgrad.model.description import JointDescription
    from rigidgrad.model.model import Model

FUNCTIONS = {
    "rnea": "inverse dynamics",
    "aba": "forward dynamics",
    "crba": "mass matrix",
    "minv": "its inverse",
    "rnea_derivatives": "gradient of inverse dynamics",
    "aba_derivatives": "gradient of forward dynamics",
}
# what is shown, and the kinds of operations that it adds up
KINDS = {
    "flops": ("flops",),
    "additions": ("add", "sub"),
    "products": ("mul",),
    "fused": ("fma", "fms", "fnma", "fnms"),
    "quotients": ("div",),
    "sines": ("sin", "cos"),
}
DTYPES = ("float64", "float32")


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "info",
        help="show a robot: its tree, masses, limits, operations",
        description=(
            "Shows a robot as a tree and a table, the operations that its functions take, and which"
            " of them are compiled."
        ),
    )
    add_robot(parser)
    parser.add_argument(
        "--explain",
        metavar="FUNCTION",
        help="show instead how a function, aba or jacobian:FRAME, is computed, and what lost",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    robot = load_robot(arguments)
    if arguments.explain:
        function, _, frame = arguments.explain.partition(":")
        explained = robot.explain(function, frame=frame or None)
        show(arguments, explained.as_dict(), str(explained))
        return
    functions = costs(robot.model, arguments)
    rows = [("function", "", *KINDS, "compiled")]
    for name, f in functions.items():
        numbers = (f"{f[k]:,}" for k in KINDS)
        rows.append((name, FUNCTIONS[name], *numbers, ", ".join(f["compiled"]) or "-"))
    foot = (
        "operations of one state; a fused multiply-add counts as two flops, sines and cosines not;"
        " compiled: for which numbers, in the cache of this machine"
    )
    operations = table(rows, right=range(2, 2 + len(KINDS)))
    text = "\n\n".join([str(robot), "\n".join(drawn(robot.model)), operations, foot])
    model, names = robot.model, ("lower", "upper", "velocity", "effort")
    joints = [
        {
            "name": j.name,
            "type": j.type,
            "link": link,
            "mass": inertia[0],
            "parent": None if parent < 0 else robot.joints[parent],
        }
        for j, link, inertia, parent in zip(
            model.joints, model.body_names, model.inertias, model.parents, strict=True
        )
    ]
    data = {
        "name": robot.name,
        "nq": robot.nq,
        "nv": robot.nv,
        "mass": sum(m for m, _, _ in model.inertias),
        "floating_base": model.floating_base,
        "gravity": model.gravity,
        "actuation": robot.actuation,
        "joints": joints,
        "frames": robot.frames,
        "limits": {name: getattr(robot.limits, name) for name in names},
        "functions": functions,
    }
    show(arguments, data, text)


def costs(model: Model, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Of each function: operations of one state, and the number types that it is compiled for."""
    from rigidgrad.runtime import cache
    from rigidgrad.runtime.formulation import program_of
    from rigidgrad.runtime.job import function_job

    stored = {entry.key for entry in cache.contents()}
    found: dict[str, dict[str, Any]] = {}
    with progress(arguments, "counting operations", len(FUNCTIONS)) as step:
        for name in FUNCTIONS:
            step(name)
            counts = dict(program_of(model, name).counts())
            found[name] = {kind: sum(counts.get(k, 0) for k in of) for kind, of in KINDS.items()}
            jobs = [
                function_job(model, name, dtype=dtype, packed=packed, width=width)
                for dtype, packed, width in product(DTYPES, (False, True), (0, 1))
            ]
            compiled = [
                job.dtype + (" packed" if job.packed else "") for job in jobs if job.key() in stored
            ]
            found[name]["compiled"] = list(dict.fromkeys(compiled))
    return found


def drawn(model: Model) -> list[str]:
    """The tree of all links, fixed ones too: one line each."""
    from rigidgrad.model.structure import tree_order

    root, order = tree_order(model.description)
    mass = {link.name: link.mass for link in model.description.links}
    children: dict[str, list[JointDescription]] = {}
    for joint in order:
        children.setdefault(joint.parent, []).append(joint)
    rows = [
        (root, "floating" if model.floating_base else "fixed to the world", f"{mass[root]:.4g} kg")
    ]
    pending = [(joint, "", k == 0) for k, joint in enumerate(reversed(children.get(root, [])))]
    while pending:
        joint, stem, last = pending.pop()
        rows.append(
            (
                stem + ("└─ " if last else "├─ ") + joint.child,
                f"{joint.type} {joint.name!r}",
                f"{mass[joint.child]:.4g} kg",
            )
        )
        stem += "   " if last else "│  "
        pending += [
            (child, stem, k == 0) for k, child in enumerate(reversed(children.get(joint.child, [])))
        ]
    return table(rows, head=False, right=(2,)).split("\n")
