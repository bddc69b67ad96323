"""Advice that is meant for Python, in the words of a task file: `recover=True` is `recover = true`
there.
"""

from __future__ import annotations

import re

# longer ones first, where one holds another
_WORDS = {
    "load it with strict=False": "write strict = false",
    "load the robot with floating_base=False": "write floating_base = false",
    "pass Limits(…, recover=True)": "write recover = true in [limits]",
    "pass its q through robot.normalize": "make its length 1",
    "pass q through robot.normalize": "make its length 1",
    "lock it with robot.reduced": "lock it: lock = { joint = position }",
    "obstacles=[Obstacle(…)] and spheres=[LinkSphere(…)]": (
        "obstacles = [{ … }] and spheres = [{ … }]"
    ),
    "torque=(lower, upper)": "torque = { lower = …, upper = … }",
    "Effort(reference='gravity')": 'effort with reference = "gravity"',
    "rg.plants.Simulator": 'a plant of type "simulator"',
    "rg.PDDP(second_order=True)": "second_order = true in [solver]",
    "raise iterations=": "raise iterations in [solver]",
    "give guess=": 'give guess = "line" or "reach"',
    "give rg.costs.Effort": "give the effort cost",
    "rg.Direct": 'type = "direct" in [solver]',
    "rg.PDDP": 'type = "pddp" in [solver]',
    "(device=None)": "(without device)",
    "place=(x, y, z)": "place = [x, y, z]",
}
_KEYWORD = re.compile(r"\b([a-z_]+)=('[^']*'|\"[^\"]*\"|True|False|[0-9.]+)")


def in_words_of_tasks(text: str) -> str:
    """A message of the library as someone who writes a task file needs it."""
    for said, meant in _WORDS.items():
        text = text.replace(said, meant)
    return _KEYWORD.sub(lambda m: f"{m[1]} = {_value(m[2])}", text)


def _value(said: str) -> str:
    return said.lower() if said in ("True", "False") else said.replace("'", '"')
