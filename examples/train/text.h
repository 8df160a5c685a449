// The text that is trained on: bytes, so that any file will do, and 256 tokens
// are enough.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace train {

struct Batch {
  at::Tensor tokens,
      next;  // [B, T] of int64: bytes, and those that follow on them
};

class Text {
 public:
  /// A file, or a folder: then its files *.h, *.cpp and *.md, in the order of their names. Throws
  /// tutti::Error(invalid_argument) where there is nothing to read.
  explicit Text(const std::string& path);

  std::size_t size() const { return bytes_.size(); }
  /// For ranks to compare: what is on several hosts may differ.
  std::string describe() const;
  /// Sequences [first, first + count) of step `step`: the same for the same
  /// seed, however the sequences of a step are dealt out to ranks.
  Batch batch(std::uint64_t seed, std::uint64_t step, std::int64_t first, std::int64_t count,
              std::int64_t length) const;

 private:
  std::string bytes_;
};

}  // namespace train
