#include "parallel/estimate/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/number.h"

namespace tutti::parallel::estimate {
namespace {

std::size_t divide_up(std::size_t n, std::size_t by) { return (n + by - 1) / by; }

// Sizes as their makers published them. The arXiv numbers are of the papers.
const std::array kKnown{
    TransformerSizes{"1B", 2048, 16, 32, 8, 64, 8192, 128256, true, true},   // Llama 3.2
    TransformerSizes{"3B", 3072, 28, 24, 8, 128, 8192, 128256, true, true},  // Llama 3.2
    TransformerSizes{"7B", 4096, 32, 32, 32, 128, 11008, 32000},             // Llama 2, 2307.09288
    TransformerSizes{"8B", 4096, 32, 32, 8, 128, 14336, 128256},   // Llama 3.1, 2407.21783
    TransformerSizes{"13B", 5120, 40, 40, 40, 128, 13824, 32000},  // Llama 2
    TransformerSizes{"70B", 8192, 80, 64, 8, 128, 28672, 128256},  // Llama 3.1
    TransformerSizes{"175B", 12288, 96, 96, 96, 128, 49152, 50257, false,
                     true},                                            // GPT-3, 2005.14165
    TransformerSizes{"405B", 16384, 126, 128, 8, 128, 53248, 128256},  // Llama 3.1
    TransformerSizes{"8x7B", 4096, 32, 32, 8, 128, 14336, 32000, true, false, 8,
                     2},  // Mixtral, 2401.04088
    TransformerSizes{"8x22B", 6144, 56, 48, 8, 128, 16384, 32768, true, false, 8, 2},  // Mixtral
};

/// Of a text such as "34B" or "1.5B".
std::optional<double> number_of_parameters(std::string_view text) {
  if (text.size() < 2) return std::nullopt;
  const char unit = text.back();
  const double times = unit == 'B' || unit == 'b'   ? 1e9
                       : unit == 'M' || unit == 'm' ? 1e6
                       : unit == 'T' || unit == 't' ? 1e12
                                                    : 0;
  const auto number = parse_number<double>(text.substr(0, text.size() - 1));
  if (times == 0 || !number || !(*number > 0) || *number * times > 1e14) return std::nullopt;
  return *number * times;
}

/// Llama's proportions: heads of 128, a width of 128 for each layer, an MLP of 3.5 times the width.
TransformerSizes in_proportion(std::string_view text, double parameters) {
  constexpr std::size_t kHead = 128;
  TransformerSizes best;
  double nearest = HUGE_VAL;
  for (std::size_t layers = 2; layers <= 512; ++layers) {
    TransformerSizes s{.name = std::string(text),
                       .hidden_size = layers * kHead,
                       .num_hidden_layers = layers,
                       .num_attention_heads = layers,
                       .head_dim = kHead,
                       .intermediate_size = layers * kHead * 7 / 2,
                       .vocab_size = 128256};
    const double off =
        std::abs(std::log(static_cast<double>(transformer(s).parameters()) / parameters));
    if (off < nearest) {
      nearest = off;
      best = s;
    }
  }
  best.name = fmt::format("{} (no published model: {} layers of width {})", text,
                          best.num_hidden_layers, best.hidden_size);
  return best;
}

void need(std::size_t value, const char* name, std::size_t most = 1'000'000'000) {
  if (value > 0 && value <= most) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("a model needs {} between 1 and {}, not {}", name, most, value));
}

/// More than any model has, and few enough to be counted one by one in each mix.
constexpr std::size_t kMostExperts = 4096, kMostMatrices = 100'000;

void refuse_too_many(const Model& m) {
  const std::size_t of_a_block = m.block.parameters.size() + m.experts * m.expert.parameters.size();
  if (m.blocks * of_a_block <= kMostMatrices) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("num_hidden_layers {} are too many: with {} parameters each, an estimate "
                          "counts {} layers at most",
                          m.blocks, of_a_block, kMostMatrices / of_a_block));
}

}  // namespace

std::size_t ParameterShape::local_rows(std::size_t tensor) const {
  return divided == Divided::rows ? divide_up(rows, tensor) : rows;
}

std::size_t ParameterShape::local_count(std::size_t tensor) const {
  return local_rows(tensor) * (divided == Divided::columns ? divide_up(columns, tensor) : columns);
}

std::size_t Part::count() const { return local_count(1); }

std::size_t Part::local_count(std::size_t tensor) const {
  return std::accumulate(
      parameters.begin(), parameters.end(), std::size_t{0},
      [&](std::size_t sum, const ParameterShape& p) { return sum + p.local_count(tensor); });
}

std::size_t Model::parameters() const {
  return embedding.count() + blocks * (block.count() + experts * expert.count()) + output.count();
}

