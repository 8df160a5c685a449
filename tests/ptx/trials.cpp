#include "tests/ptx/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "execute/cuda/lane_links.h"
#include "tests/collectives/cuda/cuda_canonical.h"
#include "tests/collectives/cuda/cuda_matrix.h"

namespace tutti::ptx {
namespace {

using device::Protocol;
using test::DeviceCase;
using test::DeviceRanks;
using test::kSmallSlots;
using namespace std::chrono_literals;

test::DeviceUnderTest under_test(PtxDevice& device) {
  return {.device = device, .wait = [&device] { device.wait(); }, .canonical = device.canonical};
}

DeviceCase all_reduce(const char* algorithm, DataType type, std::size_t bytes, Protocol protocol,
                      ReduceKind kind = ReduceKind::sum) {
  DeviceCase c;
  c.algorithm = find_algorithm(Collective::all_reduce, algorithm);
  c.type = type;
  c.kind = kind;
  c.bytes = bytes;
  c.protocol = protocol;
  return c;
}

std::string wrong(DeviceRanks& ranks, const DeviceCase& c) {
  const std::size_t n = ranks.run(c);
  return n == 0 ? "" : fmt::format("{} wrong elements: {}", n, c.text(ranks.size()));
}

/// Sums and all other operators, sizes about those of packs, lines and slots, at odd addresses too.
std::string reduce(PtxDevice& device, DataType type, Protocol protocol) {
  std::size_t k = 0;
  for (const int n : {2, 3}) {
    DeviceRanks ranks(under_test(device), n, kSmallSlots);
    for (const char* algorithm : {"ring", "one_shot", "two_shot_window"}) {
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{700}, std::size_t{2100}}) {
        DeviceCase c = all_reduce(algorithm, type, bytes + k % 4 * size_of(type), protocol,
                                  static_cast<ReduceKind>(k % kReduceKinds));
        c.copies = static_cast<std::uint32_t>(1 + k % 2);
        c.misalign = k % 3 == 1 ? 1 : 0;
        c.in_place = k % 5 == 0;
        ++k;
        if (std::string what = wrong(ranks, c); !what.empty()) return what;
      }
    }
    for (int kind = 0; kind < kReduceKinds; ++kind) {
      for (const std::size_t bytes : {std::size_t{64}, std::size_t{1029}}) {
        const DeviceCase c = all_reduce(bytes == 64 ? "one_shot" : "ring", type, bytes, protocol,
                                        static_cast<ReduceKind>(kind));
        if (std::string what = wrong(ranks, c); !what.empty()) return what;
      }
    }
  }
  return "";
}

/// What moves data, with several lanes where a plan has them.
std::string move(PtxDevice& device, DataType type, Protocol protocol) {
  DeviceRanks ranks(under_test(device), 3, kSmallSlots);
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    if (!test::runs_on_gpus(a)) continue;
    DeviceCase c;
    c.algorithm = &a;
    c.type = type;
    if (is_reduction(a.collective)) c.kind = ReduceKind::sum;
    c.bytes = k % 2 == 0 ? 520 : 1930;
    c.protocol = protocol;
    c.copies = static_cast<std::uint32_t>(1 + k % 2);
    c.misalign = k % 4 == 3 ? 1 : 0;
    ++k;
    if (std::string what = wrong(ranks, c); !what.empty()) return what;
  }
  DeviceCase lanes = all_reduce("two_shot_window", type, 3000, protocol);
  lanes.lanes = 2;
  return wrong(ranks, lanes);
}

std::string one_rank(PtxDevice& device, DataType type) {
  DeviceRanks ranks(under_test(device), 1, kSmallSlots);
  return wrong(ranks, all_reduce("ring", type, 900, Protocol::simple, ReduceKind::avg));
}

/// A plan that does not fit into shared memory.
std::string long_plan(PtxDevice& device, DataType type) {
  device::SegmentShape shape = kSmallSlots;
  shape.channels = 16;
  DeviceRanks ranks(under_test(device), 8, shape);
  return wrong(ranks, all_reduce("one_shot", type, 100, Protocol::ll));
}

/// Eight sources at a time, and whole tiles of them.
std::string many_ranks(PtxDevice& device, DataType type) {
  DeviceRanks ranks(under_test(device), 8, kSmallSlots);
  for (const Protocol p : test::kProtocols) {
    for (const std::uint32_t misalign : {0u, 1u}) {
      DeviceCase c = all_reduce("one_shot", type, 2000, p);
      c.misalign = misalign;
      if (std::string what = wrong(ranks, c); !what.empty()) return what;
    }
  }
  DeviceCase c = all_reduce("two_shot_window", type, 12'000, Protocol::simple);
  if (std::string what = wrong(ranks, c); !what.empty()) return what;
  c.misalign = 1;
  return wrong(ranks, c);
}

/// Blocks that share a tile: their warps draw turns, in one operation after the other.
std::string turns(PtxDevice& device, DataType type) {
  DeviceRanks ranks(under_test(device), 2, kSmallSlots);
  for (const std::size_t more : {std::size_t{0}, std::size_t{24}}) {
    DeviceCase c =
        all_reduce("two_shot_window", type, (std::size_t{2} << 20) + more, Protocol::simple);
    c.copies = 2;
    if (std::string what = wrong(ranks, c); !what.empty()) return what;
  }
  return "";
}

/// Data of messages outside of the segments.
std::string data_apart(PtxDevice& device, DataType type) {
  DeviceRanks ranks(under_test(device), 3, kSmallSlots, DeviceRanks::Data::apart);
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{2100}}) {
    const DeviceCase c = all_reduce("ring", type, bytes, Protocol::simple);
    if (std::string what = wrong(ranks, c); !what.empty()) return what;
  }
  const std::size_t written = ranks.count_written();
  return written == 0 ? "" : fmt::format("{} bytes of the segments were written", written);
}

/// Sums and products in the canonical order: whole packs, words, and more than eight sources.
std::string canonical(PtxDevice& device, DataType type) {
  if (!is_float(type)) return "";
  using enum ReduceKind;
  for (const int n : {2, 4, 7, 8, 11}) {
    DeviceRanks ranks(under_test(device), n, kSmallSlots);
    std::size_t k = 0;
    for (const ReduceKind kind : {sum, avg, pre_multiplied_sum, prod}) {
      DeviceCase c = all_reduce(k % 2 == 0 ? "two_shot_window" : "one_shot", type,
                                k % 2 == 0 ? 1100 : 200, test::kProtocols[k / 2 % 2], kind);
      ++k;
      c.canonical = true;
      c.misalign = n == 7 ? 1 : 0;
      if (const std::size_t n_wrong = test::run_canonical(ranks, c); n_wrong > 0) {
        return fmt::format("{} wrong elements: {}", n_wrong, c.text(n));
      }
    }
  }
  return "";
}

/// Ranks whose kernels begin apart, and go on to the next one while others are in the last. Sums of
/// integers grow with each call, so that an old message shows.
std::string apart(PtxDevice& device, DataType type) {
  constexpr int kRanks = 3;
  constexpr int kTimes = 3;
  device.apart = true;
  std::string what;
  int k = 0;
  for (const std::string_view algorithm : {"ring", "one_shot", "two_shot_window"}) {
    for (const Protocol p : test::kProtocols) {
      DeviceRanks ranks(under_test(device), kRanks, kSmallSlots);
      DeviceCase c = all_reduce(algorithm.data(), type, 700 + 8 * static_cast<std::size_t>(k), p);
      c.copies = static_cast<std::uint32_t>(1 + k % 2);
      c.in_place = !is_float(type);
      c.lanes = algorithm == "two_shot_window" && p != Protocol::ll ? 2 : 1;
      ++k;
      const auto bound = ranks.bind(c);
      bound.upload();
      ranks.launch(bound, type);
      if (bound.count_wrong() > 0) what = "wrong elements: " + c.text(kRanks);
      const std::size_t size = size_of(type);
      const std::size_t count = (c.bytes + size - 1) / size;
      std::vector<std::byte> first(count * size);
      std::copy_n(bound.launches[0].out, first.size(), first.begin());
      for (int i = 0; i < kTimes; ++i) ranks.launch(bound, type);
      device.wait();
      ranks.throw_failure();
      for (const device::RankLaunch& launch : bound.launches) {
        for (std::size_t i = 0; i < count; ++i) {
          std::uint64_t was = 0;
          std::uint64_t is = 0;
          std::memcpy(&was, first.data() + i * size, size);
          std::memcpy(&is, launch.out + i * size, size);
          if (c.in_place) was *= kRanks * kRanks * kRanks;
          if (std::memcmp(&was, &is, size) != 0) {
            what = fmt::format("element {} of rank {} after {} calls: {}", i, launch.rank, kTimes,
                               c.text(kRanks));
          }
        }
      }
    }
  }
  device.apart = false;
  return what;
}

std::string repeat(PtxDevice& device, DataType type) {
  DeviceRanks ranks(under_test(device), 2, kSmallSlots);
  for (int i = 0; i < 12; ++i) {
    const DeviceCase c = all_reduce("ring", type, 1500, test::kProtocols[i % 3]);
    if (std::string what = wrong(ranks, c); !what.empty()) return what;
  }
  return "";
}

/// Where LL's flags come round, and slots are cleaned. Every slot has been used before.
std::string come_round(PtxDevice& device, DataType type) {
  for (const std::uint64_t number :
       {device::kMessagesPerCleaning - 6, (std::uint64_t{1} << 32) - 6}) {
    DeviceRanks ranks(under_test(device), 2, kSmallSlots);
    const device::SegmentShape& s = ranks.shape();
    for (int r = 0; r < 2; ++r) {
      std::byte* const segment = ranks.executor(r).segment();
      for (std::uint32_t channel = 0; channel < s.channels; ++channel) {
        for (std::uint32_t peer = 0; peer < s.ranks; ++peer) {
          const std::size_t i = s.index(peer, channel) * sizeof number;
          std::memcpy(segment + s.sent() + i, &number, sizeof number);
          std::memcpy(segment + s.received() + i, &number, sizeof number);
          std::memcpy(segment + s.credit(peer, channel), &number, sizeof number);
        }
      }
    }
    for (int i = 0; i < 8; ++i) {
      const DeviceCase c = all_reduce("ring", type, i % 2 == 0 ? 1500 : 32, Protocol::ll);
      if (std::string what = wrong(ranks, c); !what.empty()) return what;
    }
  }
  return "";
}

std::string send_and_receive(PtxDevice& device, DataType type) {
  device::SegmentShape shape = kSmallSlots;
  shape.message_channels = 4;
  DeviceRanks ranks(under_test(device), 2, shape);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{500}, std::size_t{5003}}) {
    std::byte* const from = device.allocate(2 * bytes);
    std::byte* const to = device.allocate(2 * bytes);
    for (std::size_t i = 0; i < 2 * bytes; ++i) from[i] = static_cast<std::byte>(i * 7 + bytes);
    const device::DeviceMessage first[] = {{1, true, 5, from, bytes}, {1, false, 6, to, bytes}};
    const device::DeviceMessage second[] = {{0, false, 5, to + bytes, bytes},
                                            {0, true, 6, from + bytes, bytes}};
    const device::RankLaunch launches[] = {ranks.executor(0).prepare(first, nullptr),
                                           ranks.executor(1).prepare(second, nullptr)};
    device::enqueue(device, launches, ranks.shape(), type, nullptr);
    const bool same =
        std::memcmp(to + bytes, from, bytes) == 0 && std::memcmp(to, from + bytes, bytes) == 0;
    device.deallocate(from);
    device.deallocate(to);
    ranks.throw_failure();
    if (!same) return fmt::format("a message of {} bytes arrives differently", bytes);
  }
  return "";
}

// --- What is wrong -------------------------------------------------------------------------------

/// The launch without rank 1, with these limits.
void without_one(DeviceRanks& ranks, const DeviceCase& c) {
  auto bound = ranks.bind(c);
  bound.upload();
  bound.launches.erase(bound.launches.begin() + 1);
  ranks.launch(bound, c.type);
}

std::string deadline(PtxDevice& device, DataType type) {
  for (const Protocol p : test::kProtocols) {
    DeviceRanks ranks(under_test(device), 3, kSmallSlots);
    for (int r = 0; r < 3; ++r) ranks.executor(r).set_limits({20ms, 2ms});
    without_one(ranks, all_reduce("ring", type, 900, p));
    const auto failure = ranks.executor(2).failure();
    if (!failure || failure->code() != ErrorCode::timed_out) return "the deadline ends no wait";
    if (!ranks.executor(2).late()) return "nobody tells of the late rank";
  }
  return "";
}

