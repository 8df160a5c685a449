// `tutti estimate` as its users see it, with what should not be given to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

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

/// What a terminal of 100 columns gets.
std::string on_a_terminal(const TemporaryFolder& folder, const std::string& command) {
  EXPECT_EQ(std::system(("cd '" + folder.path() + "' && script -qec 'stty cols 100 && " +
                         TUTTI_COMMAND " " + command + "' typescript >seen </dev/null")
                            .c_str()),
            0);
  return folder.read("seen");
}

TEST_F(EstimateCli, FitsTheTerminalAndSaysThatItWorks) {
  const std::string seen =
      on_a_terminal(folder, std::string("estimate --model 7B --seq 2048") + kEight);
  EXPECT_CONTAINS(seen, "estimating all mixes");
  std::istringstream lines(seen);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const std::size_t shown = line.rfind("\033[K");  // the line was taken away before
    EXPECT_LE(line.size() - (shown == line.npos ? 0 : shown + 3), 100U) << line;
  }
  // Programs that read it get whole rows, and no news.
  ASSERT_EQ(tutti(std::string("estimate --model 7B --seq 2048") + kEight), 0);
  EXPECT_EQ(err, "");
  EXPECT_CONTAINS(out, "param   grad  optim in use  activ logits     all  compute  tensor");
}

TEST_F(EstimateCli, CountsOneOfAThing) {
  ASSERT_EQ(tutti("estimate --model 1B --machine 1xH100 --gpus 1 --batch 1 --seq 512 --svg e.svg"),
            0)
      << err;
  EXPECT_CONTAINS(out, "# 1 GPU of 80 GB that reaches ");
  EXPECT_CONTAINS(out, "a step: 1 sequence of 512 tokens");
  EXPECT_EQ(out.find("1 GPUs"), out.npos) << out;
  EXPECT_CONTAINS(folder.read("e.svg"), "on 1 GPU: memory");
}

/// The texts of a picture: where they begin and end, about, and what they say.
struct Text {
  double x, y, wide;
  std::string words, more;
};
std::vector<Text> texts_in(const std::string& svg) {
  std::vector<Text> texts;
  const std::regex one("<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" ([^>]*)>([^<]*)</text>");
  for (std::sregex_iterator at(svg.begin(), svg.end(), one), end; at != end; ++at) {
    const std::string words = (*at)[4], more = (*at)[3];
    const double wide = 5.0 * static_cast<double>(words.size()), x = std::stod((*at)[1]);
    const double begin = more.find("middle") != more.npos ? x - wide / 2
                         : more.find("end") != more.npos  ? x - wide
                                                          : x;
    texts.push_back({begin, std::stod((*at)[2]), wide, words, more});
  }
  return texts;
}

TEST_F(EstimateCli, DrawsWhatCanBeRead) {
  ASSERT_EQ(tutti("estimate --model 7B --seq 2048 --machine 8xH100 --gpus 16 --batch 64 "
                  "--gpu-memory 24G --svg e.svg"),
            0)
      << err;
  const std::string svg = folder.read("e.svg");
  const std::vector<Text> texts = texts_in(svg);
  for (const Text& t : texts) EXPECT_GE(t.x, 0) << t.words;  // nothing is cut off
  const std::size_t axes = svg.find("Seconds of a step");
  ASSERT_NE(axes, svg.npos);
  for (const Text& a : texts_in(svg.substr(axes))) {
    // Ticks are round, and labels cover neither each other nor points.
    if (a.words.ends_with(" GB") || a.words.ends_with(" s")) {
      EXPECT_LE(a.words.substr(0, a.words.find(' ')).size(), 3U) << a.words;
      continue;
    }
    for (const Text& b : texts_in(svg.substr(axes))) {
      if (a.words == b.words) continue;
      const bool apart = a.x + a.wide <= b.x || b.x + b.wide <= a.x || std::abs(a.y - b.y) >= 10;
      EXPECT_TRUE(apart) << a.words << " covers " << b.words;
    }
    const std::regex point("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
    for (std::sregex_iterator at(svg.begin(), svg.end(), point), end; at != end; ++at) {
      const double x = std::stod((*at)[1]), y = std::stod((*at)[2]);
      const bool covered = a.x < x && x < a.x + a.wide && a.y - 9 < y && y < a.y;
      EXPECT_FALSE(covered) << a.words << " covers a point at " << x << ", " << y;
    }
  }
  // DDP lacks so much memory that its bar runs to the edge: the number on it is not black.
  const auto on_a_bar =
      std::ranges::find_if(texts, [](const Text& t) { return t.x + t.wide > 1040 && t.y > 60; });
  ASSERT_NE(on_a_bar, texts.end());
  EXPECT_CONTAINS(on_a_bar->more, "fill=\"white\"");
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
  folder.write("lat\xedn.json", folder.read("config.json"));  // a name in another encoding
  ASSERT_EQ(tutti(std::string("estimate --config 'lat\xedn.json' --json") + kEight), 0) << err;
  EXPECT_EQ(nlohmann::json::parse(out)["model"], "llama (lat\xEF\xBF\xBDn.json)");
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
