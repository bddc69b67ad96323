"""A library of motions: 60 goals solved together, kept in a folder, loaded again and looked up; the
nearest motion is a good first guess for a new goal.
"""

import tempfile

import numpy as np

import rigidgrad as rg

arm = rg.load("iiwa14")
still = np.zeros(7)
problem = rg.Problem(
    arm,
    start=np.zeros(14),
    steps=30,
    dt=0.5 / 30,
    costs=[
        rg.costs.State(np.zeros(14), weight=np.r_[0.1 + still, 0.01 + still], final=100.0),
        rg.costs.Effort(1e-3),
    ],
)
rng = np.random.default_rng(0)
goals = np.c_[0.5 * rng.uniform(arm.limits.lower, arm.limits.upper, (60, 7)), np.zeros((60, 7))]


def main():
    solutions = rg.solve(problem.batch(targets={0: goals}))  # together, on all cores
    print(
        f"{sum(s.converged for s in solutions)} of {len(goals)} converged,"
        f" {sum(s.iterations for s in solutions)} iterations"
    )

    # the same on worker processes, or on machines: cluster="tcp://…"
    with tempfile.TemporaryDirectory() as folder:
        rg.cluster.solve(
            problem, folder, targets={0: goals}, workers=1, chunk=30, progress=lambda done, of: None
        )
        library = rg.cluster.load(folder)
        cost, u, x = library["cost"], library["u"], library["x"]
        assert np.allclose(cost, [s.cost for s in solutions], rtol=1e-6)
        print(f"library: {', '.join(library.columns)}; x {x.shape}")

    new = goals[17] + np.r_[0.05 * rng.normal(size=7), still]
    near = np.argmin(np.linalg.norm(goals[:, :7] - new[:7], axis=1))
    problem.costs[0].goal = new
    problem.update()
    cold = rg.solve(problem)
    problem.update(guess=u[near])
    warm = rg.solve(problem)
    print(
        f"a new goal: {cold.iterations} iterations from nothing, {warm.iterations} from motion"
        f" {near}; costs {cold.cost:.6f}, {warm.cost:.6f}"
    )
    assert near == 17 and warm.cost <= cold.cost * (1 + 1e-6)


if __name__ == "__main__":  # workers are processes that import this file
    main()
