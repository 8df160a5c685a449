#include "parallel/tensor/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/tensor/overlap.h"

namespace tutti::parallel::tensor {

Vocabulary::Vocabulary(std::size_t all, const Axis& axis, std::size_t multiple) : tokens(all) {
  if (multiple == 0) {
    throw Error(ErrorCode::invalid_argument, "a vocabulary padded to a multiple of 0; 1 is none");
  }
  const auto ranks = static_cast<std::size_t>(axis.size());
  const std::size_t each = ranks * multiple;
  local = (tokens + each - 1) / each * multiple;
  padded = local * ranks;
  begin = local * static_cast<std::size_t>(axis.rank());
}

std::size_t Vocabulary::real() const { return std::min(local, tokens - std::min(tokens, begin)); }

namespace {

/// All ranks have the same, or all throw; then they can be sure of what they compute from it.
Vocabulary agreed(Axis& axis, const std::string& what, std::size_t tokens, std::size_t multiple,
                  const std::string& more) {
  const std::string line =
      fmt::format("{} tokens padded to a multiple of {}, {}", tokens, multiple, more);
  agree(axis, what, {&line, 1});
  layer_math_of(axis.device(), what);
  return {tokens, axis, multiple};
}

}  // namespace

VocabularyEmbedding::VocabularyEmbedding(Axis& axis, std::string name, std::size_t tokens,
                                         std::size_t width, DataType type, EmbeddingOptions options)
    : what_(fmt::format("embedding '{}'", name)),
      width_(width),
      type_(type),
      options_(options),
      vocabulary_(agreed(
          axis, what_, tokens, options.multiple,
          fmt::format("width {}, {}, sequence {}", width, tutti::name(type), options.sequence))),
      mapper_(axis, what_),
      memory_(MemoryPool::Reuse::no, axis.device()) {}

void VocabularyEmbedding::check(std::span<const Token> ids) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<std::size_t>(ids[i]) < vocabulary_.tokens) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: token {} at position {} is outside of the vocabulary, which has "
                            "{} tokens from 0",
                            what_, ids[i], i, vocabulary_.tokens));
  }
  if (options_.sequence) share_of(mapper_.axis(), what_, "tokens of the sequence", ids.size());
}

LayerMath::Chosen VocabularyEmbedding::chosen(std::span<const Token> ids) const {
  return {type_, width_, ids, static_cast<Token>(vocabulary_.begin), vocabulary_.local};
}

void VocabularyEmbedding::forward(std::span<const Token> ids, const void* weight, void* out) {
  check(ids);
  const Extent whole = extent(ids);
  mapper_.axis().device().check_memory(
      what_, {{"the weight", weight, weight_count()}, {"the output", out, whole.count()}});
  std::byte* const rows = options_.sequence ? grown(whole_, whole.count() * size_of(type_), memory_)
                                            : static_cast<std::byte*>(out);
  math().take_rows(chosen(ids), weight, rows);
  mapper_.forward(options_.sequence ? kSequenceScatter : kReduce, rows, out, whole, type_);
}

void VocabularyEmbedding::backward(std::span<const Token> ids, const void* dout, void* dweight) {
  check(ids);
  const Extent whole = extent(ids);
  mapper_.axis().device().check_memory(
      what_, {{"the output's gradient", dout, whole.count()},
              {"the place for the weight's gradient", dweight, weight_count()}});
  if (options_.sequence) {
    std::byte* const gathered = grown(whole_, whole.count() * size_of(type_), memory_);
    mapper_.backward(kSequenceScatter, dout, gathered, whole, type_);
    dout = gathered;
  }
  math().add_to_chosen(chosen(ids), dout, dweight);
}

VocabularyCrossEntropy::VocabularyCrossEntropy(Axis& axis, std::string name, std::size_t tokens,
                                               DataType type, CrossEntropyOptions options)
    : axis_(axis),
      what_(fmt::format("cross entropy '{}'", name)),
      type_(type),
      options_(options),
      vocabulary_(
          agreed(axis, what_, tokens, options.multiple,
                 fmt::format("{}, ignore_index {}", tutti::name(type), options.ignore_index))),
      label_(axis.new_label(what_)) {}

}  // namespace tutti::parallel::tensor
