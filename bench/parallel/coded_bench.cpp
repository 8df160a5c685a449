// What lossless coding brings to all-gathers and broadcasts between hosts (parallel/coded_axis.h):
//
//     tutti run -n 2 build/bench/coded_bench [MIB] [TURNS] [always]
//
// Each rank's part is MIB (16) of bfloat16: normal weights, or random bytes, new ones in each turn.
// The same call goes over a CommunicatorAxis and over a CodedAxis, which has measured whether
// coding pays (`always`: which codes), in turn, and the results are compared. Prints medians of the
// turns, and the median and quartiles of the ratios: above 1 the coded axis is faster.
// bench/weights.py runs it on hosts with links of a given rate.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/median.h"
#include "parallel/coded_axis.h"
#include "tutti.h"

namespace {

using namespace tutti;
using namespace tutti::parallel;
using Clock = std::chrono::steady_clock;

double seconds(Communicator& comm, Axis& axis, const Call& call) {
  comm.barrier();
  const auto begin = Clock::now();
  axis.run(call);
  double mine = std::chrono::duration<double>(Clock::now() - begin).count(), longest = 0;
  comm.all_reduce(&mine, &longest, 1, DataType::float64, ReduceKind::max);
  return longest;
}

void measure(Communicator& comm, std::size_t bytes, int turns, CodedAxis::When when) {
  CommunicatorAxis plain(comm);
  CodedAxis coded(comm, {}, {.when = when});
  const std::size_t all = bytes * static_cast<std::size_t>(comm.size());
  auto* const in = static_cast<std::uint16_t*>(tutti::allocate(bytes));
  void* const out[] = {tutti::allocate(all), tutti::allocate(all)};
  std::vector<std::uint16_t> table(1 << 18);
  std::mt19937 numbers(5);
  std::normal_distribution<float> normal(0, 0.02F);
  for (std::uint16_t& v : table) {
    const float x = normal(numbers);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    v = static_cast<std::uint16_t>(bits >> 16);
  }
  if (comm.rank() == 0) {
    fmt::print("{} MiB of bfloat16 a rank; long calls are {}\n\n", bytes >> 20,
               coded.codes() ? "coded" : "not coded");
    fmt::print(
        "| call, data | plain, ms | coded axis, ms | ratio | quartiles |\n|---|---|---|---|---|\n");
  }
  std::minstd_rand random(static_cast<unsigned>(comm.rank()) + 1);
  for (const Collective collective : {Collective::all_gather, Collective::broadcast}) {
    for (const bool is_normal : {true, false}) {
      Call call = call_of(collective, in, nullptr, bytes / 2, DataType::bfloat16);
      std::vector<double> times[2], ratios;
      for (int turn = -1; turn < turns; ++turn) {
        for (std::size_t i = 0; i < bytes / 2; ++i) {
          in[i] = is_normal ? table[random() % table.size()]
                            : static_cast<std::uint16_t>(random() >> 8);
        }
        double both[2];
        for (int step = 0; step < 2; ++step) {
          const int way = (turn + 2 + step) % 2;
          call.out = out[way];
          both[way] = seconds(comm, way == 0 ? static_cast<Axis&>(plain) : coded, call);
        }
        const std::size_t got = collective == Collective::all_gather ? all : bytes;
        if (std::memcmp(out[0], out[1], got) != 0) {
          fmt::print("rank {} has other bits\n", comm.rank());
          std::exit(1);
        }
        if (turn < 0) continue;
        for (const int way : {0, 1}) times[way].push_back(both[way]);
        ratios.push_back(both[0] / both[1]);
      }
      std::ranges::sort(ratios);
      if (comm.rank() != 0) continue;
      fmt::print("| {}, {} | {:.1f} | {:.1f} | {:.2f} | {:.2f} to {:.2f} |\n", name(collective),
                 is_normal ? "normal" : "random", median(times[0]) * 1e3, median(times[1]) * 1e3,
                 median(ratios), ratios[ratios.size() / 4], ratios[3 * ratios.size() / 4]);
      std::fflush(stdout);
    }
  }
  tutti::deallocate(in);
  for (void* const memory : out) tutti::deallocate(memory);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Communicator comm = Communicator::from_environment();
    const std::size_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 16;
    const bool always = argc > 3 && std::string(argv[3]) == "always";
    measure(comm, mib << 20, argc > 2 ? std::atoi(argv[2]) : 5,
            always ? CodedAxis::When::always : CodedAxis::When::measured);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "coded_bench: %s\n", e.what());
    return 1;
  }
}
