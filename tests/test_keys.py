"""Keys of compiled code: what is compiled is in them, every field of it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

import rigidgrad as rg
from rigidgrad.runtime import cache
from rigidgrad.runtime.lanes import Job, Recording, digest
from rigidgrad.runtime.sweep import SweepJob
from rigidgrad.targets.riccati_layout import Layout


def never() -> Any:
    raise AssertionError("a key needs no program")


def model(name: str) -> Any:
    return rg.load(name).model


JOBS = [
    Job(model("iiwa14"), "rnea"),
    Recording("step", "arm", "one", never),
    SweepJob("step", "arm", "one", never),
    Layout(4, 2, "dense", "float64", 4),
]
OTHERS: dict[str, Any] = {  # by type of the value; other values of fields
    "str": "another",
    "bool": True,
    "int": 3,
    "tuple": ("another",),
    "frozenset": frozenset({"x"}),
    "NoneType": (1, 2),
}


def key(job: Any) -> str:
    return job.key() if hasattr(job, "key") else cache.key_of(job)


def kinds(job: Any) -> str:
    return type(job).__name__


@pytest.mark.parametrize("job", JOBS, ids=kinds)
def test_a_field_that_is_added_to_a_job_is_in_its_key(job):
    cls = type(job)
    wider = dataclasses.make_dataclass(
        cls.__name__, [("added", int, dataclasses.field(default=0))], bases=(cls,), frozen=True
    )
    wider.__qualname__ = cls.__qualname__
    values = {f.name: getattr(job, f.name) for f in dataclasses.fields(job)}
    keys = {key(job), key(wider(**values)), key(wider(**values, added=1))}
    assert len(keys) == 3


@pytest.mark.parametrize("job", JOBS, ids=kinds)
def test_every_field_of_a_job_is_in_its_key(job):
    keys = {key(job)}
    compared = [f.name for f in dataclasses.fields(job) if f.name != "build"]
    for name in compared:
        now = getattr(job, name)
        other = (
            model("hyq")
            if name == "model"
            else "float32"
            if name == "dtype"
            else OTHERS[type(now).__name__]
        )
        keys.add(key(dataclasses.replace(job, **{name: other})))
    assert len(keys) == len(compared) + 1


def test_recordings_of_the_same_identity_have_the_same_key_whoever_builds_them():
    for job in JOBS[1:3]:
        assert key(dataclasses.replace(job, build=lambda: None)) == key(job)


def test_every_number_of_a_model_is_in_its_digest_and_its_name_is_not():
    arm = model("iiwa14")
    assert digest(dataclasses.replace(arm, name="another", strict=not arm.strict)) == digest(arm)
    changed = {
        "joints": (dataclasses.replace(arm.joints[0], axis=(0.0, 1.0, 0.0)), *arm.joints[1:]),
        "parents": (*arm.parents[:-1], 0),
        "placements": arm.placements[::-1],
        "inertias": arm.inertias[::-1],
        "armature": (1.0, *arm.armature[1:]),
        "gravity": (0.0, 0.0, -1.62),
        "frames": dict(list(arm.frames.items())[1:]),
    }
    digests = {
        digest(arm),
        *(digest(dataclasses.replace(arm, **{name: value})) for name, value in changed.items()),
    }
    assert len(digests) == len(changed) + 1


def test_a_field_that_is_added_to_a_model_is_in_its_digest():
    arm = model("iiwa14")
    wider = dataclasses.make_dataclass(
        "Model", [("added", int, dataclasses.field(default=0))], bases=(type(arm),), frozen=True
    )
    values = {f.name: getattr(arm, f.name) for f in dataclasses.fields(arm)}
    assert len({digest(arm), digest(wider(**values)), digest(wider(**values, added=1))}) == 3


def test_sets_have_the_same_key_in_every_process():
    code = """
from rigidgrad.runtime.sweep import SweepJob
print(SweepJob("step", "arm", "one", print, frozenset("abcdefgh")).key())
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
        )
        for seed in ("1", "2", "3")
    ]
    assert len({run.stdout for run in runs}) == 1 and len(runs[0].stdout) == 65, runs[0].stderr


def test_what_has_no_stable_text_is_refused():
    with pytest.raises(TypeError, match="no place in a key"):
        cache.key_of(dataclasses.replace(JOBS[3], n=object()))
