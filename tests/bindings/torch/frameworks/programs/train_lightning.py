"""A Trainer of Lightning trains with DDP; its argument is the backend."""

import os
import sys
import warnings

import pytorch_lightning as lightning
import torch
from digest import say
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(7, 32), torch.nn.GELU(), torch.nn.Linear(32, 3))

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


torch.manual_seed(1)
x = torch.randn(64, 7)
model = Model()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy=DDPStrategy(process_group_backend=sys.argv[1]),
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(TensorDataset(x, x[:, :3].sin()), batch_size=4))
everyone = trainer.strategy.all_gather(torch.tensor([trainer.global_rank]))
assert everyone.flatten().tolist() == list(range(trainer.world_size))
say(model.parameters(), trainer.callback_metrics["loss_epoch"].item())
torch.distributed.destroy_process_group()
