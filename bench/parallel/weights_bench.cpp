// What coding brings where weights go from one job to another:
//
//     tutti run -n 2 build/bench/weights_bench FOLDER [MIB] [TURNS]
//
// The first half of the ranks sends MIB (64) of bfloat16 to the other half, version after version:
// as they are, and as the jobs choose after they have measured their link, in turn. FOLDER is where
// the jobs meet. bench/weights.py runs it on hosts with links of a given rate. Prints medians of
// the turns, and the median and the quartiles of the ratios: above 1 coding is faster; and the time
// of all versions, with those by which the jobs learn, as a part of that of plain ones. The time of
// a version is that from the moment in which all ranks are ready to the one in which the last
// receiver has it. Receivers compare what they have by both ways.
//
//     normal     weights, without a look for changes: planes
//     random     bytes, the same
//     2 %        of the elements have changed since the last version, all over the tensor
//     all        the elements have changed, normal weights
//     all random the same with random bytes
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/median.h"
#include "parallel/reshard/buffers.h"
#include "parallel/weights/receiver.h"
#include "parallel/weights/sender.h"
#include "tutti.h"

namespace {

using namespace tutti;
using namespace tutti::parallel;
using Clock = std::chrono::steady_clock;
using Random = std::minstd_rand;

constexpr std::uint64_t kColumns = 4096;

/// bfloat16 bits of normal numbers, as weights of a layer, from a table.
class Normal {
 public:
  Normal() : values_(1 << 18) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.02F);
    for (std::uint16_t& v : values_) {
      const float x = normal(random);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &x, sizeof bits);
      v = static_cast<std::uint16_t>(bits >> 16);
    }
  }
  std::uint16_t operator()(Random& random) const { return values_[random() % values_.size()]; }

 private:
  std::vector<std::uint16_t> values_;
};

/// A job of the benchmark, by one of the two ways.
struct Side {
  Side(Communicator& job, const reshard::Layout& layout, bool sends, const std::string& folder,
       const weights::Ways& ways) {
    weights::WeightsOptions options;
    options.ways = ways;
    const auto place = weights::folder_place(folder);
    if (sends) sender = std::make_unique<weights::Sender>(job, layout, place, options);
    if (!sends) receiver = std::make_unique<weights::Receiver>(job, layout, place, options);
  }

  std::unique_ptr<weights::Sender> sender;
  std::unique_ptr<weights::Receiver> receiver;
};

class Bench {
 public:
  Bench(Communicator& world, const std::string& folder, std::uint64_t mib)
      : world_(world),
        half_(world.size() / 2),
        sends_(world.rank() < half_),
        job_(world.split(sends_ ? 0 : 1, world.rank())),
        layout_(job_.size()),
        folder_(folder),
        random_(static_cast<unsigned>(world.rank()) + 1) {
    add_sharded(layout_, {"w", DataType::bfloat16, {(mib << 20) / 2 / kColumns, kColumns}},
                {.mesh = {job_.size()}, .placements = {reshard::shard(sends_ ? 0 : 1)}});
    buffers_ = reshard::Buffers(layout_, job_.rank());
  }

  /// `next` makes the sender's next version. The first turns, in which the jobs meet and learn
  /// which way is the faster one, do not count.
  template <class Next>
  void measure(const char* what, const weights::Ways& ways, int turns, const Next& next) {
    Side plain(job_, layout_, sends_, fmt::format("{}/plain{}", folder_, cases_),
               {.changes = false, .planes = false});
    Side coded(job_, layout_, sends_, fmt::format("{}/coded{}", folder_, cases_), ways);
    ++cases_;
    std::vector<double> times[2], ratios;
    double all[2] = {};
    int coded_versions = 0;
    for (int turn = -6; turn < turns; ++turn) {
      if (sends_) next(values());
      double both[2];
      for (const int way : turn % 2 == 0 ? std::array{0, 1} : std::array{1, 0}) {
        both[way] = seconds(way == 0 ? plain : coded);
        if (turn > -6) all[way] += both[way];  // in the first one the jobs meet
        if (way == 0) continue;
        coded_versions += sent_.coded > 0 ? 1 : 0;
        part_ = sent_.plain == 0
                    ? 1
                    : static_cast<double>(sent_.coded) / static_cast<double>(sent_.plain);
      }
      compare(plain, coded);
      if (turn < 0) continue;
      for (const int way : {0, 1}) times[way].push_back(both[way]);
      ratios.push_back(both[0] / both[1]);
    }
    if (world_.rank() != 0) return;
    std::ranges::sort(ratios);
    fmt::print(
        "| {} | {:.1f} | {:.1f} | {:.2f} | {:.2f} to {:.2f} | {:.3f} | {} of {} | {:.3f} |\n", what,
        median(times[0]) * 1e3, median(times[1]) * 1e3, median(ratios), ratios[ratios.size() / 4],
        ratios[3 * ratios.size() / 4], all[1] / all[0], coded_versions, turns + 6, part_);
    std::fflush(stdout);
  }

