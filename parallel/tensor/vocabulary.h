// A vocabulary that the ranks of an axis divide among each other: the embedding turns tokens into
// vectors; the same matrix turns vectors into logits, which have a loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"
#include "../layer_math.h"
#include "../memory_pool.h"
#include "pairs.h"

namespace tutti::parallel::tensor {

using Token = std::int64_t;

/// The tokens of a rank. The vocabulary is padded, so that all ranks have equally many tokens, and
/// a number that suits the multiplication.
struct Vocabulary {
  /// `multiple`: the number of tokens of a rank is a multiple of it.
  Vocabulary(std::size_t tokens, const Axis& axis, std::size_t multiple = 1);

  std::size_t tokens;        // that there are
  std::size_t padded;        // a multiple of the ranks
  std::size_t begin;         // this rank's first
  std::size_t local;         // and how many it has, those of the padding included
  std::size_t real() const;  // those without the padding
};

struct EmbeddingOptions {
  std::size_t multiple = 1;  // of the vocabulary's padding
  bool sequence = false;     // of the vectors each rank gets a slice of the rows
};

/// The embedding, a matrix with a row for each token. A rank has the rows of its tokens.
class VocabularyEmbedding {
 public:
  /// Collective; throws as the linear layers' do.
  VocabularyEmbedding(Axis& axis, std::string name, std::size_t tokens, std::size_t width,
                      DataType type, EmbeddingOptions options = {});

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Elements that this rank has.
  std::size_t weight_count() const { return vocabulary_.local * width_; }

  /// `ids`, the same on all ranks; out: a row for each, or, with `sequence`, for each of this
  /// rank's slice. Throws Error(invalid_argument), on all ranks alike, for a token out of range.
  void forward(std::span<const Token> ids, const void* weight, void* out);
  /// Adds to the gradient of the weight. The order of additions is that of `ids`.
  void backward(std::span<const Token> ids, const void* dout, void* dweight);

  MemoryUse memory() const { return memory_.total(); }

 private:
  void check(std::span<const Token> ids) const;
  Extent extent(std::span<const Token> ids) const { return {1, ids.size(), width_}; }
  LayerMath& math() const { return *mapper_.axis().device().layer_math(); }
  LayerMath::Chosen chosen(std::span<const Token> ids) const;

  const std::string what_;
  const std::size_t width_;
  const DataType type_;
  const EmbeddingOptions options_;
  Vocabulary vocabulary_;
  Mapper mapper_;
  MemoryPool memory_;
  Buffer whole_;
};

struct CrossEntropyOptions {
  std::size_t multiple = 1;   // of the vocabulary's padding: those columns count for nothing
  Token ignore_index = -100;  // rows with this target have no loss and no gradient
};

/// The loss of each row of logits: the negative logarithm of the softmax of the row's target. A
/// rank has the columns of its tokens. Computed in float64, whatever type logits have. Two
/// all-reduces in the forward (a row's largest logit, and its sum of exponentials together with its
/// target's logit), none in the backward.
class VocabularyCrossEntropy {
 public:
  /// The data that the backward needs. Any number of micro-batches may have one at a time.
  struct Saved {
    std::vector<double> loss;     // of each row; 0 where it is ignored
    std::vector<double> log_sum;  // the logarithm of the sum of exponentials
    std::size_t counted = 0;      // rows that are not ignored
    double mean() const;          // of their losses; 0 where there are none
  };

  /// Collective; throws as the linear layers' do.
  VocabularyCrossEntropy(Axis& axis, std::string name, std::size_t tokens, DataType type,
                         CrossEntropyOptions options = {});

  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// `logits`: a row for each target, of vocabulary().local columns. Throws
  /// Error(invalid_argument), on all ranks alike, for a target out of range; then `saved` is of no
  /// targets.
  void forward(const void* logits, std::span<const Token> targets, Saved& saved);
  /// dlogits, which may be where logits are, is `scale` times the gradient of the sum of all
  /// losses: 1 / counted for their mean.
  void backward(const void* logits, std::span<const Token> targets, const Saved& saved,
                double scale, void* dlogits) const;

 private:
  void check(std::span<const Token> targets) const;
  LayerMath& math() const { return *axis_.device().layer_math(); }
  LayerMath::Logits logits_of(const void* logits, std::span<const Token> targets) const;
  void reduce(std::vector<double>& values, ReduceKind kind, const char* place);

  Axis& axis_;
  const std::string what_;
  const DataType type_;
  const CrossEntropyOptions options_;
  Vocabulary vocabulary_;
  const std::uint16_t label_;
};

}  // namespace tutti::parallel::tensor
