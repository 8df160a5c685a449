// A model for the tests of engines: parameters of several sizes and types, and gradients whose
// averages are integers, so that they are exact in every type and by every algorithm. They differ
// by rank, step, parameter and position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/convert.h"
#include "parallel/data_parallel/data_parallel.h"

namespace tutti::test {

using parallel::Parameter;

inline const std::vector<DataType> kFloat32{DataType::float32};
inline const std::vector<DataType> kAllTypes{DataType::float32, DataType::bfloat16,
                                             DataType::float64, DataType::float16};

/// `count` of them, of `types` in turn; one in eleven has no elements.
inline std::vector<Parameter> parameters_of(std::size_t count, std::vector<DataType> types) {
  std::vector<Parameter> result;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::size_t> shape{1 + i * 37 % 61, 1 + i * 5 % 7};
    if (i % 11 == 6) shape = {0, 3};
    if (i % 11 == 7) shape = {};
    result.push_back({"w" + std::to_string(i), shape, types[i % types.size()]});
  }
  return result;
}

/// What rank `rank` adds to the sum of element k: at most 6, so that sums of 8 ranks are exact in
/// bfloat16. The gradient itself is the number of ranks times this.
inline int part(int rank, std::uint64_t step, std::size_t parameter, std::size_t k) {
  return static_cast<int>((static_cast<std::size_t>(rank) * 5 + step * 3 + parameter * 7 + k * 11) %
                          13) -
         6;
}

/// Adds (first: writes) rank `rank`'s gradient of parameter i to what is at `to`.
inline void add_gradient(const Parameter& p, std::size_t i, int rank, int ranks, std::uint64_t step,
                         void* to, bool first = true) {
  std::vector<float> values(p.count());
  if (!first) convert(to, p.type, values.data(), DataType::float32, values.size());
  for (std::size_t k = 0; k < values.size(); ++k) {
    values[k] += static_cast<float>(ranks * part(rank, step, i, k));
  }
  convert(values.data(), DataType::float32, to, p.type, values.size());
}

/// The sum of the parts of ranks [0, ranks) in the steps.
inline std::vector<float> sum_of(const Parameter& p, std::size_t i, int ranks,
                                 const std::vector<std::uint64_t>& steps) {
  std::vector<float> sum(p.count());
  for (std::size_t k = 0; k < sum.size(); ++k) {
    for (const std::uint64_t step : steps) {
      for (int r = 0; r < ranks; ++r) sum[k] += static_cast<float>(part(r, step, i, k));
    }
  }
  return sum;
}

inline std::vector<float> values_at(const Parameter& p, const void* at) {
  std::vector<float> values(p.count());
  convert(at, p.type, values.data(), DataType::float32, values.size());
  return values;
}

/// 0 to size - 1 in an order that `seed` determines.
inline std::vector<std::size_t> shuffled(std::size_t size, std::uint64_t seed) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  for (std::size_t i = size; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

/// One backward of `rank`: gradients become ready in an order of its own.
inline void backward(parallel::DataParallel& engine, int rank, int ranks, std::uint64_t step,
                     bool first = true) {
  for (const std::size_t i :
       shuffled(engine.size(), step * 64 + static_cast<std::uint64_t>(rank))) {
    add_gradient(engine.parameter(i), i, rank, ranks, step, engine.gradient(i), first);
    engine.ready(i);
  }
}

/// So many that there is an order to keep.
inline parallel::DataParallelPolicy small_buckets(parallel::DataParallelPolicy policy = {}) {
  policy.bucket_bytes = 1000;
  policy.first_bucket_bytes = 200;
  return policy;
}

/// "" where the gradients are the averages of backward() of all ranks, in `steps`.
inline std::string wrong_average(const parallel::DataParallel& engine, int ranks,
                                 const std::vector<std::uint64_t>& steps) {
  for (std::size_t i = 0; i < engine.size(); ++i) {
    const Parameter& p = engine.parameter(i);
    const auto is = values_at(p, engine.gradient(i)), should = sum_of(p, i, ranks, steps);
    for (std::size_t k = 0; k < is.size(); ++k) {
      if (is[k] == should[k]) continue;
      return p.name + "[" + std::to_string(k) + "] is " + std::to_string(is[k]) + ", not " +
             std::to_string(should[k]);
    }
  }
  return "";
}

}  // namespace tutti::test
