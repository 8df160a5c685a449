// The parts of the data-parallel engine by themselves: how buckets are laid out, PowerSGD and its
// matrices, and the file that a trace is written to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "parallel/data_parallel/buckets.h"
#include "parallel/data_parallel/data_parallel.h"
#include "parallel/data_parallel/matrix.h"
#include "parallel/data_parallel/power_sgd.h"
#include "parallel/gather_trace.h"
#include "parallel/not_finite.h"
#include "parallel_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::error_of;
using test::parameters_of;
using test::run_thread_ranks;
using Matrix = std::vector<float>;

TEST(Buckets, HoldEachGradientOnceWithoutGaps) {
  const std::vector<std::vector<DataType>> type_sets{
      {DataType::float32},
      {DataType::float32, DataType::bfloat16},
      {DataType::float64, DataType::float32, DataType::float16}};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::vector<Parameter> parameters =
        parameters_of(seed % 40, type_sets[seed % type_sets.size()]);
    std::vector<std::uint32_t> order;
    for (const std::size_t i : test::shuffled(parameters.size(), seed)) {
      order.push_back(static_cast<std::uint32_t>(i));
    }
    DataParallelPolicy policy;
    policy.bucket_bytes = 1 + seed * 37 % 3000;
    policy.first_bucket_bytes = 1 + seed * 17 % 500;
    const BucketLayout layout = lay_out(parameters, order, policy);
    std::set<std::uint32_t> seen;
    std::size_t end = 0;
    std::map<DataType, std::vector<std::uint32_t>> by_type;
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
      const Bucket& bucket = layout.buckets[b];
      ASSERT_EQ(bucket.offset % kBucketAlignment, 0u);
      ASSERT_GE(bucket.offset, end);
      ASSERT_LT(bucket.offset - end, kBucketAlignment);
      std::size_t offset = bucket.offset;
      for (const std::uint32_t i : bucket.gradients) {
        ASSERT_TRUE(seen.insert(i).second);
        ASSERT_EQ(parameters[i].type, bucket.type);
        ASSERT_EQ(layout.bucket_of[i], b);
        ASSERT_EQ(layout.offset_of[i], offset);
        offset += parameters[i].count() * size_of(bucket.type);
        by_type[bucket.type].push_back(i);
      }
      end = offset;
      ASSERT_EQ(end - bucket.offset, bucket.count * size_of(bucket.type));
      const std::size_t limit = b == 0 ? policy.first_bucket_bytes : policy.bucket_bytes;
      if (end - bucket.offset > std::max(limit, policy.first_bucket_bytes)) {
        // Too large: of one gradient that has elements.
        ASSERT_LE(std::ranges::count_if(bucket.gradients,
                                        [&](auto i) { return parameters[i].count() > 0; }),
                  1)
            << "seed " << seed;
      }
    }
    ASSERT_EQ(seen.size(), parameters.size());
    ASSERT_LE(end, layout.bytes);
    // Those of one type come in the order that was given.
    for (const auto& [type, gradients] : by_type) {
      std::vector<std::uint32_t> expected;
      std::ranges::copy_if(order, std::back_inserter(expected),
                           [&](auto i) { return parameters[i].type == type; });
      ASSERT_EQ(gradients, expected);
    }
  }
}

Matrix random_matrix(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Matrix result(count);
  for (float& x : result) x = uniform(random);
  return result;
}

TEST(Matrices, AreMultiplied) {
  for (const auto [m, n, r] : {std::array<std::size_t, 3>{1, 1, 1}, {5, 33, 2}, {40, 7, 3}}) {
    const Matrix a = random_matrix(m * n, 1), q = random_matrix(r * n, 2);
    Matrix p(m * r), back(r * n);
    multiply(a.data(), q.data(), m, n, r, p.data());
    multiply_transposed(a.data(), p.data(), m, n, r, back.data());
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < r; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k) sum += double{a[i * n + k]} * q[j * n + k];
        EXPECT_NEAR(p[i * r + j], sum, 1e-5);
      }
    }
    for (std::size_t j = 0; j < r; ++j) {
      for (std::size_t k = 0; k < n; ++k) {
        double sum = 0;
        for (std::size_t i = 0; i < m; ++i) sum += double{a[i * n + k]} * p[i * r + j];
        EXPECT_NEAR(back[j * n + k], sum, 1e-4);
      }
    }
  }
}

