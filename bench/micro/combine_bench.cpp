// How fast is combine(), and how fast could it be? Sums of two sources, plain and streamed, beside
// memcpy() and beside loops that do nothing but move the same bytes.
//
// Bytes per second count memory traffic as the algorithm needs it: two reads and one write for a
// sum, one and one for a copy. (A plain store also reads the line it writes, uncounted.) Every
// iteration takes the next of several sets of buffers, and the sizes stand for the caches: 8 KiB,
// 256 KiB, 32 MiB.
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/combine.h"
#include "core/float_types.h"
#include "core/types.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using tutti::DataType;

constexpr std::size_t kLine = 64;

// Two sources and a destination, line-aligned, with small numbers that differ by position.
class Buffers {
 public:
  Buffers(DataType type, std::size_t bytes) : memory_(3 * bytes + kLine), bytes_(bytes) {
    for (std::size_t i = 0; i < 2 * bytes / tutti::size_of(type); ++i) {
      const auto value = static_cast<float>(i % 61) * 0.25f;
      std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
      if (type == DataType::float16) bits = tutti::to_float16(value);
      if (type == DataType::bfloat16) bits = tutti::to_bfloat16(value);
      std::memcpy(base() + i * tutti::size_of(type), &bits, tutti::size_of(type));
    }
  }

  std::uint8_t* a() { return base(); }
  std::uint8_t* b() { return base() + bytes_; }
  std::uint8_t* out() { return base() + 2 * bytes_; }

 private:
  std::uint8_t* base() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (kLine - address % kLine) % kLine;
  }
  std::vector<std::uint8_t> memory_;
  std::size_t bytes_;
};

// Runs move(buffers) for state.range(0) bytes; `streams`: arrays read and written.
template <class Move>
void measure(benchmark::State& state, DataType type, int streams, Move move) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  std::vector<Buffers> sets;
  for (int i = 0; i < (bytes >= (1u << 20) ? 2 : 4); ++i) sets.emplace_back(type, bytes);
  std::size_t next = 0;
  for (auto _ : state) {
    move(sets[next], bytes);
    benchmark::ClobberMemory();
    next = (next + 1) % sets.size();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * streams * state.range(0));
}

void combine_sum(benchmark::State& state, DataType type, std::size_t stream) {
  measure(state, type, 3, [&](Buffers& buffers, std::size_t bytes) {
    const tutti::Source sources[] = {{buffers.a()}, {buffers.b()}};
    void* const to = buffers.out();
    tutti::combine(type, tutti::ReduceKind::sum, {&to, 1}, sources, bytes / tutti::size_of(type),
                   {.stream = stream});
  });
}

void combine_copy(benchmark::State& state, std::size_t stream) {
  measure(state, DataType::float32, 2, [&](Buffers& buffers, std::size_t bytes) {
    const tutti::Source source{buffers.a()};
    void* const to = buffers.out();
    tutti::combine(DataType::float32, tutti::ReduceKind::sum, {&to, 1}, {&source, 1}, bytes / 4,
                   {.stream = stream});
  });
}

void plain_memcpy(benchmark::State& state) {
  measure(state, DataType::float32, 2, [](Buffers& buffers, std::size_t bytes) {
    std::memcpy(buffers.out(), buffers.a(), bytes);
  });
}

#if defined(__x86_64__)
// The least a sum can do: read, read, write.
template <bool stream>
__attribute__((target("avx2"))) void read_read_write(const float* a, const float* b, float* out,
                                                     std::size_t count) {
  for (std::size_t i = 0; i < count; i += 16) {
    const __m256 low = _mm256_add_ps(_mm256_load_ps(a + i), _mm256_load_ps(b + i));
    const __m256 high = _mm256_add_ps(_mm256_load_ps(a + i + 8), _mm256_load_ps(b + i + 8));
    if constexpr (stream) {
      _mm256_stream_ps(out + i, low);
      _mm256_stream_ps(out + i + 8, high);
    } else {
      _mm256_store_ps(out + i, low);
      _mm256_store_ps(out + i + 8, high);
    }
  }
  if constexpr (stream) _mm_sfence();
}

template <bool stream>
void limit(benchmark::State& state) {
  if (!__builtin_cpu_supports("avx2")) {
    state.SkipWithError("needs AVX2");
    return;
  }
  measure(state, DataType::float32, 3, [](Buffers& buffers, std::size_t bytes) {
    read_read_write<stream>(reinterpret_cast<const float*>(buffers.a()),
                            reinterpret_cast<const float*>(buffers.b()),
                            reinterpret_cast<float*>(buffers.out()), bytes / sizeof(float));
  });
}
#endif

void register_all() {
  const auto sizes = [](benchmark::internal::Benchmark* b) {
    b->Arg(8 << 10)->Arg(256 << 10)->Arg(32 << 20);
  };
  sizes(benchmark::RegisterBenchmark("memcpy", plain_memcpy));
#if defined(__x86_64__)
  sizes(benchmark::RegisterBenchmark("limit/plain", limit<false>));
  sizes(benchmark::RegisterBenchmark("limit/stream", limit<true>));
#endif
  for (const std::size_t stream : {0, 1}) {
    const std::string how = stream > 0 ? "/stream" : "/plain";
    for (const DataType type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
      const std::string name = "sum/" + std::string(tutti::name(type)) + how;
      sizes(benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { combine_sum(state, type, stream); }));
    }
    sizes(benchmark::RegisterBenchmark(
        ("copy" + how).c_str(), [=](benchmark::State& state) { combine_copy(state, stream); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("combine_target", tutti::combine_target());
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
