// The executor of pipeline schedules with thread ranks: failures name the rank and the place, on
// all ranks, and a schedule that cannot run is refused before it begins.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/host_memory.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "tests/parallel/pipeline_model.h"
#include "tests/parallel/pipeline_sizes.h"
#include "tests/support/address_space.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::pipeline {
namespace {

using test::PipelineModel;
using test::run_thread_ranks;

/// Runs `body` on the ranks and returns what each throws.
std::vector<Error> errors_of(int ranks, const Options& options,
                             const std::function<void(Communicator&)>& body) {
  std::vector<Error> errors(static_cast<std::size_t>(ranks), Error(ErrorCode{}, "no error"));
  run_thread_ranks(ranks, options, [&](Communicator& comm) {
    Error& error = errors[static_cast<std::size_t>(comm.rank())];
    error = test::error_of([&] { body(comm); });
  });
  return errors;
}

TEST(PipelineErrors, AStageThatThrowsFailsAllRanks) {
  const Schedule s = generate(*find_generator("1f1b"), {4, 8, 0});
  const auto errors = errors_of(4, {}, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    PipelineModel model(s, sizes(s));
    Stages stages = model.stages();
    stages.backward = [](int stage, int m, Stages::In, Stages::Out) {
      if (stage == 2 && m == 1) throw std::runtime_error("out of tensors");
    };
    // Gradients are not computed here, so forwards alone are checked.
    Executor pipeline(axis, s, sizes(s), stages);
    try {
      pipeline.step();
    } catch (const Error& e) {
      if (comm.rank() == 2) {
        EXPECT_THROW(std::rethrow_if_nested(e), std::runtime_error);
      }
      EXPECT_EQ(test::error_of([&] { pipeline.step(); }).code(), ErrorCode::invalid_usage);
      throw;
    }
  });
  EXPECT_EQ(errors[2].code(), ErrorCode::aborted);
  EXPECT_EQ(errors[2].rank(), 2);
  EXPECT_CONTAINS(errors[2].what(), "pipeline 1f1b, rank 2, action ");
  EXPECT_CONTAINS(errors[2].what(),
                  "(2B1: backward of stage 2, micro-batch 1): the stage's function failed: "
                  "out of tensors");
  for (const std::size_t r : {0u, 1u, 3u}) {
    EXPECT_EQ(errors[r].code(), ErrorCode::aborted) << errors[r].what();
    EXPECT_CONTAINS(errors[r].what(), fmt::format("pipeline 1f1b, rank {}", r));
    EXPECT_CONTAINS(errors[r].what(), "out of tensors");
  }
}

TEST(PipelineErrors, WhatIsNoStdExceptionFailsAllRanksToo) {
  const Schedule s = generate(*find_generator("gpipe"), {2, 2, 0});
  const auto errors = errors_of(2, {}, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    PipelineModel model(s, {16});
    Stages stages = model.stages();
    stages.backward_weights = [](int stage, int) {
      if (stage == 0) throw 5;
    };
    Executor(axis, s, {16}, stages).step();
  });
  EXPECT_CONTAINS(errors[0].what(), "an exception that is no std::exception");
}

TEST(PipelineErrors, ARankThatStaysAwayIsNamed) {
  const Schedule s = generate(*find_generator("zb-v"), {3, 6, 0});
  Options options;
  options.timeout = std::chrono::milliseconds(300);
  const auto errors = errors_of(3, options, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    PipelineModel model(s, sizes(s));
    Stages stages = model.stages();
    const auto forward = stages.forward;
    stages.forward = [&](int stage, int m, Stages::In in, Stages::Out out) {
      forward(stage, m, in, out);
      if (stage == 1 && m == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    };
    Executor(axis, s, sizes(s), stages).step();
  });
  bool timed_out = false;
  for (const Error& e : errors) {
    EXPECT_NE(e.code(), ErrorCode{}) << e.what();
    timed_out = timed_out || e.code() == ErrorCode::timed_out;
    EXPECT_CONTAINS(e.what(), "pipeline zb-v, rank ");
    EXPECT_CONTAINS(e.what(), "action ");
  }
  EXPECT_TRUE(timed_out);
}

TEST(PipelineErrors, ARankThatLeavesFailsTheOthers) {
  const Schedule s = generate(*find_generator("1f1b"), {3, 6, 0});
  const auto errors = errors_of(3, {}, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    PipelineModel model(s, sizes(s));
    Executor pipeline(axis, s, sizes(s), model.stages());
    pipeline.step();
    if (comm.rank() == 1) {
      comm.destroy();
      return;
    }
    pipeline.step();
  });
  for (const std::size_t r : {0u, 2u}) {
    EXPECT_NE(errors[r].code(), ErrorCode{});
    EXPECT_CONTAINS(errors[r].what(), fmt::format("pipeline 1f1b, rank {}", r));
  }
}

/// What ranks throw that make a pipeline with so many bytes between stages. Should it come to
/// allocating them, that fails soon.
std::vector<Error> errors_with(const Schedule& s, std::size_t bytes, std::size_t limit) {
  const test::AddressSpace space(limit);
  return errors_of(s.ranks(), {}, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    PipelineModel model(s, std::vector<std::size_t>(static_cast<std::size_t>(s.stages() - 1), 8));
    Executor(axis, s, std::vector<std::size_t>(static_cast<std::size_t>(s.stages() - 1), bytes),
             model.stages());
  });
}

