"""A malformed or hostile URDF is refused with an error of ours that names the place; nothing hangs,
grows without bound or reads other files.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import tracemalloc
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hostile.documents import DOCUMENTS, document
from hostile.mutations import mutant
from hostile.robots import BAD_NUMBERS, BODIES, LIMITS, MALFORMED, NUMBERS, TREES, VALID, changed

import rigidgrad as rg
from rigidgrad import files
from rigidgrad.errors import ModelError, ModelWarning, RigidgradError, UrdfError
from rigidgrad.model import xml

CORPUS = Path(__file__).parent / "hostile"


@pytest.fixture(autouse=True)
def no_test_hangs():
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def too_late(*_):
        raise TimeoutError("reading a hostile input did not end")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refusal(source, kind: type[RigidgradError] = RigidgradError, **options) -> str:
    """The message with which a source is refused. pytest.raises lets any other exception through,
    so that the test fails.
    """
    with pytest.raises(kind) as caught:
        rg.load(source, **options)
    return str(caught.value)


def test_the_robot_that_the_cases_damage_is_valid():
    assert rg.load(VALID).joints == ("shoulder", "elbow", "wrist", "knuckle", "throw")


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_elements_are_refused_with_their_name_and_line(case):
    old, new, fragment = MALFORMED[case]
    message = refusal(changed(old, new), UrdfError)
    assert fragment in message
    line = int(re.match(r"line (\d+): ", message)[1])
    assert abs(line - VALID[: VALID.index(old)].count("\n") - 1) <= 3, (
        "the line of the element, or of the one around it"
    )


@pytest.mark.parametrize("word", BAD_NUMBERS, ids=ascii)
@pytest.mark.parametrize("place", NUMBERS)
def test_what_is_no_plain_finite_decimal_is_refused_everywhere(place, word):
    old, new, owner = NUMBERS[place]
    line = VALID[: VALID.index(old)].count("\n") + 1
    assert refusal(changed(old, new.format(word)), UrdfError).startswith(f"line {line}: {owner}: <")


@pytest.mark.parametrize("case", TREES)
def test_links_and_joints_that_form_no_tree_are_refused(case):
    old, new, fragment = TREES[case]
    assert fragment in refusal(changed(old, new), ModelError)
    assert fragment in refusal(changed(old, new), ModelError, strict=True)


@pytest.mark.parametrize("case", BODIES)
def test_impossible_bodies_are_refused_or_warned_about(case):
    old, new, fragment = BODIES[case]
    assert fragment in refusal(changed(old, new), ModelError, strict=True)
    for options in ({}, {"strict": False}):
        with pytest.warns(ModelWarning, match=fragment) as caught:
            rg.load(changed(old, new), **options)
        assert len(caught) == 1


@pytest.mark.parametrize("case", LIMITS)
def test_limits_that_cannot_be_are_none_and_warned_about(case):
    old, new, fragment = LIMITS[case]
    assert fragment in refusal(changed(old, new), ModelError, strict=True)
    with pytest.warns(ModelWarning, match=fragment) as caught:
        limits = rg.load(changed(old, new)).limits
    assert len(caught) == 1
    kind = {"lower": "lower", "velocity": "velocity", "effort": "effort"}[old.split("=")[0]]
    assert np.isinf(getattr(limits, kind)[0])


@pytest.mark.parametrize(
    "text",
    [
        '<robot name="r"/>',
        '<robot name="r"><joint name="j" type="fixed"/></robot>',
        '<robot name="r"><material/></robot>',
    ],
)
def test_a_robot_without_links_is_refused(text):
    refusal(text, UrdfError)


@pytest.mark.parametrize(
    "source",
    ["", " ", "robot", "iiwa", "robot.urdf", "x" * 10_000, None, 3, 1.5, [], {}, object()],
    ids=lambda x: repr(x)[:20],
)
def test_what_is_neither_a_robot_nor_a_path_is_refused(source):
    refusal(source)


@pytest.mark.parametrize("first", range(0, 10_000, 1000))
def test_ten_thousand_damaged_robots_load_or_are_refused(first):
    """Each loads, with finite numbers only and without a complaint of NumPy's, or is refused with
    an error of ours.
    """
    outcomes = Counter()
    for seed in range(first, first + 1000):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ModelWarning)
            try:
                model = rg.load(mutant(seed, VALID)).model
            except RigidgradError as error:
                outcomes[type(error)] += 1
            else:
                outcomes["loaded"] += 1
                assert all(
                    map(
                        math.isfinite,
                        flat(
                            (
                                model.inertias,
                                model.placements,
                                model.armature,
                                [(j.axis, j.multiplier, j.offset) for j in model.joints],
                            )
                        ),
                    )
                )
    assert outcomes["loaded"] > 50
    assert outcomes[UrdfError] > 50
    assert outcomes[ModelError] > 50


def flat(numbers):
    for x in numbers:
        if isinstance(x, float):
            yield x
        else:
            yield from flat(x)


@pytest.mark.parametrize("case", DOCUMENTS)
def test_bad_documents_are_refused(case):
    assert DOCUMENTS[case][1] in refusal(document(case), UrdfError)


@pytest.mark.parametrize(
    "case",
    [
        "billion laughs",
        "quadratic blowup",
        "nested 100,000 deep",
        "half a million attributes",
        "long comment",
    ],
)
def test_a_small_attack_takes_little_memory(case):
    attack = document(case).encode()
    refusal(b"")
    tracemalloc.start()
    try:
        refusal(attack)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_the_limits_are_only_met_by_what_is_beyond_them():
    deep = "<a>" * (xml.MAX_DEPTH - 2) + "</a>" * (xml.MAX_DEPTH - 2)
    long = "x" * (xml.MAX_TOKEN_BYTES - 100)
    text = (
        f'<robot name="r"><link name="a"/><gazebo>{deep}</gazebo><!--{long}--><gazebo'
        f' a="{long}"/>{" " * (5 << 20)}</robot>'
    )
    assert rg.load(text).frames == ("a",)
    assert rg.load(text.replace("x", "").encode("utf-16")).frames == ("a",)


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["external_entity", "external_dtd", "parameter_entity"])
def test_an_entity_does_not_bring_in_the_file_beside_it(name):
    message = refusal(CORPUS / f"{name}.urdf", UrdfError)
    assert f"{name}.urdf: line 2: a DOCTYPE" in message
    assert "the-secret" not in message


def test_no_file_but_the_named_one_is_opened_and_nothing_is_run_or_called():
    script = """if True:
        import pathlib, sys
        import rigidgrad as rg
        rg.load('<robot name="r"><link name="a"><visual><geometry><mesh filename="x"/></geometry></visual></link></robot>')
        seen = []
        sys.addaudithook(lambda event, args: seen.append((event, str(args[0]) if args else "")))
        try:
            rg.load(pathlib.Path(sys.argv[1]))
        except rg.errors.RigidgradError:
            pass
        watched = ("open", "os.listdir", "os.scandir", "subprocess", "socket", "urllib", "import", "exec", "ctypes", "os.system")
        print(*sorted({f"{event} {what}" for event, what in seen if event.startswith(watched)}), sep="\\n")
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(rg.__file__).parents[1])}
    for path in sorted(CORPUS.glob("*.urdf")):
        command = [sys.executable, "-c", script, str(path)]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            cwd=CORPUS,
            env=environment,
        )
        assert run.stdout == f"open {path}\n"


