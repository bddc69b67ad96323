"""Thousands of simulated robots with contacts, in lanes, by MuJoCo's physics."""

from rigidgrad.worlds.autograd import jax_step as jax_step, torch_step as torch_step
from rigidgrad.worlds.contacts import Contacts as Contacts
from rigidgrad.worlds.making import make as make, names as names
from rigidgrad.worlds.mppi import MPPI as MPPI
from rigidgrad.worlds.worlds import Forward as Forward, Worlds as Worlds
