"""A leg learns to jump by the gradient of where its jump ends: through 80 steps of simulation, in
which its foot leaves the ground, and back through MuJoCo's contacts.
"""

from importlib import resources

import torch

import rigidgrad as rg

hopper = resources.files("rigidgrad.worlds").joinpath("environments/hopper.xml").read_text()
worlds = rg.worlds.Worlds(hopper, count=16, dt=0.005, dtype="float64")
step = rg.worlds.torch_step(worlds)

torch.manual_seed(0)
crouched = torch.tensor([0, -0.09, 0, -0.5, 0.9, -0.4], dtype=torch.float64)
policy = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
policy.double()


def jump():
    """The mean height and tilt after 0.4 s, from starts that differ a little."""
    qpos = crouched + 0.02 * torch.randn(worlds.count, 6, dtype=torch.float64)
    qvel = torch.zeros(worlds.count, 6, dtype=torch.float64)
    for _ in range(80):
        seen = torch.cat([qpos[:, 1:], 0.1 * qvel, torch.ones(worlds.count, 1)], 1)
        qpos, qvel = step(qpos, qvel, torch.tanh(policy(seen)))
    rise = qpos[:, 1] + qvel[:, 1].clamp(min=0) ** 2 / (2 * 9.81)  # of the flight that follows
    return rise.mean(), (qpos[:, 2] ** 2 + 0.05 * qvel[:, 2] ** 2).mean()


optimiser = torch.optim.Adam(policy.parameters(), lr=0.01)
for k in range(61):
    rise, tilt = jump()
    optimiser.zero_grad()
    (2 * tilt - rise).backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimiser.step()
    if k % 10 == 0:
        print(f"{k:3} gradients: rises by {rise:.2f} m, tilt {tilt:.3f}")
