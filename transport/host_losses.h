// The ranks of other hosts that are lost to this host: a bit for each rank of a communicator, in
// memory that the ranks of the host share. Their connections end at different moments, but they go
// on together only if they agree on which ranks are gone. So the first of them that loses a rank
// says so here before it reports a failure, and the others go by that. A bit that is set stays set.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class HostLosses {
 public:
  /// Bytes for `ranks` ranks of a communicator.
  static constexpr std::size_t bytes(std::size_t ranks) {
    return (ranks + kBits - 1) / kBits * sizeof(std::uint64_t);
  }
  /// In `memory`, zeros at first, which is aligned for words and outlives this.
  HostLosses(std::byte* memory, std::size_t ranks)
      : words_(reinterpret_cast<std::atomic<std::uint64_t>*>(memory), (ranks + kBits - 1) / kBits) {
  }

  void add(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    // release: a rank that sees the failure that follows sees the bit.
    words_[r / kBits].fetch_or(std::uint64_t{1} << r % kBits, std::memory_order_release);
  }
  std::vector<int> ranks() const {
    std::vector<int> all;
    for (std::size_t w = 0; w < words_.size(); ++w) {
      std::uint64_t word = words_[w].load(std::memory_order_acquire);
      for (; word != 0; word &= word - 1) {
        all.push_back(static_cast<int>(w * kBits) + std::countr_zero(word));
      }
    }
    return all;
  }

 private:
  static constexpr std::size_t kBits = 64;
  std::span<std::atomic<std::uint64_t>> words_;
};

}  // namespace tutti
