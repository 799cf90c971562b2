"""Double DQN with prioritized n-step replay on cart-poles, data-parallel.

Every rank steps environments of its own and keeps their transitions in a buffer of its
own; a batch is drawn in equal parts from all buffers, and gradients are averaged by hand.
"""
import copy
import os
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Config:  # counts are those of all ranks together
    seed: int = 11
    envs: int = 8
    steps: int = 4  # of each environment, between two updates
    iterations: int = 500
    warmup_frames: int = 1600
    explore_frames: int = 9000
    epsilon_end: float = 0.04
    capacity: int = 12000
    batch: int = 128
    n_step: int = 3
    gamma: float = 0.98
    alpha: float = 0.6
    beta: float = 0.4
    lr: float = 2e-3
    max_norm: float = 0.5
    tau: float = 0.02
    eval_every: int = 100
    eval_episodes: int = 15
    checkpoint: str = "dqn_best.pt"


class CartPoles:
    """Cart-poles that start anew when they fall, each with random numbers of its own."""

    def __init__(self, seeds):
        self.rngs = [np.random.default_rng(seed) for seed in seeds]
        self.state = np.stack([rng.uniform(-0.05, 0.05, 4) for rng in self.rngs])
        self.age = np.zeros(len(self.rngs), int)

    def step(self, actions):
        """Return what is seen before a restart, the terminations and the truncations."""
        x, v, angle, turn = self.state.T
        sin, cos = np.sin(angle), np.cos(angle)
        push = (20 * actions - 10 + 0.05 * turn**2 * sin) / 1.1
        spin = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = push - 0.05 * spin * cos / 1.1
        self.state = self.state + 0.02 * np.stack([v, pull, turn, spin], 1)
        self.age += 1
        terminated = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.2095)
        truncated = (self.age >= 200) & ~terminated
        seen = self.state.astype(np.float32)
        for i in np.flatnonzero(terminated | truncated):
            self.state[i], self.age[i] = self.rngs[i].uniform(-0.05, 0.05, 4), 0
        return seen, terminated, truncated


class Replay:
    """A ring of n-step transitions, drawn in proportion to their priorities."""

    def __init__(self, capacity, alpha, rng):
        self.obs, self.next_obs = np.zeros((2, capacity, 4), np.float32)
        self.reward, self.discount = np.zeros((2, capacity), np.float32)
        self.action, self.priority = np.zeros(capacity, np.int64), np.zeros(capacity)
        self.alpha, self.rng, self.size, self.head, self.top = alpha, rng, 0, 0, 1.0

    def add(self, obs, action, reward, next_obs, discount):
        i = self.head
        self.obs[i], self.action[i], self.reward[i] = obs, action, reward
        self.next_obs[i], self.discount[i], self.priority[i] = next_obs, discount, self.top
        self.head = (i + 1) % len(self.action)
        self.size = max(self.size, i + 1)

    def sample(self, count):
        """Return the places of transitions, and the probabilities they were drawn with."""
        p = self.priority[: self.size] / self.priority[: self.size].sum()
        i = self.rng.choice(self.size, count, p=p)
        return i, torch.from_numpy(p[i]).float()

    def update(self, i, errors):
        self.priority[i] = (np.abs(errors) + 1e-3) ** self.alpha
        self.top = max(self.top, self.priority[i].max())


