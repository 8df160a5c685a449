#include "tools/estimate/model_config.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.h"
#include "tools/text_file.h"

namespace tutti {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_config(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", path, why));
}

/// Models with two matrices in the MLP; the others have a gate as well.
bool is_gated(const std::string& type) {
  constexpr std::array<std::string_view, 7> kTwo{"gpt2",  "gpt_neox", "gptj", "opt",
                                                 "bloom", "falcon",   "phi"};
  return std::ranges::find(kTwo, type) == kTwo.end();
}

class Config {
 public:
  Config(const std::string& path, json all) : path_(path), all_(std::move(all)) {
    // Models for several kinds of input have that of the text inside.
    if (all_.contains("text_config") && all_["text_config"].is_object()) {
      all_ = json(all_["text_config"]);
    }
  }

  /// By the first of the names that is there; 0 if none of them is.
  std::size_t size(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      const auto found = all_.find(name);
      if (found == all_.end() || found->is_null()) continue;
      if (!found->is_number_unsigned()) refuse_config(path_, fmt::format("{} is no size", name));
      return found->get<std::size_t>();
    }
    return 0;
  }
  std::size_t needed(std::initializer_list<const char*> names) const {
    const std::size_t n = size(names);
    if (n == 0) refuse_config(path_, fmt::format("there is no {}", *names.begin()));
    return n;
  }
  std::string text(const char* name) const {
    const auto found = all_.find(name);
    return found != all_.end() && found->is_string() ? found->get<std::string>() : "";
  }
  bool flag(const char* name, bool otherwise) const {
    const auto found = all_.find(name);
    return found != all_.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  }

 private:
  const std::string path_;
  json all_;
};

}  // namespace

parallel::estimate::TransformerSizes read_model_config(const std::string& path) {
  json all = json::parse(read_text(path, "config.json"), nullptr, false);
  if (!all.is_object()) refuse_config(path, "this is no JSON object, as a config.json is");
  const Config config(path, std::move(all));
  // The estimator knows only models with experts in all blocks, and a choice among all experts.
  const std::size_t experts = config.size({"num_local_experts", "num_experts"});
  for (const char* name : {"n_routed_experts", "shared_expert_intermediate_size",
                           "n_shared_experts", "first_k_dense_replace"}) {
    if (config.size({name}) > 0) {
      refuse_config(path, fmt::format("a mixture of experts with {}, which the estimator does not "
                                      "know",
                                      name));
    }
  }
  if (config.size({"decoder_sparse_step"}) > 1) {
    refuse_config(path, "a mixture of experts in some blocks, which the estimator does not know");
  }
  const std::string type = config.text("model_type");
  parallel::estimate::TransformerSizes s;
  s.name = type.empty() ? path : fmt::format("{} ({})", type, path);
  s.hidden_size = config.needed({"hidden_size", "n_embd", "d_model"});
  s.num_hidden_layers = config.needed({"num_hidden_layers", "n_layer"});
  s.num_attention_heads = config.needed({"num_attention_heads", "n_head"});
  s.num_key_value_heads = config.size({"num_key_value_heads"});
  s.head_dim = config.size({"head_dim"});
  s.vocab_size = config.needed({"vocab_size"});
  s.gated = is_gated(type);
  s.num_local_experts = experts;
  if (experts > 0) {
    s.num_experts_per_tok = config.needed({"num_experts_per_tok"});
    s.intermediate_size = config.size({"moe_intermediate_size"});
  }
  if (s.intermediate_size == 0)
    s.intermediate_size = s.gated ? config.needed({"intermediate_size"})
                                  : config.size({"intermediate_size", "n_inner", "ffn_dim"});
  if (s.intermediate_size == 0) s.intermediate_size = 4 * s.hidden_size;
  s.tie_word_embeddings = config.flag("tie_word_embeddings", type == "gpt2");
  return s;
}

}  // namespace tutti
