"""Reordering a Program changes when things are computed, never what, and saves traffic between
registers and memory.
"""

from __future__ import annotations

import numpy as np
import pytest

import rigidgrad as rg
from rigidgrad.program.order import best_order, freeing, grouped, memory_traffic
from rigidgrad.program.program import LEAVES, operands
from rigidgrad.program.recorder import record
from rigidgrad.program.registers import transfers
from rigidgrad.runtime.formulation import program_of


@pytest.fixture(scope="module", params=["iiwa14", "hyq", "quadrotor"])
def program(request):
    return program_of(rg.load(request.param).model, "aba_derivatives")


@pytest.mark.parametrize("rule", [grouped, freeing])
def test_an_order_has_every_node_after_its_operands(program, rule):
    order = rule(program)
    assert sorted(order) == list(range(len(program.nodes)))
    place = {i: k for k, i in enumerate(order)}
    assert all(place[j] < place[i] for i, node in enumerate(program.nodes) for j in operands(node))


@pytest.mark.parametrize("rule", [grouped, freeing])
def test_every_bit_stays(program, rule):
    rng = np.random.default_rng(0)
    values = {key: tuple(rng.normal(size=shape)) for key, shape in program.inputs.items()}
    for x, y in zip(
        program.reordered(rule(program)).interpret(values), program.interpret(values), strict=True
    ):
        np.testing.assert_array_equal(np.array(x, float), np.array(y, float))


def test_the_best_order_is_no_worse_and_limbs_come_one_after_the_other():
    program = program_of(rg.load("hyq").model, "rnea_derivatives")
    for registers in (16, 32):
        assert memory_traffic(best_order(program, registers), registers) <= memory_traffic(
            program, registers
        )
    assert memory_traffic(best_order(program, 32), 32) < 0.6 * memory_traffic(program, 32)


def test_an_operation_that_frees_a_register_comes_earlier():
    # recorded as both squares, then both sums; a sum is the last to need its square
    def function(x):
        a, b = x["x"]
        s = a * a
        late = b * b
        return s + 1.0, late + 2.0

    program = record({"x": (2,)}, {"y": (), "z": ()}, function)
    kinds = [program.reordered(freeing(program)).nodes[i][0] for i in range(len(program.nodes))]
    assert [k for k in kinds if k in ("mul", "add")] == ["mul", "add", "mul", "add"]
    for robot, function in (
        ("iiwa14", "rnea_derivatives"),
        ("iiwa14", "aba_derivatives"),
        ("hyq", "rnea_derivatives"),
        ("atlas", "aba"),
    ):
        program = program_of(rg.load(robot).model, function)
        assert memory_traffic(program.reordered(freeing(program)), 16) < memory_traffic(program, 16)


def test_traffic_of_a_small_program_by_hand():
    # (a+b) and (a-b) are needed at the end: with two registers one of them has to wait in memory
    # while (a*b) is made
    def function(x):
        a, b = x["x"]
        s, d, p = a + b, a - b, a * b
        return ((p * p) * s + d,)

    program = record({"x": (2,)}, {"y": ()}, function)
    # inputs are fetched (2); with room for all, nothing else moves
    assert memory_traffic(program, 8) == 2
    assert memory_traffic(program, 2) > 2


@pytest.mark.parametrize("registers", [3, 8, 28])
def test_a_plan_keeps_to_its_registers_and_fetches_what_was_stored(program, registers):
    plan = transfers(program, registers)
    uses: dict[int, list[int]] = {}
    for i, node in enumerate(program.nodes):
        for j in operands(node):
            uses.setdefault(j, []).append(i)

    def kept(value, now):
        """Whether it is needed from now on, and not in memory by then."""
        coming = [i for i in uses.get(value, ()) if i >= now]
        return bool(coming) and (
            value not in plan.fetches.get(coming[0], ())
            or (value in plan.slots and value not in memory.values())
        )

    memory: dict[int, int] = {}  # place -> the value in it
    held: set[int] = set()
    for i, node in enumerate(program.nodes):
        if node[0] in LEAVES:
            continue
        for j in plan.stores.get(i, ()):
            assert j in held
            memory[plan.slots[j]] = j
        held = {j for j in held if kept(j, i)}
        assert len(held) <= registers
        for j in plan.fetches.get(i, ()):
            assert program.nodes[j][0] == "input" or memory[plan.slots[j]] == j
            held.add(j)
        assert all(j in held or program.nodes[j][0] == "const" for j in operands(node))
        held.add(i)
    assert max(plan.slots.values(), default=-1) < plan.size
    assert plan.traffic == memory_traffic(program, registers)