double Model::forward_flops(std::size_t sequence) const {
  // Two for each element of a matrix. An embedding is looked up; tied, its matrix makes the logits.
  const double matrices = static_cast<double>(blocks * active_of_block() + vocabulary * width);
  return 2 * matrices + attention_flops(sequence);
}

double Model::attention_flops(std::size_t sequence) const {
  // Scores and their product with the values: 2 * 2 for each token that a token sees, half of them.
  return static_cast<double>(blocks * heads * head_size) * 2 * static_cast<double>(sequence);
}

Model transformer(const TransformerSizes& s) {
  need(s.hidden_size, "hidden_size");
  need(s.num_hidden_layers, "num_hidden_layers");
  need(s.num_attention_heads, "num_attention_heads");
  need(s.intermediate_size, "intermediate_size");
  need(s.vocab_size, "vocab_size");
  const std::size_t width = s.hidden_size, heads = s.num_attention_heads;
  const std::size_t kv = s.num_key_value_heads == 0 ? heads : s.num_key_value_heads;
  if (heads % kv != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("num_key_value_heads {} does not divide num_attention_heads {}", kv, heads));
  }
  if (s.head_dim == 0 && width % heads != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("num_attention_heads {} does not divide hidden_size {}, and there is "
                            "no head_dim",
                            heads, width));
  }
  Model m{.name = s.name,
          .width = width,
          .vocabulary = s.vocab_size,
          .blocks = s.num_hidden_layers,
          .heads = heads,
          .kv_heads = kv,
          .head_size = s.head_dim > 0 ? s.head_dim : width / heads,
          .tied = s.tie_word_embeddings};
  need(m.head_size, "head_dim");
  const std::size_t all_heads = heads * m.head_size, kv_heads = kv * m.head_size;
  m.embedding = {.name = "embedding",
                 .parameters = {{"embedding", s.vocab_size, width, Divided::rows}}};
  m.block.name = "block";
  m.block.pairs = s.num_local_experts > 0 ? 1 : 2;  // attention and MLP
  m.block.parameters = {{"attention norm", width},
                        {"query", all_heads, width, Divided::rows},
                        {"key", kv_heads, width, Divided::rows},
                        {"value", kv_heads, width, Divided::rows},
                        {"attention output", width, all_heads, Divided::columns},
                        {"MLP norm", width}};
  m.experts = s.num_local_experts;
  m.top_k = s.num_experts_per_tok;
  if (m.experts > 0) {
    need(m.experts, "num_local_experts", kMostExperts);
    need(m.top_k, "num_experts_per_tok");
    if (m.top_k > m.experts) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("num_experts_per_tok {} is more than the {} experts", m.top_k, m.experts));
    }
    m.block.parameters.push_back({"router", m.experts, width});
    m.expert.name = "expert";
  }
  Part& mlp = m.experts > 0 ? m.expert : m.block;
  if (s.gated) mlp.parameters.push_back({"gate", s.intermediate_size, width, Divided::rows});
  mlp.parameters.push_back({"up", s.intermediate_size, width, Divided::rows});
  mlp.parameters.push_back({"down", width, s.intermediate_size, Divided::columns});
  refuse_too_many(m);
  // The inputs of both norms, and of what follows them.
  m.block.kept_whole = 4 * static_cast<double>(width);
  // Queries, keys, values, attention's output; then what the MLP's activation gets, and makes.
  m.block.kept_divided = static_cast<double>(2 * all_heads + 2 * kv_heads);
  mlp.kept_divided += static_cast<double>((s.gated ? 3 : 2) * s.intermediate_size);
  if (m.experts > 0) m.expert.kept_whole = static_cast<double>(width);  // what it makes
  m.block.kept_float32 = static_cast<double>(heads);  // attention keeps a log-sum-exp of each head
  m.output = {.name = "output", .parameters = {{"norm", width}}};
  if (!m.tied) m.output.parameters.push_back({"output", s.vocab_size, width, Divided::rows});
  m.output.kept_whole = 2 * static_cast<double>(width);
  // The logits and their gradient, in float32.
  m.output.kept_float32 = 2 * static_cast<double>(s.vocab_size);
  return m;
}

std::span<const TransformerSizes> known_transformers() { return kKnown; }

std::optional<TransformerSizes> transformer_of(std::string_view size) {
  const auto upper = [](std::string text) {
    std::ranges::transform(text, text.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    return text;
  };
  const auto known = std::ranges::find(kKnown, upper(std::string(size)),
                                       [&](const TransformerSizes& s) { return upper(s.name); });
  if (known != kKnown.end()) return *known;
  const auto parameters = number_of_parameters(size);
  if (!parameters) return std::nullopt;
  return in_proportion(size, *parameters);
}

}  // namespace tutti::parallel::estimate
