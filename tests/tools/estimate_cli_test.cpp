// `tutti estimate` as its users see it, with what should not be given to it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/contains.h"
#include "tests/support/xml.h"
#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

class EstimateCli : public TuttiCommand {};

// One host, where calls are predicted soon.
constexpr const char* kEight = " --machine 8xH100 --gpus 8 --batch 64";

TEST_F(EstimateCli, SaysWhichMixToUse) {
  ASSERT_EQ(tutti(std::string("estimate --model 7B --seq 2048 --svg e.svg") + kEight), 0) << err;
  EXPECT_CONTAINS(out, "# 7B: 6.74 billion parameters, 32 blocks of width 4096");
  EXPECT_CONTAINS(out, "a step: 64 sequences of 2048 tokens");
  EXPECT_CONTAINS(out, "\nUse ");
  EXPECT_CONTAINS(out, "does not fit: state");  // DDP
  EXPECT_EQ(test::xml_error(folder.read("e.svg")), "");
  EXPECT_CONTAINS(folder.read("e.svg"), "FSDP 8");
}

TEST_F(EstimateCli, PrintsEverythingForPrograms) {
  ASSERT_EQ(tutti(std::string("estimate --model 8B --json --gpu-memory 64G") + kEight), 0) << err;
  const auto all = nlohmann::json::parse(out);
  EXPECT_EQ(all["parameters"], 8'030'261'248);
  EXPECT_EQ(all["gpu_memory"], 64e9);
  EXPECT_LE(all["best"]["memory"]["total"], 64e9);
  // Gathered for the forward and the backward of each micro-batch, and reduced once.
  for (const auto& e : all["kinds"]) {
    if (e["mix"] != "FSDP 8") continue;
    const auto& data = e["traffic"]["data"];
    EXPECT_EQ(data["all_gather"]["calls"].get<int>(), 34 * 2 * e["micro_batches"].get<int>() + 1);
    EXPECT_EQ(data["reduce_scatter"]["calls"], 34);
  }
}

TEST_F(EstimateCli, ReadsAConfig) {
  folder.write("config.json", R"({"model_type": "llama", "hidden_size": 2048,
      "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
      "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": true})");
  ASSERT_EQ(tutti(std::string("estimate --config config.json") + kEight), 0) << err;
  EXPECT_CONTAINS(out, "# llama (config.json): 1.24 billion parameters");
  folder.write("gpt2.json", R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12,
      "vocab_size": 50257, "n_inner": null})");
  ASSERT_EQ(tutti(std::string("estimate --config gpt2.json") + kEight), 0) << err;
  EXPECT_CONTAINS(out, "0.12 billion parameters");
}

