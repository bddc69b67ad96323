"""Schedules of block kernels, without running them: every operand is where its reader looks, and
nothing is written that another thread still needs.
"""

from __future__ import annotations

import dataclasses

import pytest
from random_trees import random_tree

import rigidgrad as rg
from rigidgrad import errors
from rigidgrad.targets.gpu import block
from rigidgrad.targets.gpu.schedule import Block, Number

ROBOTS = ["iiwa14", "hyq", "atlas", "hyq floating", "atlas floating"]


def load(name, **options):
    base, _, floating = name.partition(" ")
    return rg.load(base, floating_base=bool(floating), **options)


@pytest.fixture
def recorded(monkeypatch):
    """The last Block that was scheduled, with its schedule."""
    found = {}
    original = Block.schedule

    def schedule(self, threads=None):
        found["block"], found["schedule"] = self, original(self, threads)
        return found["schedule"]

    monkeypatch.setattr(Block, "schedule", schedule)
    return found


def problems(recording, schedule):
    """Runs the schedule on tags instead of numbers: which value lies at each address."""
    stage_of = recording._stages()
    memory: dict[int, int] = {}
    found = []

    def places(value):
        start = schedule.address[value.index]
        return range(start, start + value.size)

    for s in range(max(stage_of) + 1):
        operations = [o for o, at in zip(recording.operations, stage_of, strict=True) if at == s]
        readers: dict[int, set[int]] = {}
        for i, o in enumerate(operations):
            for v in o.reads:
                for a in places(v):
                    # an array may have numbers that nobody writes and nobody reads
                    if memory.get(a) != v.index and not (v.array and memory.get(a) is None):
                        found.append(
                            f"stage {s}: {o.kind} reads {a}, where value {memory.get(a)} is, not"
                            f" {v.index}"
                        )
                    readers.setdefault(a, set()).add(i)
        written: dict[int, int] = {}
        for i, o in enumerate(operations):
            single = {
                f.value.index: f.k
                for f in o.fields
                if isinstance(f, Number) and f.value in o.writes
            }
            for v in o.writes:
                for a in places(v):
                    if not v.array and written.get(a, i) != i:
                        found.append(f"stage {s}: two operations write {a}")
                    if readers.get(a, {i}) != {i} and not (v.array and v.index not in single):
                        found.append(f"stage {s}: {o.kind} writes {a}, which others read")
                    written[a] = i
                    memory[a] = v.index
    for v in recording.kept:
        found += [
            f"at the end {a} holds {memory.get(a)}, not {v.index}"
            for a in places(v)
            if memory.get(a) != v.index
        ]
    return found


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("name", ["rnea", "aba", "minv", "rnea_derivatives", "aba_derivatives"])
def test_every_vector_is_there_until_its_last_reader(recorded, robot, name):
    block.block_function(load(robot).model, name)
    assert problems(recorded["block"], recorded["schedule"]) == []


def test_an_overlap_is_found(recorded):
    block.block_function(rg.load("hyq").model, "rnea_derivatives")
    schedule = recorded["schedule"]
    moved = dict(schedule.address)
    column = next(o for o in recorded["block"].operations if o.kind == "freedom")
    moved[column.writes[0].index] = schedule.address[column.reads[0].index]
    assert problems(recorded["block"], dataclasses.replace(schedule, address=moved))


@pytest.mark.parametrize("seed", range(6))
def test_random_trees_with_every_joint_type(recorded, seed):
    robot = random_tree(seed, bodies=9, mimic=seed % 2 == 1).robot()
    block.block_function(robot.model, "aba_derivatives")
    assert problems(recorded["block"], recorded["schedule"]) == []


# Limits: what a change of the generator must not exceed unnoticed.
BARRIERS = {
    "iiwa14": {
        "rnea": 14,
        "minv": 17,
        "aba": 25,
        "crba": 11,
        "rnea_derivatives": 14,
        "fused_gradient": 16,
        "aba_derivatives": 31,
    },
    "hyq": {
        "rnea": 12,
        "minv": 9,
        "aba": 15,
        "crba": 9,
        "rnea_derivatives": 12,
        "fused_gradient": 14,
        "aba_derivatives": 21,
    },
    "atlas": {
        "rnea": 15,
        "minv": 23,
        "aba": 32,
        "crba": 12,
        "rnea_derivatives": 15,
        "fused_gradient": 17,
        "aba_derivatives": 38,
    },
    "atlas floating": {
        "rnea": 14,
        "minv": 35,
        "aba": 43,
        "rnea_derivatives": 14,
        "fused_gradient": 16,
        "aba_derivatives": 49,
    },
}


@pytest.mark.parametrize("robot", BARRIERS)
def test_barriers_do_not_grow(robot):
    model = load(robot).model
    for name, most in BARRIERS[robot].items():
        assert block.block_function(model, name).barriers <= most, name


@pytest.mark.parametrize("robot", ROBOTS)
def test_gradients_fit_shared_memory(robot):
    """48 KB are there without asking; 99 KB on every architecture since sm_80 but none on sm_75 (64
    KB).
    """
    model = load(robot).model
    for name in ("rnea_derivatives", "fused_gradient", "aba_derivatives"):
        function = block.block_function(model, name)
        assert function.shared_bytes("float32") <= 48 * 1024, name
        assert (
            function.shared_bytes("float64") <= (96 if robot == "atlas floating" else 64) * 1024
        ), name


def test_places_are_used_again():
    """The gradient of HyQ without zero columns, and with places used again, takes less than half of
    what its vectors have together.
    """
    function = block.block_function(rg.load("atlas").model, "aba_derivatives")
    assert function.schedule.size < 0.5 * function.schedule.unshared


def test_what_blocks_cannot_do_is_said():
    with pytest.raises(errors.UnknownNameError, match="energy"):
        block.block_function(rg.load("iiwa14").model, "energy")
    with pytest.raises(errors.InputError, match="frame"):
        block.block_function(rg.load("iiwa14").model, "jacobian")
