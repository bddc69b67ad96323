"""Writes C for adam-robotics' CasADi functions of one fixed-base robot. Run by an interpreter that
has adam-robotics; casadi_c.py finds it.

adam has no joint accelerations in its RNEA and no fixed base in its ABA: inverse dynamics is M a +
h, forward dynamics M⁻¹(τ - h) by CasADi's LDL factor, both from adam's mass matrix and bias force
with the base held; gradients are CasADi's own.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

import casadi as cs
import numpy as np
from adam.casadi import KinDynComputations


def row_major(matrix: cs.SX) -> cs.SX:
    """CasADi stores columns first: the dense transpose lies in memory as the matrix's rows."""
    return cs.densify(matrix.T)


def with_origins(urdf: str) -> str:
    """URDF text in which every joint and inertial has the origin that adam wants to see, where the
    format makes it optional.
    """
    root = ElementTree.parse(urdf).getroot()
    for element in [*root.iter("joint"), *root.iter("inertial")]:
        origin = element.find("origin")
        if origin is None:
            origin = ElementTree.SubElement(element, "origin")
        for key in ("xyz", "rpy"):
            origin.attrib.setdefault(key, "0 0 0")
    return ElementTree.tostring(root, encoding="unicode")


def functions(urdf: str, joints: list[str]) -> list[cs.Function]:
    robot = KinDynComputations(with_origins(urdf), joints, gravity=np.array([0, 0, -9.81, 0, 0, 0]))
    n = robot.NDoF
    q, v, a, tau = (cs.SX.sym(name, n) for name in ("q", "v", "a", "tau"))
    base, still = cs.SX.eye(4), cs.SX.zeros(6)
    mass = robot.mass_matrix(base, q)[6:, 6:]
    bias = robot.bias_force(base, q, still, v)[6:]
    inverse = cs.mtimes(mass, a) + bias
    factor = cs.ldl(mass)
    forward = cs.ldl_solve(tau - bias, *factor)
    # The gradient of FD is -M⁻¹ times that of ID at a = FD: much shorter than differentiating
    # through the factor.
    at = cs.SX.sym("at", n)
    torque = cs.mtimes(mass, at) + bias
    by_q, by_v = cs.substitute([cs.jacobian(torque, q), cs.jacobian(torque, v)], [at], [forward])
    minv = cs.ldl_solve(cs.SX.eye(n), *factor)
    gradient_id = [
        row_major(cs.jacobian(inverse, q)),
        row_major(cs.jacobian(inverse, v)),
        row_major(mass),
    ]
    gradient_fd = [
        row_major(-cs.mtimes(minv, by_q)),
        row_major(-cs.mtimes(minv, by_v)),
        row_major(minv),
    ]
    options = {"cse": True}
    return [
        cs.Function("state_rnea", [q, v, a], [cs.densify(inverse)], options),
        cs.Function("state_aba", [q, v, tau], [cs.densify(forward)], options),
        cs.Function("state_rnea_derivatives", [q, v, a], gradient_id, options),
        cs.Function("state_aba_derivatives", [q, v, tau], gradient_fd, options),
    ]


def main() -> None:
    urdf, out, wanted, *joints = sys.argv[1:]
    target = Path(out)
    generator = cs.CodeGenerator(target.name, {"with_header": False})
    for function in functions(urdf, joints):
        if function.name().removeprefix("state_") in wanted.split(","):
            print(function.name(), function.n_instructions(), "instructions")
            generator.add(function)
    generator.generate(f"{target.parent}/")


if __name__ == "__main__":
    main()