def test_references_to_files_are_kept_as_text():
    visuals = rg.load(CORPUS / "references.urdf").model.visuals
    assert [v.mesh for _, v in visuals][:2] == ["secret.txt", "file:///etc/passwd"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_unopened(tmp_path):
    os.mkfifo(tmp_path / "pipe.urdf")
    assert "not a regular file" in refusal(tmp_path / "pipe.urdf", UrdfError)
    (tmp_path / "link.urdf").symlink_to(tmp_path / "pipe.urdf")
    assert "not a regular file" in refusal(str(tmp_path / "link.urdf"), UrdfError)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_file_that_becomes_a_pipe_after_the_first_look_does_not_hang(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.urdf")
    (tmp_path / "file.urdf").write_text(VALID)
    regular = os.stat(tmp_path / "file.urdf")
    monkeypatch.setattr(files.os, "stat", lambda *_, **__: regular)
    with pytest.raises(UrdfError, match="not a regular file"):
        xml.read_bytes(tmp_path / "pipe.urdf")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/random", "/dev/tty", "/proc/self/mem"])
def test_special_files_are_refused(path):
    if not os.path.lexists(path):
        pytest.skip(f"there is no {path}")
    assert path in refusal(path, UrdfError)


def test_paths_that_lead_nowhere(tmp_path):
    (tmp_path / "loop.urdf").symlink_to(tmp_path / "loop.urdf")
    (tmp_path / "empty.urdf").touch()
    with open(tmp_path / "huge.urdf", "wb") as file:
        file.truncate(1 << 40)
    assert "this is a directory" in refusal(tmp_path, UrdfError)
    assert "there is no such file" in refusal(tmp_path / "missing.urdf", UrdfError)
    assert "missing.urdf" in refusal(str(tmp_path / "missing.urdf"), UrdfError)
    assert "cannot be read" in refusal(str(tmp_path / "loop.urdf"), UrdfError)
    assert "cannot be read" in refusal("/robot" * 10_000, UrdfError)
    assert "cannot be read" in refusal("robot\0.urdf", UrdfError)
    assert "cannot be read" in refusal("\ud800.urdf", UrdfError)
    assert "empty.urdf: the XML is empty" in refusal(tmp_path / "empty.urdf", UrdfError)
    assert "64 MB" in refusal(tmp_path / "huge.urdf", UrdfError)


def test_an_unreadable_file(tmp_path, monkeypatch):
    """The system's refusal is staged, for root may read everything."""

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "robot.urdf").write_text(VALID)
    monkeypatch.setattr(files, "_open_without_waiting", refuse)
    assert "robot.urdf': it may not be read; check its permissions" in refusal(
        tmp_path / "robot.urdf", UrdfError
    )