class RunningNorm(nn.Module):
    """Scales observations by the mean and the variance of all that any rank has seen."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("sums", torch.zeros(2, size, dtype=torch.double))
        self.register_buffer("count", torch.zeros((), dtype=torch.double))

    def update(self, x):
        x = x.double()
        news = torch.stack([x.sum(0), x.square().sum(0), torch.full_like(x[0], len(x))])
        dist.all_reduce(news)
        self.sums += news[:2]
        self.count += news[2, 0]

    def forward(self, x):
        mean, square = self.sums / self.count.clamp(min=1)
        std = (square - mean**2).clamp(min=1e-4).sqrt()
        return ((x - mean) / std).float().clamp(-5, 5)


class Dueling(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value, self.gain = nn.Linear(width, 1), nn.Linear(width, 2)

    def forward(self, x):
        x = self.body(x)
        return self.value(x) + self.gain(x) - self.gain(x).mean(1, keepdim=True)


class Agent:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        self.net = Dueling().to(device)
        for p in self.net.parameters():
            dist.broadcast(p.data, 0)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.norm = RunningNorm(4).to(device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), cfg.lr)
        self.parts = {"net": self.net, "target": self.target, "optimizer": self.optimizer}
        self.parts["norm"] = self.norm

    @torch.no_grad()
    def greedy(self, obs):
        return self.net(self.norm(torch.from_numpy(obs).to(self.device))).argmax(1).cpu().numpy()

    def learn(self, replay, beta):
        """Take a step on a batch of all ranks. Return this rank's loss."""
        world = dist.get_world_size()
        i, probability = replay.sample(self.cfg.batch // world)
        data = (replay.obs, replay.next_obs, replay.action, replay.reward, replay.discount)
        obs, next_obs, action, reward, discount = (torch.tensor(d[i], device=self.device) for d in data)
        weight = probability.to(self.device) ** -beta
        largest = weight.max()
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        weight /= largest
        obs, next_obs = self.norm(obs), self.norm(next_obs)
        with torch.no_grad():
            best = self.net(next_obs).argmax(1, keepdim=True)
            goal = reward + discount * self.target(next_obs).gather(1, best).squeeze(1)
        value = self.net(obs).gather(1, action[:, None]).squeeze(1)
        loss = (weight * nn.functional.smooth_l1_loss(value, goal, reduction="none")).mean()
        self.optimizer.zero_grad()
        loss.backward()
        flat = nn.utils.parameters_to_vector(p.grad for p in self.net.parameters())
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / world, [p.grad for p in self.net.parameters()])
        nn.utils.clip_grad_norm_(self.net.parameters(), self.cfg.max_norm)
        self.optimizer.step()
        for old, new in zip(self.target.parameters(), self.net.parameters()):
            old.data.lerp_(new.data, self.cfg.tau)
        replay.update(i, (value - goal).detach().cpu().numpy())
        return loss.item()

    def evaluate(self):
        """Return the mean return of the greedy policy in episodes shared out to ranks."""
        mine = range(dist.get_rank(), self.cfg.eval_episodes, dist.get_world_size())
        envs = CartPoles([(self.cfg.seed, 1, episode) for episode in mine])
        alive, returns = np.ones(len(mine), bool), np.zeros(len(mine))
        while alive.any():
            _, terminated, truncated = envs.step(self.greedy(envs.state))
            returns += alive
            alive &= ~(terminated | truncated)
        return mean_of_ranks(returns.sum(), len(mine), self.device)

    def save(self, **facts):
        facts |= {name: part.state_dict() for name, part in self.parts.items()}
        torch.save(facts, self.cfg.checkpoint)

    def load(self):
        dist.barrier()
        saved = torch.load(self.cfg.checkpoint, map_location=self.device)
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])
        return saved


def mean_of_ranks(total, count, device):
    pair = torch.tensor([total, count], dtype=torch.float32, device=device)
    dist.all_reduce(pair)
    return (pair[0] / pair[1].clamp(min=1)).item()


def train(cfg, agent, device):
    rank, world, local = dist.get_rank(), dist.get_world_size(), cfg.envs // dist.get_world_size()
    rng = np.random.default_rng((cfg.seed, 2, rank))
    envs = CartPoles([(cfg.seed, 0, i) for i in range(rank * local, (rank + 1) * local)])
    replay = Replay(cfg.capacity // world, cfg.alpha, rng)
    pending = [deque() for _ in range(local)]
    losses, returns, best = [], [], -1.0
    for iteration in range(cfg.iterations):
        frames = iteration * cfg.steps * cfg.envs
        epsilon = max(cfg.epsilon_end, 1 - frames / cfg.explore_frames)
        visited = []
        for _ in range(cfg.steps):
            obs, age = envs.state.copy(), envs.age + 1
            action = np.where(rng.random(local) < epsilon, rng.integers(2, size=local), agent.greedy(obs))
            seen, terminated, truncated = envs.step(action)
            visited.append(obs)
            for i, queue in enumerate(pending):
                queue.append((obs[i], action[i]))
                over = terminated[i] or truncated[i]
                while queue and (over or len(queue) == cfg.n_step):
                    reward = sum(cfg.gamma**k for k in range(len(queue)))  # it is 1 a step
                    discount = 0.0 if terminated[i] else cfg.gamma ** len(queue)
                    replay.add(*queue.popleft(), reward, seen[i], discount)
            returns += [*age[terminated | truncated]]
        agent.norm.update(torch.from_numpy(np.concatenate(visited)).to(device))
        if frames < cfg.warmup_frames:
            continue
        done = frames / (cfg.iterations * cfg.steps * cfg.envs)
        agent.optimizer.param_groups[0]["lr"] = cfg.lr * (1 - 0.9 * done)
        losses.append(agent.learn(replay, cfg.beta + (1 - cfg.beta) * done))
        if (iteration + 1) % cfg.eval_every == 0:
            score = agent.evaluate()
            recent = mean_of_ranks(sum(returns), len(returns), device)
            loss = mean_of_ranks(sum(losses), len(losses), device)
            if rank == 0:
                facts = f"epsilon {epsilon:.2f}  loss {loss:.4f}  return {recent:.1f}"
                print(f"frames {frames:6d}  {facts}  greedy {score:.1f}", flush=True)
            losses, returns = [], []
            if score > best:
                best = score
                if rank == 0:
                    agent.save(frames=frames, score=score)


def main():
    cfg = Config()
    alone = {} if "RANK" in os.environ else dict(init_method="tcp://localhost:29533", rank=0, world_size=1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", **alone)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    assert cfg.envs % dist.get_world_size() == 0 == cfg.batch % dist.get_world_size()
    torch.manual_seed(cfg.seed + dist.get_rank())  # the first weights are those of rank 0
    train(cfg, Agent(cfg, device), device)
    final = Agent(cfg, device)
    saved, score = final.load(), final.evaluate()
    if dist.get_rank() == 0:
        print(f"best of frame {saved['frames']}: greedy {saved['score']:.1f}, loaded {score:.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
