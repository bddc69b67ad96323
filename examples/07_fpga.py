"""Inverse dynamics of an arm as a circuit: number format, schedule, Verilog, and what a coprocessor
with it would give and take.
"""

import tempfile

import numpy as np

import rigidgrad as rg
from rigidgrad import fpga
from rigidgrad.fixed import Fixed
from rigidgrad.fixed.ranges import analyse
from rigidgrad.targets.verilog.driver import BATCHES, PCIE3, Coprocessor

robot = rg.load("iiwa14")

# every algorithm runs on fixed-point numbers as it is; here one state, in 16 bits before and 16
# after the point
number = Fixed(16, 16)
print(f"pi in {number}: {number(np.pi)}, its square: {number(np.pi) * number(np.pi)}")

# the circuit: 8 multipliers and 8 adders, shared by all operations; sines are inputs
circuit = fpga.build(robot, "rnea", multipliers=8)
about = circuit.describe()
print(
    f"{about['operations']['multiplications']} products and {about['operations']['additions']} sums"
    f" on {circuit.dsps} DSPs:",
    end=" ",
)
print(f"{about['cycles']} cycles (the longest chain of operations takes {about['critical_path']})")

# which format do its values need? seen at random states, and proved for every state within the same
# limits
states = fpga.states(robot, circuit, 2000)
ranges = analyse(circuit.program, circuit.format, samples=states, bounds=fpga.bounds_of(states))
print(ranges)
print(
    f"proposed for 32 bits: {ranges.proposed(32)}, proved safe: {ranges.proposed(32, proved=True)}"
)

# as a coprocessor: the numbers are the circuit's, bit for bit; the time follows from a clock and a
# link that we assume
machine = Coprocessor(circuit, clock=200e6, link=PCIE3)
q, v, a = robot.random(batch=(16,), seed=1).q, np.full((16, 7), 0.5), np.full((16, 7), 1.0)
error = np.max(np.abs(machine({"q": q, "v": v, "a": a})["tau"] - robot.rnea(q, v, a)))
print(f"largest error against float64: {error:.1e} Nm, bound {ranges.error_seen_bound.max():.1e}")
assert error <= ranges.error_seen_bound.max()
for n in BATCHES:
    print(
        f"  {n:4d} states: {machine.timing(n).total * 1e6:6.1f} µs at 200 MHz behind {PCIE3.name}"
    )

with tempfile.TemporaryDirectory() as folder:
    for path in rg.generate(robot, ["rnea"], target="verilog", out=folder, multipliers=8):
        print("wrote", path.name, path.stat().st_size, "bytes")
print(
    "`rigidgrad fpga iiwa14` also simulates and synthesises it, where Verilator and yosys are"
    " installed"
)
