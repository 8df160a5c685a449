"""vLLM serves a tiny model over Tutti: python serve.py --tp 2 [--pp 2]

The model is a Llama with random weights, made on the spot, so nothing is downloaded. TUTTI_VLLM=0 runs the same over
vLLM's own communicator: the tokens are the same.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

PARSER = argparse.ArgumentParser(description=__doc__.split("\n")[0])
PARSER.add_argument("--tp", type=int, default=2, help="ranks of tensor parallelism")
PARSER.add_argument("--pp", type=int, default=1, help="ranks of pipeline parallelism")
PARSER.add_argument("--experts", type=int, default=0, help="in each layer, as Mixtral's; every rank has a part of each")
PARSER.add_argument("--hidden", type=int, default=128)
PARSER.add_argument("--layers", type=int, default=2)
PARSER.add_argument("--vocabulary", type=int, default=1024)
PARSER.add_argument("--dtype", default="bfloat16")
PARSER.add_argument("--prompts", type=int, default=4, help="served at once")
PARSER.add_argument("--tokens", type=int, default=16, help="made for each prompt")
PARSER.add_argument("--rounds", type=int, default=1, help="after one that warms up")
PARSER.add_argument("--compile", action="store_true", help="with torch.compile, as vLLM does by default")
PARSER.add_argument("--logprobs", action="store_true", help="print those of the tokens, with all digits")


def write_model(folder, options):
    heads = options.hidden // 32
    config = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", hidden_size=options.hidden,
        intermediate_size=2 * options.hidden, num_hidden_layers=options.layers, num_attention_heads=heads,
        num_key_value_heads=heads, vocab_size=options.vocabulary, max_position_embeddings=512, rms_norm_eps=1e-5,
        rope_theta=10000.0, tie_word_embeddings=False, torch_dtype=options.dtype, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    if options.experts:
        config.update(architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=options.experts,
                      num_experts_per_tok=2)  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def start(options, folder, **more):
    """The engine, whose model lies in the folder; `more` is what else vLLM is told."""
    ranks = options.tp * options.pp
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB, of keys and values
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "|".join(str(r % os.cpu_count()) for r in range(ranks)))
    from vllm import LLM

    how = {} if options.compile else {"enforce_eager": True}
    if options.pp > 1 and not options.compile:  # vLLM 0.32 makes the buffers of later stages as it compiles
        how = {"compilation_config": {"mode": 2, "backend": "eager"}}  # traced, and not compiled
    write_model(pathlib.Path(folder), options)
    return LLM(
        folder, load_format="dummy", skip_tokenizer_init=True, seed=0,
        tensor_parallel_size=options.tp, pipeline_parallel_size=options.pp, dtype=options.dtype,
        max_model_len=256, max_num_seqs=max(8, options.prompts),
        enable_prefix_caching=False, **how, **more,
    )  # fmt: skip


def answers_of(llm, options):
    """What it makes of prompts that differ in words and lengths; greedily, so that tokens can be compared."""
    from vllm import SamplingParams

    prompts = [
        {"prompt_token_ids": [3 + (7 * i + 13 * j) % (options.vocabulary - 3) for j in range(5 + i % 8)]}
        for i in range(options.prompts)
    ]
    sampling = SamplingParams(temperature=0, max_tokens=options.tokens, ignore_eos=True, detokenize=False,
                              logprobs=0 if options.logprobs else None)  # fmt: skip
    return llm.generate(prompts, sampling, use_tqdm=False)


def main():
    options = PARSER.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        llm = start(options, folder)
        for round in range(options.rounds + 1):
            begin = time.perf_counter()
            answers = answers_of(llm, options)
            if round:
                rate = options.prompts * options.tokens / (time.perf_counter() - begin)
                print(f"{rate:.1f} tokens/s", flush=True)
    for answer in answers:
        print("tokens", *answer.outputs[0].token_ids)
        if options.logprobs:
            made = zip(answer.outputs[0].token_ids, answer.outputs[0].logprobs)
            print("logprobs", *(table[token].logprob.hex() for token, table in made))


if __name__ == "__main__":
    main()
