#include "tests/collectives/cuda/cuda_canonical.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/combine.h"
#include "tests/core/core_reference.h"

namespace tutti::test {
namespace {

std::uint64_t bits_of(DataType type, double value) {
  return type == DataType::float64 ? reference::float_to<double>(type, value)
                                   : reference::float_to<float>(type, static_cast<float>(value));
}

/// Element `i` of a rank: products stay near 1, and terms of sums differ in size.
std::uint64_t number(const DeviceCase& c, int rank, std::size_t i) {
  std::uint64_t h = (i + 1) * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(rank + 1) * 0xd6e8feb86659fd93ULL;
  h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ULL;
  h ^= h >> 32;
  const double v = std::ldexp(static_cast<double>(h >> 11), -52) - 1;
  if (c.kind == ReduceKind::prod) return bits_of(c.type, v + std::copysign(0.6, v));
  return bits_of(c.type, v * (h % 3 == 0 ? 1.5 : 0.03));
}

std::size_t count_different(std::size_t size, const std::vector<std::byte>& a, const std::byte* b,
                            std::size_t first, std::size_t count) {
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(a.data() + (first + i) * size, b + i * size, size) != 0) ++different;
  }
  return different;
}

}  // namespace

std::size_t run_canonical(DeviceRanks& all, const DeviceCase& c, std::size_t* in_turn) {
  const auto ranks = static_cast<std::size_t>(all.size());
  const std::size_t size = size_of(c.type);
  const std::size_t count = (c.bytes + size - 1) / size;
  const bool scatters = c.algorithm->collective == Collective::reduce_scatter;
  const std::size_t whole = scatters ? count * ranks : count;
  DeviceRanks::Bound bound = all.bind(c);
  bound.upload();
  std::vector<std::vector<std::byte>> inputs(ranks, std::vector<std::byte>(whole * size));
  std::vector<Source> sources;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < whole; ++i) {
      const std::uint64_t bits = number(c, static_cast<int>(r), i);
      std::memcpy(inputs[r].data() + i * size, &bits, size);
    }
    device::RankLaunch& launch = bound.launches[r];
    std::memcpy(launch.in, inputs[r].data(), inputs[r].size());
    const bool scaled = c.kind == ReduceKind::pre_multiplied_sum;
    const std::uint64_t scalar = bits_of(c.type, 0.6 + 0.1 * static_cast<double>(r % 7));
    launch.scalar = launch.addresses.scalar = scalar;
    sources.push_back({inputs[r].data(), scaled ? Prescale::multiply : Prescale::none, scalar});
  }
  std::vector<std::byte> expected(whole * size);
  void* const to[] = {expected.data()};
  CombineOptions options;
  options.divisor = static_cast<std::uint32_t>(ranks);
  options.divide_result = c.kind == ReduceKind::avg;
  options.canonical = true;
  combine(c.type, *c.kind, to, sources, whole, options);
  all.launch(bound, c.type);
  all.throw_failure();
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const bool is_rooted_elsewhere =
        is_rooted(c.algorithm->collective) && r != static_cast<std::size_t>(c.root);
    if (is_rooted_elsewhere) continue;
    wrong +=
        count_different(size, expected, bound.launches[r].out, scatters ? r * count : 0, count);
  }
  if (in_turn == nullptr) return wrong;
  std::vector<std::byte> other(whole * size);
  void* const there[] = {other.data()};
  options.canonical = false;
  combine(c.type, *c.kind, there, sources, whole, options);
  *in_turn = count_different(size, expected, other.data(), 0, whole);
  return wrong;
}

}  // namespace tutti::test