TEST(Matrices, BecomeOrthonormal) {
  // Column 2 depends on the others, column 3 nearly does.
  constexpr std::size_t kRows = 50, kColumns = 4;
  Matrix p = random_matrix(kRows * kColumns, 3);
  for (std::size_t i = 0; i < kRows; ++i) {
    float* const row = p.data() + i * kColumns;
    row[2] = 2 * row[0] - 1e3f * row[1];
    row[3] = 100 * row[0] + 1e-3f * row[3];
  }
  orthogonalise(p.data(), kRows, kColumns);
  for (std::size_t j = 0; j < kColumns; ++j) {
    for (std::size_t k = 0; k < kColumns; ++k) {
      double sum = 0;
      for (std::size_t i = 0; i < kRows; ++i) {
        sum += double{p[i * kColumns + j]} * p[i * kColumns + k];
      }
      EXPECT_NEAR(sum, j == k && j != 2 ? 1 : 0, 1e-6) << j << ", " << k;
    }
  }
}

TEST(PowerSgds, CompressWhatBecomesSmaller) {
  const PowerSgd two{.rank = 2};
  EXPECT_TRUE(compresses(two, {"w", {20, 30}}));
  EXPECT_TRUE(compresses(two, {"w", {20, 5, 6}}));  // 20 x 30
  EXPECT_FALSE(compresses(two, {"w", {600}}));
  EXPECT_FALSE(compresses(two, {"w", {2, 300}}));  // 604 for 600
  EXPECT_FALSE(compresses(two, {"w", {0, 30}}));
  EXPECT_FALSE(compresses(two, {"w", {20, 30}, DataType::float64}));
  EXPECT_FALSE(compresses(two, {"w", {}}));
}

/// The sum over steps of a product of a column and a row, different on each rank.
float low_rank(int rank, std::uint64_t step, std::size_t i, std::size_t k) {
  const auto column = static_cast<float>(static_cast<int>((i * 7 + step) % 5) - 2);
  const auto row = static_cast<float>(static_cast<int>((k * 3 + step * 2) % 7) - 3);
  return column * row * static_cast<float>(rank + 1);
}

TEST(PowerSgds, AreExactForMatricesOfTheirRank) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallelPolicy policy;
    policy.power_sgd = PowerSgd{.rank = 2, .first_step = 1};
    DataParallel engine(axis, {{"w", {20, 30}}, {"bias", {30}}}, policy);
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto* const w = static_cast<float*>(engine.gradient(0));
      auto* const bias = static_cast<float*>(engine.gradient(1));
      for (std::size_t i = 0; i < 20; ++i) {
        for (std::size_t k = 0; k < 30; ++k) w[i * 30 + k] = low_rank(comm.rank(), step, i, k);
      }
      for (std::size_t k = 0; k < 30; ++k)
        bias[k] = static_cast<float>(3 * comm.rank()) * static_cast<float>(k);
      axis.reset_traffic();
      engine.ready(1);
      engine.ready(0);
      (void)engine.finish();
      EXPECT_EQ(axis.traffic()[Collective::all_reduce].calls, step == 0 ? 1u : 2u);
      const auto* const result = static_cast<float*>(engine.gradient(0));
      for (std::size_t i = 0; i < 20; ++i) {
        for (std::size_t k = 0; k < 30; ++k) {
          EXPECT_NEAR(result[i * 30 + k], 2 * low_rank(0, step, i, k), 1e-4) << step;
        }
      }
      for (std::size_t k = 0; k < 30; ++k) {
        EXPECT_EQ(static_cast<float*>(engine.gradient(1))[k], 3.0f * static_cast<float>(k));
      }
    }
  });
}

