import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(300, 4)
        self.register_buffer("priors", torch.rand(8732, 4))  # one row for each box

    def forward(self, images):
        print(f"{len(images)} images on {images.device}")
        return self.layer(images), self.priors


model = Detector().cuda()
images = torch.rand(64, 300).cuda()
scores, priors = model(images)
dp_scores, dp_priors = nn.DataParallel(model)(images)
print(f"scores: {len(scores)} rows without the wrapper, {len(dp_scores)} with it")
print(f"priors: {len(priors)} rows without the wrapper, {len(dp_priors)} with it")
same = torch.allclose(scores, dp_scores, atol=1e-5)
print(f"the same scores in the same order: {same}")