TEST(PipelineErrors, BuffersThatNoMemoryHoldsAreRefusedOnAllRanks) {
  const Schedule s = generate(*find_generator("1f1b"), {3, 4, 0});
  // Rank 1 has both ends of four links.
  const auto of_all = static_cast<std::size_t>(s.buffers) * (2 + 4 + 2);
  const std::size_t total = host_memory().total;
  for (const std::size_t bytes : {std::size_t{1} << 43,       // of one buffer
                                  total * 6 / 5 / of_all}) {  // of all ranks together
    const auto errors = errors_with(s, bytes, std::size_t{2} << 30);
    for (const Error& e : errors) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
      EXPECT_EQ(e.rank(), 0);
      EXPECT_CONTAINS(e.what(), "the pipeline schedule 1f1b (its buffers) needs ");
      EXPECT_CONTAINS(e.what(), " on the host of ranks 0 to 2 (3 ranks), where ");
      EXPECT_STREQ(e.what(), errors[0].what());
    }
  }
}

TEST(PipelineErrors, MemoryThatTheSystemRefusesIsAnErrorOnAllRanks) {
  const Schedule s = generate(*find_generator("1f1b"), {3, 4, 0});
  const auto errors = errors_with(s, std::size_t{64} << 20, std::size_t{200} << 20);
  int own = 0;
  for (const Error& e : errors) {
    own += e.code() == ErrorCode::system;
    if (e.code() == ErrorCode::system) {
      EXPECT_EQ(e.rank(), &e - errors.data());
      EXPECT_CONTAINS(e.what(),
                      fmt::format("there is no memory for the pipeline schedule 1f1b on rank "
                                  "{}: ",
                                  e.rank()));
    } else {
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
      EXPECT_CONTAINS(e.what(), "refuses to run it; its error says why");
    }
  }
  EXPECT_GT(own, 0);
}

// The sum is no number of bytes: 65,536 buffers of 16 TiB at each end.
TEST(PipelineErrors, BuffersBeyondAllNumbersAreRefused) {
  Schedule s = generate(*find_generator("gpipe"), {2, 65'536 / 2, 0});
  s.buffers = s.micro_batches;
  for (const Error& e : errors_with(s, std::size_t{1} << 44, std::size_t{2} << 30)) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
  }
}

TEST(PipelineErrors, RanksThatDifferAreRefusedOnAll) {
  const auto refusals = [](const auto& schedule_of, const auto& bytes_of, const auto& stages_of) {
    return errors_of(3, {}, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const Schedule s = schedule_of(comm.rank());
      PipelineModel model(s, std::vector<std::size_t>(static_cast<std::size_t>(s.stages() - 1), 8));
      Executor(axis, s, bytes_of(comm.rank()), stages_of(comm.rank(), model));
    });
  };
  const auto usual = [](int) { return generate(*find_generator("1f1b"), {3, 4, 0}); };
  const auto eight = [](int) { return std::vector<std::size_t>{8, 8}; };
  const auto all = [](int, PipelineModel& model) { return model.stages(); };

  auto errors = refusals(
      [&](int rank) {
        return rank == 1 ? generate(*find_generator("gpipe"), {3, 4, 0}) : usual(0);
      },
      eight, all);
  for (const Error& e : errors) EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
  EXPECT_EQ(errors[0].rank(), 1);
  EXPECT_EQ(errors[2].rank(), 1);
  EXPECT_CONTAINS(errors[0].what(), "rank 1 has another one, or other sizes");

  errors = refusals(
      usual,
      [](int rank) {
        return std::vector<std::size_t>{8, rank == 2 ? 16u : 8u};
      },
      all);
  for (const Error& e : errors) EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();

  errors = refusals(
      usual,
      [](int) {
        return std::vector<std::size_t>{8, ~std::size_t{0}};
      },
      all);
  for (const Error& e : errors) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    EXPECT_CONTAINS(e.what(), "from stage 1 to the next: more than there can be");
  }

  errors = refusals(usual, eight, [](int rank, PipelineModel& model) {
    Stages stages = model.stages();
    if (rank == 0) stages.backward_weights = nullptr;
    return stages;
  });
  EXPECT_EQ(errors[0].code(), ErrorCode::invalid_argument);
  EXPECT_CONTAINS(errors[0].what(),
                  "for 0B0 rank 0 has backward_inputs without backward_weights (and no backward)");
  for (const std::size_t r : {1u, 2u}) {
    EXPECT_EQ(errors[r].code(), ErrorCode::mismatch);
    EXPECT_EQ(errors[r].rank(), 0);
    EXPECT_CONTAINS(errors[r].what(), "rank 0 refuses to run it; its error says why");
  }

  errors = refusals(usual, eight, [](int rank, PipelineModel& model) {
    Stages stages = model.stages();
    if (rank == 1) stages.backward_inputs = stages.backward = nullptr;
    if (rank == 1) stages.backward_weights = nullptr;
    return stages;
  });
  EXPECT_CONTAINS(errors[1].what(),
                  "for 1B0 rank 1 has no backward (nor backward_inputs and backward_weights)");

  errors = refusals(
      [&](int) {
        Schedule s = usual(0);
        std::swap(s.actions[1][0], s.actions[1][3]);
        return s;
      },
      eight, all);
  for (const Error& e : errors) EXPECT_EQ(e.code(), ErrorCode::unproven_plan) << e.what();

  errors = refusals(
      [&](int) {
        return generate(*find_generator("1f1b"), {2, 4, 0});
      },
      [](int) { return std::vector<std::size_t>{8}; }, all);
  for (const Error& e : errors) EXPECT_CONTAINS(e.what(), "it is for 2 ranks, and the axis has 3");
  errors = refusals(
      usual, [](int) { return std::vector<std::size_t>{8}; }, all);
  for (const Error& e : errors) EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
}

}  // namespace
}  // namespace tutti::parallel::pipeline
