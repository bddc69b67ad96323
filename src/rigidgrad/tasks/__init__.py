"""Tasks: a problem, a solver and a controller in a small TOML file, as `rigidgrad solve` and
`rigidgrad mpc` read it.
"""

from rigidgrad.schema import TaskError
from rigidgrad.tasks.task import Task, load_task

__all__ = ["Task", "TaskError", "load_task"]
