// Sharded training is training: five steps on two to eight ranks end where one rank ends that has
// all samples, in every stage and layout, with accumulation, replicas and small groups; and with
// the same bits on all ranks, each time.
#include "parallel/sharded/sharded.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "core/float_types.h"
#include "tests/parallel/sharded_model.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/wide_floats.h"

namespace tutti {
namespace {

using namespace parallel;
using test::Mlp;
using test::run_thread_ranks;
using test::ShardedCase;
using test::Trained;

// Widths that no number of ranks divides.
const Mlp& mlp() {
  static const Mlp model({7, 13, 11, 9, 5});
  return model;
}

const Precision kDouble = Precision::of(DataType::float64);

struct Named {
  std::string name;
  ShardedCase c;
};

std::vector<Named> cases(int ranks) {
  std::vector<Named> all;
  const auto add = [&](std::string name, const Policy& policy, auto&& change) {
    ShardedCase c;
    c.policy = policy;
    change(c);
    all.push_back({std::move(name), c});
  };
  const auto as_is = [](ShardedCase&) {};
  const Policy zero1 = Policy::zero1(kDouble), zero2 = Policy::zero2(kDouble),
               zero3 = Policy::zero3(kDouble), fsdp = Policy::fsdp(kDouble);
  add("zero1", zero1, as_is);
  add("zero2", zero2, as_is);
  add("zero3", zero3, as_is);
  add("fsdp", fsdp, as_is);
  Policy policy = zero1;
  policy.layout = Layout::by_parameter;
  add("zero1 by parameter", policy, as_is);
  policy = zero2;
  policy.layout = Layout::by_parameter;
  policy.reductions_in_flight = 0;
  add("zero2 by parameter, none in flight", policy, as_is);
  policy = zero3;
  policy.reshard_after_forward = Reshard::no;
  add("zero3 kept", policy, as_is);
  policy = fsdp;
  policy.prefetch_forward = 0;
  policy.prefetch_backward = 0;
  policy.alignment = 1;
  add("fsdp without prefetch", policy, as_is);
  policy.prefetch_forward = 3;
  policy.prefetch_backward = 2;
  policy.reductions_in_flight = 3;
  policy.offload_state = true;
  policy.check_finite = true;
  add("fsdp with much prefetch", policy, [](ShardedCase& c) { c.evaluates = true; });
  policy = zero3;
  policy.divide_by = 3;
  add("zero3 divided by 3", policy, as_is);
  policy = zero1;
  policy.divide_by = 5;
  add("zero1 divided by 5", policy, [](ShardedCase& c) { c.momentum = true; });
  for (const Policy& p : {zero1, zero2, zero3, fsdp}) {
    const std::string stage =
        fmt::format("stage {} layout {}", static_cast<int>(p.stage), static_cast<int>(p.layout));
    if (ranks <= 4) {
      add(stage + ", accumulated", p, [](ShardedCase& c) { c.micro_batches = 3; });
      if (p.stage != Stage::optimizer) {
        add(stage + ", reduced each time", p, [](ShardedCase& c) {
          c.micro_batches = 3;
          c.reduce_each = true;
        });
      }
    }
    if (ranks % 2 == 0) {
      add(stage + ", two replicas", p, [](ShardedCase& c) {
        c.replicas = 2;
        c.micro_batches = 2;
      });
      add(stage + ", all replicas", p, [&](ShardedCase& c) {
        c.replicas = ranks;
        c.momentum = true;
      });
    }
  }
  if (ranks % 2 == 0) {
    for (const Policy& p : {zero3, fsdp}) {
      policy = p;
      policy.reshard_after_forward = Reshard::to_group;
      add(fmt::format("to a group, layout {}", static_cast<int>(p.layout)), policy,
          [](ShardedCase& c) {
            c.group = 2;
            c.micro_batches = 2;
            c.reduce_each = true;
          });
    }
  }
  return all;
}

class Sharded : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Sharded, testing::Values(1, 2, 3, 4, 8));

TEST_P(Sharded, TrainingEndsWhereOneRankEnds) {
  const int ranks = GetParam();
  const Trained expected[2] = {test::train_alone(mlp(), 5, false),
                               test::train_alone(mlp(), 5, true)};
  // Both sides of the limit are in the test.
  EXPECT_GT(*std::ranges::max_element(expected[0].norms), test::kMostNorm);
  EXPECT_LT(*std::ranges::min_element(expected[0].norms), test::kMostNorm);
  double worst = 0;
  for (const auto& [name, c] : cases(ranks)) {
    SCOPED_TRACE(fmt::format("{}, {} ranks", name, ranks));
    std::vector<Trained> trained(static_cast<std::size_t>(ranks)), again(trained.size());
    const bool repeats = ranks <= 4;
    for (auto* run : {&trained, &again}) {
      if (run == &again && !repeats) break;
      run_thread_ranks(ranks, [&](Communicator& comm) {
        (*run)[static_cast<std::size_t>(comm.rank())] = test::train_sharded(comm, mlp(), c);
      });
    }
    const Trained& one = expected[c.momentum ? 1 : 0];
    const double d = test::difference(trained[0].parameters, one.parameters);
    EXPECT_LE(d, 1e-12);
    EXPECT_LE(test::difference(trained[0].norms, one.norms), 1e-12);
    worst = std::max(worst, d);
    for (const Trained& t : trained) {
      EXPECT_EQ(t.parameters, trained[0].parameters) << "ranks differ";
      EXPECT_EQ(t.norms, trained[0].norms);
    }
    if (repeats) {
      EXPECT_EQ(again[0].parameters, trained[0].parameters) << "runs differ";
    }
  }
  fmt::print("{} ranks: the largest relative difference is {:.1e}\n", ranks, worst);
}

// What a rank holds of each parameter, put together, is the parameter; whole rows by parameter, and
// anything where units are flat.
TEST(Sharded, ShardsPutTogetherAreTheParameters) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const Policy& policy : {Policy::zero3(kDouble), Policy::fsdp(kDouble)}) {
      std::mutex mutex;
      std::vector<std::vector<int>> held(2 * mlp().layers());
      std::vector<std::vector<double>> values(held.size());
      bool cuts_rows = false;
      run_thread_ranks(ranks, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        ShardedDataParallel model(mlp().units(), policy, {.shard = &axis});
        for (std::size_t l = 0; l < mlp().layers(); ++l) {
          model.load({l, 0}, mlp().weight(l).data());
          model.load({l, 2}, mlp().bias(l).data());
        }
        const std::lock_guard lock(mutex);
        for (std::size_t i = 0; i < held.size(); ++i) {
          const std::size_t l = i / 2, p = i % 2 * 2;
          const std::size_t count = model.unit(l).parameters[p].count;
          held[i].resize(count);
          values[i].resize(count);
          const auto shard = model.shard({l, p});
          for (std::size_t e = 0; e < shard.count; ++e) {
            ++held[i][shard.begin + e];
            values[i][shard.begin + e] = static_cast<const double*>(shard.master)[e];
          }
          if (p == 0 && shard.count > 0) {
            cuts_rows |= shard.begin % mlp().in(l) != 0 || shard.count % mlp().in(l) != 0;
          }
          EXPECT_EQ(model.shard({l, 1}).count, 0U);
        }
      });
      EXPECT_EQ(cuts_rows, policy.layout == Layout::flat && ranks > 1);
      for (std::size_t i = 0; i < held.size(); ++i) {
        EXPECT_EQ(held[i], std::vector<int>(held[i].size(), 1));
        EXPECT_EQ(values[i], i % 2 == 0 ? mlp().weight(i / 2) : mlp().bias(i / 2));
      }
    }
  }
}

