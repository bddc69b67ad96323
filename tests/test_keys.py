"""Keys of compiled code: what is compiled is in them, every field of it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

import rigidgrad as rg
from rigidgrad.runtime import cache, riccati
from rigidgrad.runtime.job import Job, Knots, RobotFunction, digest, function_job
from rigidgrad.targets.riccati_layout import Layout


def never() -> Any:
    raise AssertionError("a key needs no program")


def model(name: str) -> Any:
    return rg.load(name).model


LAYOUT = Layout(4, 2, "dense", "float64", 4)
JOBS = [
    Job("step", "arm", "one", never),
    Job("step", "arm", "one", never, knots=Knots()),
    RobotFunction(model("iiwa14"), "rnea"),
    Knots(),
    LAYOUT,
]
OTHERS: dict[str, Any] = {  # by type of the value; other values of fields
    "str": "another",
    "bool": True,
    "int": 3,
    "tuple": ("another",),
    "frozenset": frozenset({"x"}),
    "NoneType": (1, 2),
    "Knots": Knots(frozenset({"x"})),
}


def key(job: Any) -> str:
    if isinstance(job, RobotFunction):
        return cache.text_of(job, model=digest(job.model))
    return job.key() if isinstance(job, Job) else cache.text_of(job)


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
    compared = [f.name for f in dataclasses.fields(job) if f.name not in ("source", "owner")]
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


def test_jobs_of_the_same_identity_have_the_same_key_whatever_makes_them_and_for_whom():
    for job in JOBS[:2]:
        assert key(dataclasses.replace(job, source=lambda: None, owner="another")) == key(job)


def test_jobs_of_robot_functions_differ_where_their_options_or_models_do():
    arm = model("iiwa14")
    jobs = [
        function_job(arm, "jacobian", frame=frame, dtype=dtype, width=width)
        for frame in ("iiwa_link_3", "iiwa_link_4")
        for dtype in ("float64", "float32")
        for width in (1, 8)
    ]
    jobs += [function_job(arm, "rnea"), function_job(model("hyq"), "rnea")]
    jobs += [function_job(arm, "rnea", packed=True), function_job(arm, "rnea", streaming=(0,))]
    assert len({job.key() for job in jobs}) == len(jobs)
    renamed = dataclasses.replace(arm, name="another")
    assert function_job(renamed, "rnea").key() == function_job(arm, "rnea").key()


def test_passes_of_two_layouts_do_not_share_code():
    assert riccati.job(LAYOUT).key() != riccati.job(dataclasses.replace(LAYOUT, gaps=True)).key()


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
from rigidgrad.runtime.job import Job, Knots
print(Job("step", "arm", "one", print, knots=Knots(frozenset("abcdefgh"))).key())
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
        cache.text_of(dataclasses.replace(LAYOUT, n=object()))
