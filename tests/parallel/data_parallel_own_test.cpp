// A user's own way to average buckets: the data that it asks for travel, and its mistakes end the
// step on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::error_of;
using test::run_thread_ranks;
using test::small_buckets;
using testing::HasSubstr;

/// Gradients, which are small whole numbers, travel in 8 bits, and are added up where they arrive.
class InBytes : public Reduction {
 public:
  explicit InBytes(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  void bind(const BucketLayout& layout, std::byte* gradients) override {
    Reduction::bind(layout, gradients);
    sent_.resize(layout.buckets.size());
    received_.resize(layout.buckets.size());
  }
  Call prepare(std::size_t b, int) override {
    const auto* const gradients = reinterpret_cast<const float*>(data(b));
    sent_[b].resize(bucket(b).count);
    received_[b].resize(bucket(b).count * ranks_);
    for (std::size_t i = 0; i < sent_[b].size(); ++i) {
      sent_[b][i] =
          std::isfinite(gradients[i]) ? static_cast<std::int8_t>(gradients[i]) : kNotFinite;
    }
    return call_of(Collective::all_gather, sent_[b].data(), received_[b].data(), sent_[b].size(),
                   DataType::int8);
  }
  void complete(std::size_t b) override {
    auto* const averages = reinterpret_cast<float*>(data(b));
    for (std::size_t i = 0; i < sent_[b].size(); ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < ranks_; ++r) {
        const std::int8_t part = received_[b][r * sent_[b].size() + i];
        sum += part == kNotFinite ? std::numeric_limits<float>::quiet_NaN() : part;
      }
      averages[i] = sum / static_cast<float>(ranks_);
    }
  }

 private:
  static constexpr std::int8_t kNotFinite = -128;
  const std::size_t ranks_;
  std::vector<std::vector<std::int8_t>> sent_, received_;  // by bucket
};

DataParallelPolicy in_bytes(int ranks) {
  DataParallelPolicy policy = small_buckets();
  policy.reduction = OwnReduction{"in bytes", [ranks](auto, auto&) -> std::unique_ptr<Reduction> {
                                    return std::make_unique<InBytes>(ranks);
                                  }};
  return policy;
}

TEST(OwnReductions, CarryWhatTheyAskFor) {
  constexpr int kRanks = 3;
  for (const bool overlap : {true, false}) {
    run_thread_ranks(kRanks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      DataParallelPolicy policy = in_bytes(kRanks);
      policy.overlap = overlap;
      DataParallel engine(axis, test::parameters_of(30, {DataType::float32}), policy);
      for (std::uint64_t step = 0; step < 3; ++step) {
        axis.reset_traffic();
        test::backward(engine, comm.rank(), kRanks, step);
        (void)engine.finish();
        EXPECT_EQ(test::wrong_average(engine, kRanks, {step}), "") << "step " << step;
        if (step == 0) continue;  // the order of the gradients has travelled, too
        std::size_t elements = 0, buckets = 0;
        for (const Bucket& b : engine.layout().buckets) {
          elements += b.count;
          buckets += b.count > 0 ? 1 : 0;
        }
        ASSERT_GT(buckets, 3u);
        EXPECT_EQ(axis.traffic().total(), axis.traffic()[Collective::all_gather]);
        EXPECT_EQ(axis.traffic()[Collective::all_gather].calls, buckets);
        EXPECT_EQ(axis.traffic()[Collective::all_gather].sent, (kRanks - 1) * elements);
      }
    });
  }
}

TEST(OwnReductions, LetMissingGradientsBeSeen) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallel engine(axis, {{"a", {3}}, {"b", {4}}}, in_bytes(2));
    engine.zero();
    engine.ready(0);
    if (comm.rank() == 0) engine.ready(1);
    const Error error = error_of([&] { (void)engine.finish(); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("b on rank 1"));
  });
}

TEST(OwnReductions, ThatThrowEndTheStepOnAllRanks) {
  struct Throws final : Reduction {
    Throws(int rank, bool when_prepared) : in_prepare(when_prepared), rank_(rank) {}
    Call prepare(std::size_t b, int round) override {
      if (in_prepare) check(b);
      return Reduction::prepare(b, round);
    }
    void complete(std::size_t b) override {
      if (!in_prepare) check(b);
    }
    void begin(std::uint64_t step) override { step_ = step; }
    void check(std::size_t b) const {
      if (step_ == 2 && b == 1 && rank_ == 1) throw std::runtime_error("out of codes");
    }
    const bool in_prepare;
    const int rank_;
    std::uint64_t step_ = 0;
  };
  for (const bool in_prepare : {true, false}) {
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      DataParallelPolicy policy{.bucket_bytes = 16, .first_bucket_bytes = 16};
      policy.reduction = OwnReduction{"throws", [&](auto, auto&) -> std::unique_ptr<Reduction> {
                                        return std::make_unique<Throws>(comm.rank(), in_prepare);
                                      }};
      DataParallel engine(axis, {{"a", {4}}, {"b", {4}}, {"c", {4}}}, policy);
      try {
        for (int step = 0; step < 4; ++step) {
          engine.zero();
          for (const std::size_t i : {2u, 1u, 0u}) engine.ready(i);
          (void)engine.finish();
        }
        ADD_FAILURE() << "no error on rank " << comm.rank();
      } catch (const Error& e) {
        EXPECT_NE(comm.rank(), 1);
        EXPECT_EQ(e.code(), ErrorCode::aborted);
        EXPECT_THAT(e.what(), HasSubstr("rank 1 failed in data parallel, step 2, when it reduced "
                                        "bucket 1 of 3 (b to b): out of codes"));
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(comm.rank(), 1);
        EXPECT_STREQ(e.what(), "out of codes");
      }
    });
  }
}

TEST(OwnReductions, AreTheSameOnAllRanksOrRefused) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const std::vector<Parameter> parameters{{"a", {4}}};
    DataParallelPolicy policy = in_bytes(2);
    if (comm.rank() == 1) policy.reduction->name = "in nibbles";
    const Error other = error_of([&] { DataParallel(axis, parameters, policy); });
    EXPECT_EQ(other.code(), ErrorCode::mismatch);
    EXPECT_THAT(other.what(), HasSubstr("the reduction 'in nibbles'"));
    policy.reduction = OwnReduction{"none", {}};
    EXPECT_EQ(error_of([&] { DataParallel(axis, parameters, policy); }).code(),
              ErrorCode::invalid_argument);
    policy.reduce_type = DataType::bfloat16;
    EXPECT_THAT(error_of([&] { DataParallel(axis, parameters, policy); }).what(),
                HasSubstr("one of them only"));
    // It asks for other sizes on each rank.
    struct Uneven final : Reduction {
      explicit Uneven(int rank) : elements(rank == 0 ? 4 : 3) {}
      Call prepare(std::size_t b, int) override {
        return call_of(Collective::all_reduce, data(b), data(b), elements, DataType::float32);
      }
      const std::size_t elements;
    };
    DataParallelPolicy uneven;
    uneven.reduction = OwnReduction{"uneven", [&](auto, auto&) -> std::unique_ptr<Reduction> {
                                      return std::make_unique<Uneven>(comm.rank());
                                    }};
    DataParallel engine(axis, parameters, uneven);
    engine.zero();
    engine.ready(0);
    const Error sizes = error_of([&] { (void)engine.finish(); });
    EXPECT_EQ(sizes.code(), ErrorCode::mismatch);
    EXPECT_THAT(sizes.what(), HasSubstr("step 0, bucket 0 of 1 (a to a)"));
  });
}

}  // namespace
}  // namespace tutti::parallel