// Exact in 8 bits, and so is the mean over one, two, three or four ranks.
float narrow_gradient(std::size_t step, int rank, std::size_t i) {
  const auto n = static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3 + step) % 5) - 2;
  return 1.5f * static_cast<float>(n);
}

void write(DataType type, void* data, std::size_t i, float value) {
  if (type == DataType::float32) static_cast<float*>(data)[i] += value;
  if (type == DataType::bfloat16) {
    auto& bits = static_cast<std::uint16_t*>(data)[i];
    bits = to_bfloat16(from_bfloat16(bits) + value);
  }
  if (type == DataType::float16) {
    auto& bits = static_cast<std::uint16_t*>(data)[i];
    bits = to_float16(from_float16(bits) + value);
  }
}

// Three steps on one to four ranks: the bits are those of an optimizer that has all elements.
void expect_rounded_masters(const Policy& policy) {
  const std::vector<Unit> units = {{.name = "u", .parameters = {{"w", 1001, 7}, {"b", 37, 37}}},
                                   {.name = "v", .parameters = {{"w", 530, 53}}}};
  const auto start = [](std::size_t u, std::size_t p, std::size_t i) {
    return 0.01f * static_cast<float>(i % 97) - 0.3f * static_cast<float>(u + p);
  };
  const DataType narrow = policy.precision.compute;
  const AdamW adamw;
  for (const int ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedDataParallel model(units, policy, {.shard = &axis});
      for (std::size_t u = 0; u < units.size(); ++u) {
        for (std::size_t p = 0; p < units[u].parameters.size(); ++p) {
          std::vector<float> values(units[u].parameters[p].count);
          for (std::size_t i = 0; i < values.size(); ++i) values[i] = start(u, p, i);
          model.load({u, p}, values.data());
        }
      }
      model.share_parameters();
      for (std::size_t step = 0; step < 3; ++step) {
        for (std::size_t u = units.size(); u-- > 0;) {
          model.before_backward(u);
          for (std::size_t p = 0; p < units[u].parameters.size(); ++p) {
            for (std::size_t i = 0; i < units[u].parameters[p].count; ++i) {
              write(policy.precision.gradient, model.gradient({u, p}), i,
                    narrow_gradient(step, comm.rank(), i));
            }
          }
          model.after_backward(u);
        }
        model.finish_backward();
        model.step(adamw);
      }
      for (std::size_t u = 0; u < units.size(); ++u) {
        model.before_forward(u);
        for (std::size_t p = 0; p < units[u].parameters.size(); ++p) {
          const std::size_t n = units[u].parameters[p].count;
          std::vector<float> master(n), m(n), v(n), gradient(n);
          for (std::size_t i = 0; i < n; ++i) master[i] = start(u, p, i);
          for (std::size_t step = 0; step < 3; ++step) {
            for (std::size_t i = 0; i < n; ++i) {
              double sum = 0;
              for (int r = 0; r < ranks; ++r) sum += narrow_gradient(step, r, i);
              gradient[i] = static_cast<float>(sum / ranks);
            }
            adamw.update({.master = master.data(),
                          .state = {m.data(), v.data()},
                          .gradient = gradient.data(),
                          .count = n,
                          .step = step + 1});
          }
          const auto* computed = static_cast<const std::uint16_t*>(model.parameter({u, p}));
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < n; ++i) {
            wrong += computed[i] != (narrow == DataType::bfloat16 ? to_bfloat16(master[i])
                                                                  : to_float16(master[i]));
          }
          EXPECT_EQ(wrong, 0U) << "rank " << comm.rank() << " of " << ranks;
          const auto shard = model.shard({u, p});
          if (shard.count == 0) continue;
          EXPECT_EQ(std::memcmp(shard.master, &master[shard.begin], shard.count * sizeof(float)),
                    0);
          EXPECT_EQ(std::memcmp(shard.state[1], &v[shard.begin], shard.count * sizeof(float)), 0);
        }
        model.after_forward(u);
      }
    });
  }
}

// Narrow parameters follow a float32 master: the same bits on all ranks, and the rounded master.
TEST(Sharded, NarrowParametersAreTheRoundedMaster) {
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    for (Policy policy :
         {Policy::zero1(Precision::mixed(type)), Policy::zero2(Precision::mixed(type)),
          Policy::zero3(Precision::mixed(type)), Policy::fsdp(Precision::mixed(type))}) {
      for (const DataType reduce : {type, DataType::float32}) {
        for (const DataType gradient : {type, DataType::float32}) {
          policy.precision.reduce = reduce;
          policy.precision.gradient = gradient;
          SCOPED_TRACE(policy.describe());
          expect_rounded_masters(policy);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti
