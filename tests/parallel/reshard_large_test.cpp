// A large model: a plan from 512 ranks to 64 is made and proved in little time and memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "parallel/reshard/verify.h"

namespace tutti::parallel::reshard {
namespace {

constexpr std::uint64_t kHidden = 16384, kWide = 53248, kKey = 1024, kWords = 128256;
constexpr int kLayers = 126, kTrainers = 512, kServers = 64, kPerHost = 8;

/// Trainers: FSDP. Servers: tensor parallel over the 8 ranks of a host, and 8 hosts with a share of
/// the layers each.
std::pair<Layout, Layout> layouts() {
  std::vector<int> trainers, servers;
  for (int r = 0; r < kTrainers; ++r) trainers.push_back(r);
  for (int r = 0; r < kServers; ++r) servers.push_back(kTrainers + r);
  Layout from(kTrainers + kServers), to(kTrainers + kServers);
  const auto add = [&](std::string name, std::vector<std::uint64_t> shape, int cut, int host) {
    const Tensor t{std::move(name), DataType::bfloat16, std::move(shape)};
    add_sharded(from, t, {{kTrainers}, {shard(0)}, trainers});
    const std::vector<int> ranks(servers.begin() + host * kPerHost,
                                 servers.begin() + (host + 1) * kPerHost);
    add_sharded(to, t, {{kPerHost}, {cut < 0 ? replicate() : shard(cut)}, ranks});
  };
  for (int layer = 0; layer < kLayers; ++layer) {
    const int host = layer * 8 / kLayers;
    const auto of = [&](const char* name) { return fmt::format("{}.{}", layer, name); };
    add(of("q"), {kHidden, kHidden}, 0, host);
    add(of("k"), {kKey, kHidden}, 0, host);
    add(of("v"), {kKey, kHidden}, 0, host);
    add(of("o"), {kHidden, kHidden}, 1, host);
    add(of("gate"), {kWide, kHidden}, 0, host);
    add(of("up"), {kWide, kHidden}, 0, host);
    add(of("down"), {kHidden, kWide}, 1, host);
    add(of("norm1"), {kHidden}, -1, host);
    add(of("norm2"), {kHidden}, -1, host);
  }
  add("embed", {kWords, kHidden}, 0, 0);
  add("norm", {kHidden}, -1, 7);
  add("head", {kWords, kHidden}, 0, 7);
  return {std::move(from), std::move(to)};
}

TEST(ReshardLarge, APlanOf405BillionWeightsFrom512RanksTo64) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto [from, to] = layouts();
  from.check(Side::from);
  to.check(Side::to);
  const auto checked = Clock::now();
  PlanOptions options;
  for (int r = 0; r < from.ranks; ++r) options.hosts.push_back(r / kPerHost);
  const Plan plan = make_plan(from, to, options);
  const auto made = Clock::now();
  const Verdict verdict = verify(from, to, plan);
  const auto proved = Clock::now();
  EXPECT_TRUE(verdict.proved) << verdict.story;
  EXPECT_NEAR(static_cast<double>(to.model_bytes()), 811.7e9, 1e9);
  const auto seconds = [](auto a, auto b) { return std::chrono::duration<double>(b - a).count(); };
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  fmt::print("layouts {:.2f} s, plan {:.2f} s, proof {:.2f} s; {} moves, {} messages, {} MiB\n",
             seconds(begin, checked), seconds(checked, made), seconds(made, proved),
             plan.moves.size(), plan.messages.size(), use.ru_maxrss >> 10);
  EXPECT_LT(use.ru_maxrss, 1'000'000'000 / 1024);
}

}  // namespace
}  // namespace tutti::parallel::reshard
