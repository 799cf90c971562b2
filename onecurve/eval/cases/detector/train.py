# Detect colored squares. Images and targets are lists, as in torchvision's references.
#     torchrun --nproc-per-node=2 train.py [--flip 0]
import argparse
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

STRIDE, SIDE, CELLS = 4, 32, 8


class Squares(Dataset):
    def __init__(self, n, flip):
        self.n, self.flip = n, flip

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(1000 + idx)
        h, w = torch.randint(24, SIDE + 1, (2,), generator=g).tolist()
        image = 0.3 * torch.rand(3, h, w, generator=g)
        count = int(torch.randint(1, 4, (1,), generator=g))
        corners = torch.randint(14, (count, 2), generator=g)
        sizes = torch.randint(5, 11, (count, 1), generator=g)
        labels = torch.randint(3, (count,), generator=g)
        boxes = torch.cat([corners, corners + sizes], 1)
        for (x0, y0, x1, y1), label in zip(boxes.tolist(), labels, strict=True):
            image[label, y0:y1, x0:x1] += 0.7
        if random.random() < self.flip:
            image = image.flip(-1)
            boxes[:, [0, 2]] = w - boxes[:, [2, 0]]
        return image, {"image_id": idx, "boxes": boxes.float(), "labels": labels}


def collate_fn(batch):
    return tuple(zip(*batch, strict=True))


def conv(inputs, outputs, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.ReLU())


class Detector(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = conv(3, width, 2)
        self.body = nn.Sequential(conv(width, width, 2), conv(width, width, 1))
        self.cls_head = nn.Conv2d(width, 3, 1)
        self.box_head = nn.Conv2d(width, 4, 1)
        y, x = torch.meshgrid(torch.arange(CELLS), torch.arange(CELLS), indexing="ij")
        self.centers = STRIDE * torch.stack([x, y, x, y]) + STRIDE / 2

    def forward(self, images, targets=None):
        x = torch.zeros(len(images), 3, SIDE, SIDE)
        for canvas, image in zip(x, images, strict=True):
            canvas[:, : image.shape[1], : image.shape[2]] = image
        x = self.body(self.stem(x))
        boxes = self.centers + SIDE * self.box_head(x).tanh()
        logits = self.cls_head(x) - 2
        if targets is None:
            return [self.decode(*pair) for pair in zip(logits, boxes, strict=True)]
        return self.losses(logits, boxes, targets)

    def losses(self, logits, boxes, targets):
        heat, l1, num_boxes = torch.zeros_like(logits), 0.0, torch.zeros(())
        for n, target in enumerate(targets):
            for box, label in zip(target["boxes"], target["labels"], strict=True):
                j, i = ((box[:2] + box[2:]) / 2 / STRIDE).long()
                heat[n, label, i, j] = 1
                l1 = l1 + (boxes[n, :, i, j] - box).abs().sum() / SIDE
                num_boxes += 1
        dist.all_reduce(num_boxes)
        num_boxes = (num_boxes / dist.get_world_size()).clamp(min=1)
        bce = F.binary_cross_entropy_with_logits(logits, heat, reduction="sum")
        return {"loss_cls": bce / num_boxes, "loss_box": l1 / num_boxes}

    def decode(self, logits, boxes):
        scores, best = logits.sigmoid().flatten().topk(5)
        boxes = boxes.flatten(1)[:, best % CELLS**2].T
        return {"scores": scores, "boxes": boxes, "labels": best // CELLS**2}


def iou(a, b):
    wh = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0)
    return wh.prod() / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - wh.prod())


def average_precision(results):
    """Of the results {image_id: (detection, target)}, at an overlap of a half."""
    flat = []
    for i, (found, _) in results.items():
        flat += [(float(s), i, k) for k, s in enumerate(found["scores"])]
    total = sum(len(target["labels"]) for _, target in results.values())
    seen, precision = set(), 0.0
    for n, (_, i, k) in enumerate(sorted(flat, reverse=True), 1):
        found, target = results[i]
        for m in (target["labels"] == found["labels"][k]).nonzero()[:, 0].tolist():
            if iou(found["boxes"][k], target["boxes"][m]) > 0.5 and (i, m) not in seen:
                seen.add((i, m))
                precision += len(seen) / n / total
                break
    return precision


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    results = {}
    for images, targets in loader:
        for detection, target in zip(model(images), targets, strict=True):
            results[target["image_id"]] = (detection, target)
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, results)
    merged = {}
    for part in gathered:
        merged.update(part)
    return average_precision(merged)


def main(args):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)
    order = torch.randperm(260).tolist()
    train_set = Subset(Squares(260, args.flip), order[:208])
    val_set = Subset(Squares(260, 0.0), order[208:][rank::world])
    detector = Detector()
    random.seed(args.seed + rank)

    sampler = DistributedSampler(train_set, drop_last=True)
    batch = args.batch_size // world
    loader = DataLoader(train_set, batch, sampler=sampler, collate_fn=collate_fn)
    val_loader = DataLoader(val_set, 8, collate_fn=collate_fn)

    detector.stem.requires_grad_(False)
    model = DistributedDataParallel(detector)
    optimizer = torch.optim.AdamW(detector.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4])

    for epoch in range(args.epochs):
        if epoch == args.freeze:
            detector.stem.requires_grad_(True)
            model = DistributedDataParallel(detector)
        sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros(2)
        for images, targets in loader:
            losses = model(images, targets)
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
            total += torch.stack([losses["loss_cls"], losses["loss_box"]]).detach()
        scheduler.step()
        dist.all_reduce(total)
        cls, box = total / world / len(loader)
        ap = evaluate(detector, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: cls {cls:.5f} box {box:.5f} AP50 {ap:.4f}")
            state = {"model": detector.state_dict(), "epoch": epoch}
            state["optimizer"] = optimizer.state_dict()
            state["scheduler"] = scheduler.state_dict()
            torch.save(state, "last.pth")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", default=5, type=int)
    parser.add_argument("--freeze", default=2, type=int, help="epochs without the stem")
    parser.add_argument("--batch-size", default=16, type=int, help="of all processes")
    parser.add_argument("--lr", default=1e-2, type=float)
    parser.add_argument("--flip", default=0.5, type=float)
    parser.add_argument("--seed", default=0, type=int)
    main(parser.parse_args())
