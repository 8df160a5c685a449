// The sequence of elements in a message, as a fingerprint: two sequences are compared in constant
// time, however long they are, and however they were made.
#pragma once

#include <cstdint>

#include "bindings/mpi/element.h"

namespace tutti::mpi {

/// A polynomial over the elements, modulo the prime 2^61 - 1. Sequences that differ have equal
/// fingerprints once in 2^61 / length.
class Signature {
 public:
  Signature() = default;
  static Signature of(Element element);

  /// The sequence of this one and then the other.
  Signature then(const Signature& next) const;
  /// n times this one, in O(log n).
  Signature times(std::uint64_t n) const;

  std::uint64_t length() const { return length_; }
  std::uint64_t fingerprint() const { return sum_; }
  /// Whether a part is of bytes or packed: such a message may be received as anything.
  bool open() const { return open_; }
  /// Whether elements sent with one signature may be received with the other.
  bool matches(const Signature& other) const {
    return open_ || other.open_ || (sum_ == other.sum_ && length_ == other.length_);
  }

 private:
  std::uint64_t length_ = 0;
  std::uint64_t power_ = 1;  // base to the length
  std::uint64_t sum_ = 0;
  bool open_ = false;
};

}  // namespace tutti::mpi