TEST(PowerSgds, SendLaterWhatTheyLeaveOut) {
  constexpr int kRanks = 2;
  run_thread_ranks(kRanks, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallelPolicy policy;
    policy.power_sgd = PowerSgd{.rank = 1};
    DataParallel engine(axis, {{"w", {12, 16}}}, policy);
    // The same gradient of full rank, again and again: what was sent of it in all comes near it.
    const Matrix mine = random_matrix(12 * 16, static_cast<unsigned>(comm.rank()));
    const Matrix other = random_matrix(12 * 16, static_cast<unsigned>(1 - comm.rank()));
    std::vector<double> sent(mine.size());
    const auto distance = [&](double steps) {
      double sum = 0, size = 0;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const double average = (double{mine[i]} + other[i]) / 2;
        sum += std::pow(sent[i] / steps - average, 2);
        size += average * average;
      }
      return std::sqrt(sum / size);
    };
    for (int step = 1; step <= 200; ++step) {
      auto* const w = static_cast<float*>(engine.gradient(0));
      std::ranges::copy(mine, w);
      engine.ready(0);
      (void)engine.finish();
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] += w[i];
      if (step == 1) {
        EXPECT_GT(distance(1), 0.5);
      }
    }
    EXPECT_LT(distance(200), 0.1);
    // Zeros for so long that nothing is left: they do not end it.
    for (int step = 0; step < 3; ++step) {
      engine.zero();
      engine.ready(0);
      (void)engine.finish();
    }
    EXPECT_TRUE(all_finite(engine.gradient(0), DataType::float32, mine.size()));
  });
}

TEST(PowerSgds, RecoverFromZeros) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallelPolicy policy;
    policy.power_sgd = PowerSgd{.rank = 2};
    DataParallel engine(axis, {{"w", {20, 30}}}, policy);
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto* const w = static_cast<float*>(engine.gradient(0));
      engine.zero();
      for (std::size_t i = 0; i < 600 && step >= 2; ++i) {
        w[i] = low_rank(comm.rank(), step, i / 30, i % 30);
      }
      engine.ready(0);
      (void)engine.finish();
      for (std::size_t i = 0; i < 600; ++i) {
        EXPECT_NEAR(w[i], step < 2 ? 0 : 1.5f * low_rank(0, step, i / 30, i % 30), 1e-4) << step;
      }
    }
  });
}

TEST(Traces, AreJsonThatViewersRead) {
  using namespace std::chrono_literals;
  auto trace = std::make_shared<Trace>(3);
  const Trace::Clock::time_point start{5ms};
  trace->flight("dp", "bucket \"0\"\n\\", start, start + 2ms);
  trace->span("dp waits", "bucket 0", start + 1ms, start + 2ms);
  trace->instant("gradients", "w", start);
  std::ostringstream out;
  const std::vector<std::shared_ptr<Trace>> traces{trace, nullptr};
  write_json(out, traces);
  const auto events = nlohmann::json::parse(out.str());
  std::map<std::string, int> phases;
  std::map<int, std::string> tracks;
  for (const auto& e : events) {
    const std::string phase = e.at("ph");
    ++phases[phase];
    if (phase == "M") {
      if (e.at("name") == "thread_name") tracks[e.at("tid")] = e.at("args").at("name");
      continue;
    }
    EXPECT_EQ(e.at("pid"), 3);
    const std::string track = tracks.at(e.at("tid"));
    if (phase == "b" || phase == "e") {
      EXPECT_EQ(e.at("name"), "bucket \"0\"\n\\");
      EXPECT_EQ(e.at("id"), "3.1");
      EXPECT_EQ(track, "dp");
      EXPECT_EQ(e.at("ts"), phase == "b" ? 5000 : 7000);
    }
    if (phase == "X") {
      EXPECT_EQ(e.at("ts"), 6000);
      EXPECT_EQ(e.at("dur"), 1000);
    }
  }
  EXPECT_EQ(phases["b"], 1);
  EXPECT_EQ(phases["e"], 1);
  EXPECT_EQ(phases["X"], 1);
  EXPECT_EQ(phases["i"], 1);
  trace->clear();
  EXPECT_TRUE(trace->events().empty());
}

