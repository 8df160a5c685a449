// What an estimate has to know of a model: its parameters, in the units that ranks gather and
// reduce together, what a token costs to compute, and what its forward keeps for the backward.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::parallel::estimate {

/// How tensor-parallel ranks divide a parameter.
enum class Divided : unsigned char { no, rows, columns };

struct ParameterShape {
  std::string name;
  std::size_t rows = 0, columns = 1;
  Divided divided = Divided::no;

  std::size_t count() const { return rows * columns; }
  /// Elements of a tensor-parallel rank.
  std::size_t local_rows(std::size_t tensor) const;
  std::size_t local_count(std::size_t tensor) const;
};

/// Parameters that ranks gather as one unit.
struct Part {
  std::string name;
  std::vector<ParameterShape> parameters;
  int pairs = 0;  // column-parallel layers, each with its row-parallel one
  /// Elements of the compute type that the forward of one token keeps: those that tensor-parallel
  /// ranks divide, and those that each of them has (a part, with sequence parallelism).
  double kept_divided = 0, kept_whole = 0;
  double kept_float32 = 0;  // more numbers, in float32, which they divide

  std::size_t count() const;
  std::size_t local_count(std::size_t tensor) const;
};

/// An embedding, equal blocks, and an output. With experts, `block` has their router, and no MLP.
struct Model {
  std::string name;
  std::size_t width = 0, vocabulary = 0, blocks = 0, heads = 0, kv_heads = 0, head_size = 0;
  Part embedding{}, block{}, output{};
  bool tied = false;        // the output's matrix is the embedding's
  std::size_t experts = 0;  // of a block
  std::size_t top_k = 1;    // the experts to which a token goes
  Part expert{};            // one of them; what it keeps is that of a row

  std::size_t parameters() const;
  /// Parameters of a block with which one token computes.
  std::size_t active_of_block() const { return block.count() + top_k_of() * expert.count(); }
  std::size_t top_k_of() const { return experts == 0 ? 0 : top_k; }
  /// Multiplications and additions of a token's forward, with attention (causal) to `sequence`
  /// tokens.
  double forward_flops(std::size_t sequence) const;
  /// Operations of the attention alone, without its matrices.
  double attention_flops(std::size_t sequence) const;
};

/// The sizes of a decoder-only transformer, by the names of Hugging Face's config.json.
struct TransformerSizes {
  std::string name;
  std::size_t hidden_size = 0, num_hidden_layers = 0, num_attention_heads = 0;
  std::size_t num_key_value_heads = 0;  // 0: as many as heads
  std::size_t head_dim = 0;             // 0: hidden_size / heads
  std::size_t intermediate_size = 0, vocab_size = 0;
  bool gated = true;  // the MLP has three matrices (SwiGLU), or two
  bool tie_word_embeddings = false;
  std::size_t num_local_experts = 0;  // 0: one MLP for all tokens; intermediate_size is an expert's
  std::size_t num_experts_per_tok = 2;
};

/// Throws Error(invalid_argument), which names the size that is missing or does not divide.
Model transformer(const TransformerSizes& sizes);

/// Published models by their size: "7B" (Llama 2), "8B", "70B", "405B" (Llama 3.1), "175B" (GPT-3),
/// "8x7B", "8x22B" (Mixtral).
std::span<const TransformerSizes> known_transformers();
/// The known one of that name; for another number of parameters ("34B", "900M") sizes in the same
/// proportions, with a name that says so. None: the text is no number of parameters.
std::optional<TransformerSizes> transformer_of(std::string_view size);

}  // namespace tutti::parallel::estimate
