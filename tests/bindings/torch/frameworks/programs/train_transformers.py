"""The Trainer of transformers trains a Llama of two layers, and evaluates it; its arguments are the backend, and "without_module" for accelerate as it is."""

import sys
import tempfile

import torch
from digest import say
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

if "without_module" not in sys.argv:
    import tutti.torch.accelerate


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, i):
        tokens = torch.randint(100, (16,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}


torch.manual_seed(1)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
)
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            folder,
            use_cpu=True,
            ddp_backend=sys.argv[1],
            per_device_train_batch_size=4,
            max_steps=6,
            gradient_accumulation_steps=2,
            logging_steps=3,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Text(),
        eval_dataset=Text(),
    )
    trained = trainer.train()
    evaluated = trainer.evaluate()
    say(model.parameters(), trained.training_loss, evaluated["eval_loss"])
torch.distributed.destroy_process_group()
