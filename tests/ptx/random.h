// Numbers that a seed decides: quick, as every choice of a schedule takes one.
#pragma once

#include <cstdint>

namespace tutti::ptx {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 0x1234567) {}

  std::uint32_t operator()() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state_ ^ state_ >> 22) >> 29);
  }
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>(std::uint64_t{(*this)()} * n >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace tutti::ptx