std::string aborted(PtxDevice& device, DataType type) {
  for (const Protocol p : test::kProtocols) {
    DeviceRanks ranks(under_test(device), 3, kSmallSlots);
    for (int r = 0; r < 3; ++r) ranks.executor(r).set_limits({0ns});
    for (int r = 0; r < 3; ++r) ranks.executor(r).abort();
    without_one(ranks, all_reduce("ring", type, 900, p));
    if (ranks.executor(2).failure()) return "an abort counts as a failure";
  }
  return "";
}

std::string mismatch(PtxDevice& device, DataType type) {
  for (const Protocol p : test::kProtocols) {
    DeviceRanks ranks(under_test(device), 3, kSmallSlots);
    for (int r = 0; r < 3; ++r) ranks.executor(r).set_limits({20ms});
    auto a = ranks.bind(all_reduce("ring", type, 904, p));
    a.upload();
    const auto b = ranks.bind(all_reduce("ring", type, 608, p));
    a.launches[1] = b.launches[1];
    ranks.launch(a, type);
    bool found = false;
    for (int r = 0; r < 3; ++r) {
      const auto failure = ranks.executor(r).failure();
      found = found || (failure && failure->code() == ErrorCode::mismatch);
    }
    if (!found) return "nobody finds that the calls differ";
  }
  return "";
}

std::string foreign_window(PtxDevice& device, DataType type) {
  DeviceCase c;
  c.algorithm = find_algorithm(Collective::all_gather, "direct_window");
  c.type = type;
  c.bytes = 1000;
  {
    DeviceRanks ranks(under_test(device), 2, kSmallSlots);
    auto bound = ranks.bind(c);
    bound.upload();
    bound.launches[1].addresses.window[0] = 7;
    bound.launches[1].addresses.at[0] = 16;
    for (int r = 0; r < 2; ++r) ranks.executor(r).set_limits({20ms});
    ranks.launch(bound, type);
    if (!ranks.executor(0).failure()) return "a window that is none is used";
  }
  DeviceRanks ranks(under_test(device), 2, kSmallSlots);
  auto bound = ranks.bind(c);
  bound.upload();
  std::byte* const in = bound.launches[1].in;
  ranks.executor(0).add_window(1, 3, in - 64, 1064);
  bound.launches[1].addresses.window[0] = 3;
  bound.launches[1].addresses.at[0] = 64;
  ranks.launch(bound, type);
  ranks.throw_failure();
  return bound.count_wrong() == 0 ? "" : "wrong elements through a window";
}

}  // namespace

const std::vector<Trial>& trials() {
  static const std::vector<Trial> all = [] {
    std::vector<Trial> t;
    const char* const names[] = {"simple", "ll", "ll128"};
    for (int p = 0; p < 3; ++p) {
      const Protocol protocol = test::kProtocols[p];
      t.push_back({fmt::format("reduce.{}", names[p]),
                   [protocol](PtxDevice& d, DataType type) { return reduce(d, type, protocol); }});
    }
    t.push_back({"messages", send_and_receive});
    t.push_back({"deadline", deadline});
    t.push_back({"mismatch", mismatch});
    t.push_back({"turns", turns});
    t.push_back({"window", foreign_window});
    t.push_back({"abort", aborted});
    t.push_back({"one_rank", one_rank});
    t.push_back({"repeat", repeat});
    for (int p = 0; p < 3; ++p) {
      const Protocol protocol = test::kProtocols[p];
      t.push_back({fmt::format("move.{}", names[p]),
                   [protocol](PtxDevice& d, DataType type) { return move(d, type, protocol); }});
    }
    t.push_back({"come_round", come_round});
    t.push_back({"long_plan", long_plan});
    t.push_back({"many_ranks", many_ranks});
    t.push_back({"data_apart", data_apart});
    t.push_back({"canonical", canonical});
    t.push_back({"apart", apart});
    return t;
  }();
  return all;
}

std::string attempt(const Trial& trial, PtxDevice& device, DataType type) {
  try {
    return trial.run(device, type);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace tutti::ptx