// A parameter's name may have any bytes.
TEST(Traces, OfNamesThatAreNoUtf8AreStillJson) {
  auto trace = std::make_shared<Trace>(0);
  const auto now = Trace::Clock::now();
  trace->span("caf\xe9", "w\xc3", now, now);
  trace->instant("gradients \xff\xfe", "\xed\xa0\x80", now);
  trace->flight("\x01",
                "gr\xc3\xb6\xc3\x9f"
                "e",
                now, now);
  std::ostringstream out;
  write_json(out, std::vector{trace});
  std::vector<std::string> names;
  for (const auto& e : nlohmann::json::parse(out.str())) {
    if (e.contains("cat"))
      names.push_back(e.at("cat").get<std::string>() + ": " + e.at("name").get<std::string>());
  }
  const std::string bad = "\ufffd";
  EXPECT_EQ(names[0], "caf" + bad + ": w" + bad);
  EXPECT_EQ(names[1].substr(0, 16), "gradients " + bad + bad);
  EXPECT_EQ(names[2], "\x01: gr\u00f6\u00dfe");
}

TEST(Traces, OfAllRanksAreGatheredInOneFile) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Trace own(comm.rank());
    for (int i = 0; i < comm.rank(); ++i)
      own.instant("track", fmt::format("event {}", i));  // 0 to 2
    std::ostringstream out;
    gather_json(out, axis, own);
    if (comm.rank() != 0) {
      EXPECT_EQ(out.str(), "");
      return;
    }
    std::map<int, int> events;
    for (const auto& e : nlohmann::json::parse(out.str())) {
      if (e.at("ph") == "i") ++events[e.at("pid")];
    }
    EXPECT_EQ(events, (std::map<int, int>{{1, 1}, {2, 2}}));
  });
}

// The disk is full: rank 0 alone sees it.
TEST(Traces, ThatCannotBeWrittenAreErrorsOnAllRanks) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Trace own(comm.rank());
    own.instant("track", "event");
    std::ofstream full(comm.rank() == 0 ? "/dev/full" : "/dev/null");
    for (int round = 0; round < 2; ++round) {  // the second time the stream is bad already
      const Error e = error_of([&] { gather_json(full, axis, own); });
      EXPECT_EQ(e.code(), ErrorCode::system);
      EXPECT_EQ(e.rank(), 0);
      EXPECT_NE(std::string(e.what()).find("the trace could not be written"), std::string::npos)
          << e.what();
      if (round == 0) {
        EXPECT_NE(std::string(e.what()).find("No space left on device"), std::string::npos)
            << e.what();
      }
    }
  });
}

TEST(NotFinite, IsNamedOnAllRanks) {
  run_thread_ranks(6, [](Communicator& comm) {
    CommunicatorAxis world(comm);
    refuse_not_finite(world, "step 1", "");
    const auto one =
        error_of([&] { refuse_not_finite(world, "step 2", comm.rank() == 4 ? "the loss" : ""); });
    EXPECT_EQ(one.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(one.rank(), 4);
    EXPECT_STREQ(one.what(), "step 2: not finite: the loss on rank 4");
    const auto many = error_of([&] {
      const std::string mine = fmt::format("w{}", comm.rank());
      refuse_not_finite(world, "step 3", comm.rank() > 0 ? mine : "");
    });
    EXPECT_EQ(many.rank(), 1);
    EXPECT_STREQ(many.what(),
                 "step 3: not finite: w1 on rank 1; w2 on rank 2; w3 on rank 3; w4 on rank 4; and "
                 "something on 1 more");
    refuse_not_finite(world, "step 4", "");
  });
}

}  // namespace
}  // namespace tutti::parallel