TEST_F(EstimateCli, KnowsMixturesOfExperts) {
  ASSERT_EQ(tutti(std::string("estimate --model 8x7B --json") + kEight), 0) << err;
  const auto all = nlohmann::json::parse(out);
  EXPECT_EQ(all["parameters"], 46'702'792'704);
  int with_experts = 0;
  for (const auto& e : all["kinds"]) {
    EXPECT_EQ(e["tensor"], 1);
    if (e["experts"] == 1) continue;
    ++with_experts;
    EXPECT_NE(e["mix"].get<std::string>().find("with EP "), std::string::npos);
    // To the experts and back, in the forward and in the backward; recomputing, once more.
    const int passes = e["recompute"].get<bool>() ? 3 : 2;
    const int waves = 2 * passes * 8 / e["experts"].get<int>();
    if (e["pipeline"] == 1) {
      EXPECT_EQ(e["traffic"]["experts"]["all_to_all_v"]["calls"].get<int>(),
                waves * 32 * e["micro_batches"].get<int>());
    }
    EXPECT_GT(e["seconds"]["experts"], 0);
  }
  EXPECT_GT(with_experts, 0);
  folder.write("config.json", R"({"model_type": "mixtral", "hidden_size": 4096,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
      "num_experts_per_tok": 2})");
  ASSERT_EQ(tutti(std::string("estimate --config config.json --json") + kEight), 0) << err;
  EXPECT_EQ(nlohmann::json::parse(out)["parameters"], 46'702'792'704);
  ASSERT_EQ(tutti(std::string("estimate --model 1B --experts 4 --json") + kEight), 0) << err;
  EXPECT_GT(nlohmann::json::parse(out)["parameters"].get<double>(), 3e9);
}

// Memory and speed are those of the GPU, and what nobody has said is marked.
TEST_F(EstimateCli, TakesMemoryAndSpeedFromTheModelOfTheGpu) {
  const auto json = [&](const std::string& arguments) {
    EXPECT_EQ(tutti("estimate --model 1B --batch 64 --json " + arguments), 0) << err;
    return nlohmann::json::parse(out);
  };
  struct Case {
    const char* machine;
    double memory, flops;
  };
  for (const Case& c : {Case{"2xRTX4090", 24e9, 0.4 * 165.2e12},
                        {"8xV100", 16e9, 0.4 * 125e12},
                        {"4xA100-SXM4-80GB", 80e9, 0.4 * 312e12},
                        {"8xA100", 40e9, 0.4 * 312e12},
                        {"8xH100", 80e9, 0.4 * 989e12},
                        {"2xMI300X", 192e9, 0.4 * 1307.4e12}}) {
    const auto all = json(std::string("--machine ") + c.machine);
    EXPECT_EQ(all["gpu_memory"], c.memory) << c.machine;
    EXPECT_NEAR(all["flops"].get<double>(), c.flops, 1e9) << c.machine;
    EXPECT_LE(all["best"]["memory"]["total"], c.memory) << c.machine;
    EXPECT_CONTAINS(all["cluster"].get<std::string>(), "guessed:");
  }
  ASSERT_EQ(tutti("estimate --model 1B --batch 64 --machine 2xRTX4090"), 0) << err;
  EXPECT_CONTAINS(out, "# 2 GPUs of 24 GB that reach 66 TFLOP/s each");
  EXPECT_CONTAINS(out, "# guessed: 24 GB, as RTX 4090 has (--gpu-memory)");
  EXPECT_CONTAINS(out, "# guessed: 66 TFLOP/s, 40 % of the 165.2 that RTX 4090 has in 16 bits");
  ASSERT_EQ(tutti("estimate --model 1B --batch 64 --machine 2xRTX4090 --gpu-memory 22.5G "
                  "--tflops 90"),
            0)
      << err;
  EXPECT_CONTAINS(out, "# 2 GPUs of 22.5 GB that reach 90 TFLOP/s each");
  EXPECT_EQ(out.find("guessed"), out.npos) << out;
}

TEST_F(EstimateCli, SaysThatItGuessesWhereNothingIsKnownOfTheGpus) {
  folder.write("gpus.xml",
               R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel"
      familyid="6" modelid="143">
      <pci busid="0000:01:00.0" class="0x030200" vendor="0x10de" device="0x0001"
           link_speed="16 GT/s PCIe" link_width="16"><gpu dev="0" sm="0" rank="0" gdr="1"/></pci>
      </cpu></system>)");
  ASSERT_EQ(tutti("estimate --model 1B --batch 8 --topology gpus.xml"), 0) << err;
  EXPECT_CONTAINS(out, "# guessed: 80 GB, as nothing says which GPUs these are (--gpu-memory)");
  EXPECT_CONTAINS(out, "# guessed: 400 TFLOP/s, as nothing says which GPUs these are (--tflops)");
}

TEST_F(EstimateCli, SaysWhyNothingFits) {
  // The state would fit on one GPU or two; the activations of a long sequence do not.
  ASSERT_EQ(tutti("estimate --model 1B --seq 100003 --batch 8 --machine 8xH100 --gpu-memory 20G"),
            0)
      << err;
  EXPECT_CONTAINS(out, "Nothing fits. ");
  EXPECT_CONTAINS(out, "lacks the least: it needs");
  EXPECT_CONTAINS(out, "The wall is: activations.");
  EXPECT_EQ(out.find("alone need"), out.npos) << out;
  ASSERT_EQ(tutti("estimate --model 70B --machine 8xH100"), 0) << err;
  EXPECT_CONTAINS(out,
                  "Nothing fits. Parameters, gradients and the optimizer's state alone need 15 "
                  "GPUs of 80 GB.");
}

TEST_F(EstimateCli, BadInputIsAnErrorThatSaysWhatToDo) {
  const auto refused = [&](const std::string& arguments, const std::string& what) {
    EXPECT_EQ(tutti("estimate " + arguments), 2) << arguments;
    EXPECT_CONTAINS(err, what);
    EXPECT_EQ(out, "") << arguments;
  };
  refused("", "say which model: --model 7B, or --config config.json");
  refused("--model big", "--model big: a number of parameters, such as 1B,");
  refused("--model 7B --gpu-memory much", "--gpu-memory much: such as 80G");
  refused("--model 7B --precision int4", "--precision int4: bfloat16, float16 or float32");
  refused("--model 7B --gpus 12 --hosts 5",
          "--gpus 12: 5 hosts of 8 GPUs cannot have as many each");
  refused("--model 7B --tflops 0", "--tflops: more than 0");
  refused("--model 7B --gpus 97 -m 1xH100 --batch 7",
          "no mix spreads 7 sequences of 7B over 97 GPUs");
  refused("--config none.json", "none.json");
  folder.write("a.json", "[1]");
  refused("--config a.json", "a.json: this is no JSON object");
  folder.write("b.json", R"({"model_type": "llama", "hidden_size": 2048})");
  refused("--config b.json", "b.json: there is no num_hidden_layers");
  folder.write("c.json", R"({"model_type": "deepseek_v3", "n_routed_experts": 256})");
  refused("--config c.json", "c.json: a mixture of experts with n_routed_experts");
  refused("--model 7B --experts 4 --top-k 5", "num_experts_per_tok 5 is more than the 4 experts");
  folder.write("d.json", R"({"model_type": "llama", "hidden_size": -5})");
  refused("--config d.json", "d.json: hidden_size is no size");
  folder.write("e.json",
               R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1000000000,
      "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000})");
  refused("--config e.json", "num_hidden_layers 1000000000 are too many");
}

TEST_F(EstimateCli, FormulasAreNamed) {
  ASSERT_EQ(tutti("estimate --formulas"), 0) << err;
  for (const char* column :
       {"parameters", "gradients", "optimizer", "in use", "activations", "logits", "compute",
        "tensor", "context", "experts", "data", "bubble"}) {
    EXPECT_CONTAINS(out, column);
  }
}

}  // namespace
}  // namespace tutti