  std::span<std::uint16_t> values() const {
    return {static_cast<std::uint16_t*>(buffers_.pointers()[0]),
            layout_.bytes_of(job_.rank())[0] / 2};
  }
  Random& random() { return random_; }

 private:
  double seconds(const Side& side) {
    world_.barrier();
    const auto begin = Clock::now();
    if (side.sender) {
      sent_ = send(*side.sender);
    } else {
      side.receiver->receive();
    }
    double mine = std::chrono::duration<double>(Clock::now() - begin).count(), longest = 0;
    world_.all_reduce(&mine, &longest, 1, DataType::float64, ReduceKind::max);
    return longest;
  }
  /// Until the receivers are there.
  weights::Sent send(weights::Sender& sender) {
    for (++version_;;) {
      const weights::Sent sent = sender.send(version_, buffers_.sources());
      if (sent.receivers > 0) return sent;
    }
  }
  void compare(const Side& plain, const Side& coded) {
    std::uint64_t same = 1;
    if (!sends_) {
      const std::uint64_t bytes = layout_.bytes_of(job_.rank())[0];
      same = std::memcmp(plain.receiver->pointers()[0], coded.receiver->pointers()[0], bytes) == 0;
    }
    world_.all_reduce(&same, &same, 1, DataType::uint64, ReduceKind::min);
    if (same == 1) return;
    fmt::print("the receivers have other bits\n");
    std::exit(1);
  }

  Communicator& world_;
  const int half_;
  const bool sends_;
  Communicator job_;
  reshard::Layout layout_;
  reshard::Buffers buffers_;
  const std::string folder_;
  Random random_;
  int cases_ = 0;
  std::uint64_t version_ = 0;
  weights::Sent sent_;
  double part_ = 1;  // of the last version's bytes, what went over the link
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return fmt::print("weights_bench FOLDER [MIB] [TURNS]\n"), 2;
  Communicator world = Communicator::from_environment();
  const std::uint64_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64;
  const int turns = argc > 3 ? std::atoi(argv[3]) : 5;
  Bench bench(world, argv[1], mib);
  const Normal normal;
  const auto all_normal = [&](std::span<std::uint16_t> values) {
    for (std::uint16_t& v : values) v = normal(bench.random());
  };
  const auto all_random = [&](std::span<std::uint16_t> values) {
    for (std::uint16_t& v : values) v = static_cast<std::uint16_t>(bench.random()() >> 8);
  };
  const auto some = [&](std::span<std::uint16_t> values) {
    for (std::size_t n = values.size() / 50; n > 0; --n) {
      values[bench.random()() % values.size()] ^= 1 + bench.random()() % 3;
    }
  };
  if (world.rank() == 0) {
    fmt::print(
        "| {} MiB | plain, ms | coded, ms | ratio | quartiles | all, coded / plain | coded | bytes "
        "|\n|---|---|---|---|---|---|---|---|\n",
        mib);
  }
  bench.measure("normal", {.changes = false}, turns, all_normal);
  bench.measure("random", {.changes = false}, turns, all_random);
  if (world.rank() < world.size() / 2) all_normal(bench.values());
  bench.measure("2 %", {}, turns, some);
  bench.measure("all", {}, turns, all_normal);
  bench.measure("all random", {}, turns, all_random);
}
