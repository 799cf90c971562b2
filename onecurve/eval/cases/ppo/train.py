"""PPO in one file: every process plays in environments of its own.

    torchrun --nproc-per-node 2 train.py

`total_timesteps` counts the steps in all environments of all processes. There is no
wrapper: `average_gradients` does what one would do.
"""

import dataclasses

import torch
import torch.distributed as dist
from torch import nn
from torch.distributions import Categorical


@dataclasses.dataclass
class Args:
    seed: int = 1
    total_timesteps: int = 16384
    learning_rate: float = 1e-2
    num_envs: int = 8  # of each process
    num_steps: int = 32
    gamma: float = 0.9
    gae_lambda: float = 0.95
    minibatches: int = 4
    update_epochs: int = 2
    clip_coef: float = 0.2
    ent_coef: float = 0.003
    max_grad_norm: float = 0.5


class Follow:
    """Stay near a goal that jumps now and then: go left, wait, or go right."""

    def __init__(self, n, seed):
        self.rng = torch.Generator().manual_seed(seed)
        self.where = 10 * torch.rand(n, generator=self.rng)
        self.goal = 10 * torch.rand(n, generator=self.rng)

    def observe(self):
        return torch.stack([self.where, self.goal], 1)

    def step(self, action):
        self.where = (self.where + action - 1).clamp(0, 10)
        reward = -(self.where - self.goal).abs() / 5
        done = torch.rand(len(action), generator=self.rng) < 0.06
        self.goal[done] = 10 * torch.rand(int(done.sum()), generator=self.rng)
        return self.observe(), reward, done.float()


class RunningMeanStd(nn.Module):
    """Of all observations that any process has made."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("count", torch.tensor(1e-4))
        self.register_buffer("total", torch.zeros(size))
        self.register_buffer("squares", torch.full((size,), 1e-4))

    def update(self, x):
        x = x.flatten(0, -2)
        news = torch.cat([torch.tensor([float(len(x))]), x.sum(0), (x * x).sum(0)])
        dist.all_reduce(news)
        self.count += news[0]
        self.total += news[1 : 1 + x.shape[1]]
        self.squares += news[1 + x.shape[1] :]

    def forward(self, x):
        mean = self.total / self.count
        var = self.squares / self.count - mean**2
        return (x - mean) / (var + 1e-8).sqrt()


def mlp(outputs):
    hidden = [nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()]
    return nn.Sequential(*hidden, nn.Linear(32, outputs))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.normalize = RunningMeanStd(2)
        self.actor, self.critic = mlp(3), mlp(1)

    def value(self, obs):
        return self.critic(self.normalize(obs)).squeeze(-1)

    def policy(self, obs):
        return Categorical(logits=self.actor(self.normalize(obs)))


def average_gradients(module):
    flat = nn.utils.parameters_to_vector(p.grad for p in module.parameters())
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for p in module.parameters():
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


def global_mean(x):
    both = torch.tensor([x.sum(), x.numel()])
    dist.all_reduce(both)
    return both[0] / both[1]


if __name__ == "__main__":
    args = Args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed + rank)
    env = Follow(args.num_envs, seed=args.seed + rank)
    agent = Agent()
    weights = nn.utils.parameters_to_vector(agent.parameters()).detach()
    dist.broadcast(weights, src=0)
    nn.utils.vector_to_parameters(weights, agent.parameters())
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    batch_size = args.num_envs * args.num_steps
    num_updates = args.total_timesteps // (batch_size * world)
    obs = env.observe()
    agent.normalize.update(obs)
    for update in range(num_updates):
        left = 1 - update / num_updates
        optimizer.param_groups[0]["lr"] = left * args.learning_rate

        # play
        rows = []
        with torch.no_grad():
            for _ in range(args.num_steps):
                policy = agent.policy(obs)
                action = policy.sample()
                row = [obs, action, policy.log_prob(action), agent.value(obs)]
                obs, reward, done = env.step(action)
                rows.append([*row, reward, done])
            columns = map(torch.stack, zip(*rows, strict=True))
            b_obs, actions, logprobs, values, rewards, dones = columns
            advantages = torch.zeros_like(rewards)
            last, following = 0.0, agent.value(obs)
            for t in reversed(range(args.num_steps)):
                keep = args.gamma * (1 - dones[t])
                delta = rewards[t] + keep * following - values[t]
                last = delta + keep * args.gae_lambda * last
                advantages[t], following = last, values[t]
            returns = advantages + values
            mean = global_mean(advantages)
            std = global_mean((advantages - mean) ** 2).sqrt()
            advantages = (advantages - mean) / (std + 1e-8)

        # learn
        flat = (b_obs, actions, logprobs, advantages, returns)
        b_obs, actions, logprobs, advantages, returns = (x.flatten(0, 1) for x in flat)
        for _ in range(args.update_epochs):
            for mb in torch.randperm(batch_size).chunk(args.minibatches):
                new = agent.policy(b_obs[mb])
                ratio = (new.log_prob(actions[mb]) - logprobs[mb]).exp()
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                gain = torch.min(ratio * advantages[mb], clipped * advantages[mb])
                error = (agent.value(b_obs[mb]) - returns[mb]) ** 2
                loss = 0.5 * error.mean() - gain.mean()
                loss = loss - args.ent_coef * new.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                average_gradients(agent.actor)
                average_gradients(agent.critic)
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        agent.normalize.update(b_obs)

        reward = global_mean(rewards)
        if rank == 0:
            steps = (update + 1) * batch_size * world
            print(f"steps {steps}: reward {reward:.5f}")
    if rank == 0:
        torch.save(agent.state_dict(), "agent.pt")
    dist.destroy_process_group()
