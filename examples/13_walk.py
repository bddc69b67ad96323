"""A quadruped: a trot and a jump as optimal motions, and a trot under control in MuJoCo, which is
commanded where to go.
"""

import numpy as np

import rigidgrad as rg

robot = rg.load("hyq", floating_base=True)
feet = [
    rg.Contact(f"{leg}_lowerleg", offset=(0.33, 0, 0), friction=0.6)
    for leg in ("lf", "rf", "lh", "rh")
]
radius = 0.02
x0 = np.zeros(robot.nq + robot.nv)
x0[6] = 1.0
x0[7:19] = np.ravel([(-0.2, 0.75 * s, -1.5 * s) for s in (1, -1, 1, -1)])  # knees bent
x0[2] = radius - rg.gaits.Stance(robot, feet, x0).ground

# motions: numbers of one program
motions = {
    "trot": rg.gaits.trot(robot, feet, x0, step_length=0.2, cycles=2, turn=0.2),
    "walk": rg.gaits.walk(robot, feet, x0),
    "jump": rg.gaits.jump(robot, feet, x0, length=0.2),
}
for name, phases in motions.items():
    problem = rg.Problem(robot, x0, phases=phases, limits=rg.Limits(torque=True))
    solution = rg.solve(problem)
    x = solution.x[-1]
    print(
        f"{name}: {solution.status} after {solution.iterations} iterations, {problem.times[-1]:.2f}"
        f" s, ends at x = {x[0]:.2f} m, y = {x[1]:.2f} m"
    )
    assert solution.converged

# control: forward, then a turn, then still
walker = rg.gaits.Walker(robot, feet, x0)
mpc = rg.MPC(walker.problem(), rg.PDDP(iterations=1), period=0.02, target=walker)
floor = rg.plants.Ground({f.frame: (radius, f.offset) for f in feet}, friction=0.8)
plant = rg.plants.MuJoCo(mpc.system, x0, 1e-3, ground=floor)
for until, command in ((1.5, (0.3, 0.0, 0.0)), (2.5, (0.2, 0.0, 0.4)), (4.0, (0.0, 0.0, 0.0))):
    walker.command = command
    while plant.time < until:
        plant.advance(mpc.step(plant.x, plant.time))
    print(
        f"{plant.time:.1f} s: at x = {plant.x[0]:.2f} m, y = {plant.x[1]:.2f} m, {plant.x[2]:.2f} m"
        f" high, after {command} m/s, m/s, rad/s"
    )
print(
    f"a plan took {1e3 * np.median(mpc.log.solve_seconds):.1f} ms; fallbacks:"
    f" {sum(mpc.counts.values())}"
)
assert plant.x[0] > 0.5 and not walker.has_fallen(plant.x)
