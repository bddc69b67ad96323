"""A policy that walks, learnt by proximal policy optimisation in many worlds on the CPU, and then
tried in MuJoCo itself: `python walk_policy.py --env go2-walk --rounds 500 --count 1024`.
"""

import argparse
import json
import time
from pathlib import Path

import mujoco
import numpy as np
import torch
from torch import nn

import rigidgrad as rg


class Policy(nn.Module):
    """Actions with a mean and a spread, and what a state is worth."""

    def __init__(self, sees, acts, wide=64):
        super().__init__()

        def network(outputs):
            layers = [nn.Linear(sees, wide), nn.ELU(), nn.Linear(wide, wide), nn.ELU()]
            return nn.Sequential(*layers, nn.Linear(wide, outputs))

        self.actor, self.critic = network(acts), network(1)
        self.spread = nn.Parameter(torch.full((acts,), -0.7))
        nn.init.uniform_(self.actor[-1].weight, -0.01, 0.01)
        self.register_buffer("mean", torch.zeros(sees))
        self.register_buffer("square", torch.ones(sees))
        self.seen = 1.0

    def watch(self, o):
        """Running mean and variance of what is seen."""
        share = min(1.0, len(o) / (self.seen + len(o)))
        self.mean += share * (o.mean(0) - self.mean)
        self.square += share * ((o - self.mean).square().mean(0) - self.square)
        self.seen += len(o)

    def normal(self, o):
        return ((o - self.mean) / (self.square.sqrt() + 1e-2)).clamp(-5, 5)

    def distribution(self, o):
        return torch.distributions.Normal(self.actor(self.normal(o)), self.spread.exp())

    def worth(self, o):
        return self.critic(self.normal(o))[:, 0]


def gather(env, policy, o, horizon, discount=0.99, trace=0.95):
    """Some steps of all worlds: observations, actions, log probabilities, advantages, returns."""
    kept = {name: [] for name in ("o", "a", "log", "r", "end", "worth")}
    with torch.no_grad():
        for _ in range(horizon):
            policy.watch(o)
            d = policy.distribution(o)
            a = d.sample()
            seen, r, over, timed_out, info = env.step(a.numpy())
            r = torch.as_tensor(r, dtype=torch.float32)
            if timed_out.any():  # a run that was cut short goes on in mind
                last = torch.as_tensor(info["final_obs"])
                r += discount * policy.worth(last) * torch.as_tensor(timed_out)
            ended = torch.as_tensor(over | timed_out, dtype=torch.float32)
            row = {"o": o, "a": a, "log": d.log_prob(a).sum(1), "r": r, "end": ended}
            for name, x in (row | {"worth": policy.worth(o)}).items():
                kept[name].append(x)
            o = torch.as_tensor(seen)
        ahead, advantage, advantages = policy.worth(o), 0.0, []
        backward = (reversed(kept[x]) for x in ("r", "end", "worth"))
        for r, ended, worth in zip(*backward, strict=True):
            change = r + discount * ahead * (1 - ended) - worth
            advantage = change + discount * trace * (1 - ended) * advantage
            advantages.insert(0, advantage)
            ahead = worth
    batch = {x: torch.cat(kept[x]) for x in ("o", "a", "log", "worth")}
    batch["advantage"] = torch.cat(advantages)
    return o, batch | {"return": batch["advantage"] + batch["worth"]}, torch.cat(kept["r"]).mean()


def improve(policy, optimiser, batch, epochs=4, parts=8, clip=0.2):
    """PPO's clipped objective; the learning rate follows how far the policy moves."""
    for _ in range(epochs):
        for rows in torch.randperm(len(batch["o"])).chunk(parts):
            x = {name: value[rows] for name, value in batch.items()}
            d = policy.distribution(x["o"])
            change = d.log_prob(x["a"]).sum(1) - x["log"]
            gain = (x["advantage"] - x["advantage"].mean()) / (x["advantage"].std() + 1e-6)
            ratio = change.exp()
            loss = -torch.min(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
            loss = loss + 0.5 * (policy.worth(x["o"]) - x["return"]).square().mean()
            loss = loss - 0.002 * d.entropy().sum(1).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimiser.step()
            moved = float((ratio - 1 - change).mean().detach())
            group = optimiser.param_groups[0]
            factor = 1 / 1.2 if moved > 0.02 else 1.2 if moved < 0.005 else 1.0
            group["lr"] = min(1e-3, max(1e-5, group["lr"] * factor))


def in_mujoco(env, policy, command, seconds):
    """MuJoCo's data after the policy of an environment with one world has walked there."""
    m = env.model
    d = mujoco.MjData(m)
    m.opt.timestep = env.worlds.dt
    d.qpos[:] = env.worlds.start
    env.act(np.zeros(env.action.shape))
    for _ in range(round(seconds / env.period)):
        env.worlds.qpos[0], env.worlds.qvel[0], env.command[:] = d.qpos, d.qvel, command
        with torch.no_grad():
            a = policy.distribution(torch.as_tensor(env.observe())).mean.numpy()
        d.ctrl[:] = env.act(a)[0]
        for _ in range(env.steps):
            mujoco.mj_step(m, d)
    return d


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="hyq-walk")
    for name, default in (("rounds", 3), ("count", 256), ("seed", 1), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--speed", type=float, default=0.5, help="in MuJoCo, in m/s")
    parser.add_argument("--save", help="the policy, for torch.load")
    parser.add_argument("--json", help="what came out")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    own = {"seed": options.seed, "threads": options.threads}
    env = rg.worlds.make(options.env, count=options.count, **own)
    o = torch.as_tensor(env.reset()[0])
    policy = Policy(o.shape[1], env.single_action_space.shape[0])
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-3)
    begin, found = time.time(), vars(options)
    for k in range(1, options.rounds + 1):
        o, batch, reward = gather(env, policy, o, 24)
        improve(policy, optimiser, batch)
        seconds, steps, reward = time.time() - begin, k * len(batch["o"]), reward / env.period
        if k % 10 == 0 or k == options.rounds:
            print(f"{seconds:6.0f} s, {steps / 1e6:6.2f} M steps: reward {reward:.3f}", flush=True)
    found |= {"seconds": round(seconds, 1), "steps": steps, "reward": float(reward)}
    if options.save:
        torch.save(policy, options.save)
    if env.worlds.nq > 7:
        one = rg.worlds.make(options.env, count=1, randomise=False)
        d = in_mujoco(one, policy, (options.speed, 0.0, 0.0), 10.0)
        x, y, height = (round(float(x), 4) for x in d.qpos[:3])
        found["in MuJoCo"] = {"seconds": 10.0, "forward": x, "sideways": y, "height": height}
        print(f"in MuJoCo, told to walk at {options.speed} m/s: {found['in MuJoCo']}")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
