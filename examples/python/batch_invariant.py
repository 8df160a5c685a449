"""Logits with the same bits whatever the batch and the number of ranks:

    tutti run -n 2 python batch_invariant.py --batch 7

A small Llama with random weights, divided among 1, 2 or 4 ranks (tensor parallelism). Two things make its bits those of
a single prompt on a single rank. Its kernels have the same shapes in each case: a row by itself, times blocks of the
weights that are as large as a rank's of four. And the sums of the blocks are those of Tutti's invariant mode: a
balanced tree in float32, of which each rank's own blocks are a branch. With --plain both are as usual.
"""

import argparse
import hashlib
import time

import torch
import torch.distributed as dist

import tutti.torch

BLOCKS = 4  # of each matrix: the largest number of ranks
WIDTH, INNER, HEADS, LAYERS, VOCABULARY = 256, 512, 8, 2, 512
SIZE = WIDTH // HEADS  # of a head


def tree(parts):
    """Their sum, as a balanced binary tree: of a power of two of them."""
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


class Model:
    """One rank's part. `plain`: whole batches times the rank's whole matrices, instead of rows times blocks."""

    def __init__(self, rank, ranks, plain):
        self.plain, self.ranks = plain, ranks
        self.mine = range(rank * BLOCKS // ranks, (rank + 1) * BLOCKS // ranks)
        self.sum = tutti.torch.direct_all_reduce()
        generator = torch.Generator().manual_seed(0)

        def blocks(rows, columns, by_rows):
            """Those of this rank; each rank draws all of them."""
            shape = (rows // BLOCKS, columns) if by_rows else (rows, columns // BLOCKS)
            drawn = [torch.randn(shape, generator=generator) / columns**0.5 for _ in range(BLOCKS)]
            own = [drawn[b] for b in self.mine]
            return [torch.cat(own, 0 if by_rows else 1)] if plain else own

        self.embedding = torch.randn(VOCABULARY, WIDTH, generator=generator)
        self.layers = [
            dict(q=blocks(WIDTH, WIDTH, True), k=blocks(WIDTH, WIDTH, True), v=blocks(WIDTH, WIDTH, True),
                 o=blocks(WIDTH, WIDTH, False), up=blocks(INNER, WIDTH, True), down=blocks(WIDTH, INNER, False))
            for _ in range(LAYERS)
        ]  # fmt: skip
        self.head = blocks(VOCABULARY, WIDTH, True)

    def times(self, x, weights):
        """The rows of x times the transpose of a block."""
        return x @ weights.t() if self.plain else torch.stack([torch.mv(weights, row) for row in x])

    def normed(self, x):
        return torch.stack([row * torch.rsqrt(row.square().mean() + 1e-5) for row in x])

    def summed(self, inputs, weights):
        """Row-parallel: each block of columns times its part of the input; the sum over all blocks of all ranks."""
        return self.sum(tree([self.times(x, w) for x, w in zip(inputs, weights)]))

    def attention(self, x, layer, cache):
        """`cache`: for each prompt and block, the keys and values so far."""
        results = []
        for b in range(len(layer["q"])):
            q, k, v = (self.times(x, layer[name][b]).unflatten(1, (-1, SIZE)) for name in "qkv")
            rows = []
            for prompt, before in enumerate(cache):
                keys, values = before.setdefault(b, ([], []))
                keys.append(k[prompt])
                values.append(v[prompt])
                each = [
                    torch.softmax(torch.stack([key[h] for key in keys]) @ q[prompt, h] / SIZE**0.5, 0)
                    @ torch.stack([value[h] for value in values])
                    for h in range(q.shape[1])
                ]
                rows.append(torch.cat(each))
            results.append(torch.stack(rows))
        return results

    def step(self, tokens, caches):
        """The logits of one more token of each prompt."""
        x = self.embedding[tokens]
        for layer, cache in zip(self.layers, caches):
            x = x + self.summed(self.attention(self.normed(x), layer, cache), layer["o"])
            y = self.normed(x)
            x = x + self.summed([torch.nn.functional.silu(self.times(y, w)) for w in layer["up"]], layer["down"])
        logits = torch.cat([self.times(self.normed(x), w) for w in self.head], 1)
        every = [torch.empty_like(logits) for _ in range(self.ranks)]
        dist.all_gather(every, logits)
        return torch.cat(every, 1)


def serve(batch, steps, plain):
    """All bits of the first prompt's logits, as a digest, and the seconds of a step. In the group's ranks."""
    with torch.inference_mode():
        model = Model(dist.get_rank(), dist.get_world_size(), plain)
        caches = [[{} for _ in range(batch)] for _ in range(LAYERS)]
        tokens = torch.arange(batch) * 37 % VOCABULARY  # the first prompt is the same in each batch
        digest = hashlib.sha256()
        begin = time.perf_counter()
        for _ in range(steps):
            logits = model.step(tokens, caches)
            digest.update(logits[0].numpy().tobytes())
            tokens = logits.argmax(1)
        return digest.hexdigest()[:16], (time.perf_counter() - begin) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=7, help="prompts at once")
    parser.add_argument("--steps", type=int, default=8, help="tokens of each prompt and its answer")
    parser.add_argument("--plain", action="store_true", help="with the usual kernels, and not in invariant mode")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("tutti", pg_options=tutti.torch.Options(invariant=not options.plain))
    ranks = dist.get_world_size()
    if BLOCKS % ranks:
        raise SystemExit(f"{ranks} ranks: 1, 2 or 4 are possible")
    digest, took = serve(options.batch, options.steps, options.plain)
    if dist.get_rank() == 0:
        print(f"{ranks} ranks, batch {options.batch}: {took * 1e3:.1f} ms a step, logits {digest}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
