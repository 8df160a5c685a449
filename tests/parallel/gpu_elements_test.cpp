// What a GPU computes of an element has the bits of the host's vectorised loops: the same source
// runs here, an element at a time.
#include "parallel/gpu_elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "core/convert.h"
#include "parallel/device.h"

namespace tutti::parallel {
namespace {

constexpr std::size_t kCount = 4000;
constexpr DataType kTypes[] = {DataType::float32, DataType::bfloat16, DataType::float16,
                               DataType::float64};

/// Of many sizes, with what is special at the end.
std::vector<std::byte> values(DataType type, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> wide(kCount);
  for (double& v : wide) v = normal(random) * std::exp2(static_cast<int>(random() % 40) - 20);
  const double special[] = {
      0.0, -0.0, 1e-45, -3e-39, 65504, 1e30, std::numeric_limits<double>::infinity()};
  std::copy(std::begin(special), std::end(special), wide.end() - std::size(special));
  std::vector<std::byte> result(kCount * size_of(type));
  convert(wide.data(), DataType::float64, result.data(), type, kCount);
  return result;
}

template <class Element>
void for_each(const Element& element) {
  for (std::size_t i = 0; i < kCount; ++i) element(i);
}

TEST(GpuElements, CopyRowsAsTheHostDoes) {
  const auto in = values(DataType::float32, 1);
  constexpr std::size_t kRows = 50, kBytes = 24, kFrom = 40, kTo = 32;
  std::vector<std::byte> host(kRows * kTo), words = host, bytes = host;
  host_device().copy_rows(host.data(), kTo, in.data(), kFrom, kBytes, kRows);
  const auto copy = [&]<class Word>(std::vector<std::byte>& to) {
    const gpu_elements::CopyRows<Word> element{to.data(), kTo, in.data(), kFrom,
                                               kBytes / sizeof(Word)};
    for (std::size_t i = 0; i < kRows * kBytes / sizeof(Word); ++i) element(i);
  };
  copy.template operator()<std::uint64_t>(words);
  copy.template operator()<std::byte>(bytes);
  EXPECT_EQ(words, host);
  EXPECT_EQ(bytes, host);
}

TEST(GpuElements, ConvertAsTheHostDoes) {
  for (const DataType from : kTypes) {
    for (const DataType to : kTypes) {
      if ((from == DataType::float64) != (to == DataType::float64)) continue;
      const auto in = values(from, 1);
      std::vector<std::byte> host(kCount * size_of(to)), gpu = host;
      host_device().convert(from, in.data(), to, host.data(), kCount);
      if (from == DataType::float64) {
        for_each(gpu_elements::Convert<double>{from, in.data(), to, gpu.data()});
      } else {
        for_each(gpu_elements::Convert<float>{from, in.data(), to, gpu.data()});
      }
      EXPECT_EQ(host, gpu) << name(from) << " to " << name(to);
    }
  }
}

TEST(GpuElements, AddAsTheHostDoes) {
  for (const DataType type : kTypes) {
    const auto in = values(type, 2), before = values(type, 3);
    for (const unsigned divisor : {0u, 1u, 2u, 3u, 7u, 64u}) {
      for (const void* added :
           {static_cast<const void*>(nullptr), static_cast<const void*>(before.data())}) {
        std::vector<std::byte> host(kCount * size_of(type)), gpu = host;
        host_device().add(type, host.data(), in.data(), divisor, added, kCount);
        if (type == DataType::float64) {
          for_each(gpu_elements::Add<double>{type, gpu.data(), in.data(), divisor, added});
        } else {
          for_each(gpu_elements::Add<float>{type, gpu.data(), in.data(), divisor, added});
        }
        EXPECT_EQ(host, gpu) << name(type) << " / " << divisor << (added != nullptr ? " +" : "");
      }
    }
  }
}

/// A master of type T, its states, and gradients, some steps on.
template <class T>
struct Trained {
  static constexpr DataType kType = sizeof(T) == 8 ? DataType::float64 : DataType::float32;
  explicit Trained(DataType narrow) : compute_type(narrow), compute(kCount * size_of(narrow)) {
    const auto first = values(kType, 4);
    master.resize(kCount);
    std::memcpy(master.data(), first.data(), first.size());
  }
  Optimizer::Slice slice(const std::vector<std::byte>& gradient, std::uint64_t step) {
    return {.type = kType,
            .master = master.data(),
            .state = {state[0].data(), state[1].data()},
            .gradient_type = compute_type,
            .gradient = gradient.data(),
            .compute_type = compute_type,
            .compute = compute.data(),
            .count = kCount,
            .gradient_scale = 0.7,
            .decay_scale = 1.5,
            .step = step};
  }
  gpu_elements::Slice<T> elements(const Optimizer::Slice& s) {
    return {static_cast<T*>(s.master),
            {static_cast<T*>(s.state[0]), static_cast<T*>(s.state[1])},
            s.gradient_type,
            s.gradient,
            s.compute_type,
            s.compute};
  }
  void expect_equal(const Trained& other) const {
    const auto bits = [](const auto& v) {
      std::vector<std::byte> b(v.size() * sizeof(v[0]));
      std::memcpy(b.data(), v.data(), b.size());
      return b;
    };
    EXPECT_EQ(bits(master), bits(other.master));
    EXPECT_EQ(bits(state[0]), bits(other.state[0]));
    EXPECT_EQ(bits(state[1]), bits(other.state[1]));
    EXPECT_EQ(compute, other.compute);
  }

  DataType compute_type;
  std::vector<T> master, state[2] = {std::vector<T>(kCount), std::vector<T>(kCount)};
  std::vector<std::byte> compute;
};

template <class T, template <class> class Element, class O>
void expect_as_on_the_host(const O& optimizer, DataType narrow) {
  Trained<T> host(narrow), gpu(narrow);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    // Without infinities, which are a NaN soon, of whatever sign.
    auto gradient = values(narrow, 5 + static_cast<unsigned>(step));
    std::memset(gradient.data() + (kCount - 2) * size_of(narrow), 0, 2 * size_of(narrow));
    optimizer.update(host.slice(gradient, step));
    const Optimizer::Slice slice = gpu.slice(gradient, step);
    for_each(Element<T>(gpu.elements(slice), optimizer.constants(slice)));
  }
  gpu.expect_equal(host);
}

template <template <class> class Element, class O>
void expect_as_on_the_host(const O& optimizer) {
  expect_as_on_the_host<double, Element>(optimizer, DataType::float64);
  for (const DataType narrow : {DataType::float32, DataType::bfloat16, DataType::float16}) {
    expect_as_on_the_host<float, Element>(optimizer, narrow);
  }
}

TEST(GpuElements, UpdateAsTheHostDoes) {
  expect_as_on_the_host<gpu_elements::AdamW>(AdamW{});
  expect_as_on_the_host<gpu_elements::AdamW>(AdamW{{.learning_rate = 0.3, .weight_decay = 0}});
  expect_as_on_the_host<gpu_elements::Sgd>(Sgd{});
  expect_as_on_the_host<gpu_elements::Sgd>(
      Sgd{{.learning_rate = 0.3, .momentum = 0.9, .weight_decay = 0.1}});
  expect_as_on_the_host<gpu_elements::Sgd>(
      Sgd{{.learning_rate = 0.3, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}});
}

}  // namespace
}  // namespace tutti::parallel
