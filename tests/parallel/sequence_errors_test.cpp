// Attention over a divided sequence refuses what it cannot divide, ranks that differ, and kernels
// that fail: with a typed error, on all ranks, that says what and where.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/mesh.h"
#include "parallel/sequence/attention.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::sequence {
namespace {

using test::error_of;
using test::run_thread_ranks;

/// Of a layer of these sizes on 2 x 2 ranks.
Error error_with(Mesh& mesh, const AttentionShape& shape, AttentionOptions options = {},
                 Kernel kernel = plain_kernel()) {
  return error_of([&] {
    ContextParallelAttention({.heads = &mesh.axis("heads"), .keys = &mesh.axis("ring")}, shape,
                             kernel, options);
  });
}

void expect_refused(const Error& e, const std::string& part) {
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
  EXPECT_CONTAINS(e, "attention 'block3': " + part);
}

TEST(SequenceErrors, NameTheLayerAndTheSizes) {
  run_thread_ranks(4, [](Communicator& comm) {
    Mesh mesh(comm, {{"ring", 2}, {"heads", 2}});
    const AttentionShape good{.name = "block3", .sequence = 8, .heads = 4, .dim = 2};
    AttentionShape s = good;
    s.sequence = 10;
    expect_refused(error_with(mesh, s),
                   "10 positions of the sequence cannot be divided among 4 ranks");
    s = good;
    s.heads = 4;
    s.kv_heads = 3;
    expect_refused(error_with(mesh, s), "4 query heads cannot be divided among 3 key heads");
    s.heads = 1;
    s.kv_heads = 1;
    expect_refused(error_with(mesh, s), "1 heads are too few for 2 ranks of the heads axis");
    s = good;
    s.dim = 0;
    expect_refused(error_with(mesh, s), "sequence 8, batch 1, heads 4 and dim 0 must all be");
    s = good;
    s.type = DataType::int32;
    expect_refused(error_with(mesh, s), "it is for floats of 16, 32 and 64 bits, not int32");
    s = good;
    s.sequence = 1ul << 46;
    expect_refused(error_with(mesh, s), "sequence 70368744177664 x batch 1 x heads 4 x dim 2");
    s.sequence = 1ul << 40;
    const Error memory = error_with(mesh, s);
    EXPECT_EQ(memory.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(memory, "attention 'block3' needs 672 TiB on the host of ranks 0 to 3");
    Kernel half = plain_kernel();
    half.backward = nullptr;
    expect_refused(error_with(mesh, good, {}, half), "the kernel lacks a function");
    expect_refused(error_of([&] { ContextParallelAttention({}, good, plain_kernel()); }),
                   "it needs an axis");
    // The axes are as good as before.
    ContextParallelAttention layer({&mesh.axis("heads"), &mesh.axis("ring")}, good, plain_kernel());
    const ContextParallelAttention::Saved none;
    float x = 0;
    const Error e = error_of([&] { layer.backward(&x, none, &x, &x, &x); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_CONTAINS(e, "attention 'block3': the backward of no forward");
  });
}

TEST(SequenceErrors, ZigzagNeedsTwoChunksForEachRank) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Error e = error_of([&] {
      ContextParallelAttention({.keys = &axis}, {.name = "block3", .sequence = 9, .dim = 2},
                               plain_kernel(), {.order = SequenceOrder::zigzag});
    });
    expect_refused(e,
                   "9 positions of the sequence cannot be divided into 2 chunks for each of 3 "
                   "ranks of the keys axis");
  });
}

TEST(SequenceErrors, RanksThatDifferAreToldSo) {
  run_thread_ranks(4, [](Communicator& comm) {
    Mesh mesh(comm, {{"ring", 2}, {"heads", 2}});
    const bool odd = comm.rank() == 2;
    const auto expect_mismatch = [](const Error& e, const std::string& part) {
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
      EXPECT_EQ(e.rank(), 2) << e.what();
      EXPECT_CONTAINS(e, "attention 'block3' differs among the ranks: rank 2 has \"attention of ");
      EXPECT_CONTAINS(e, part);
    };
    AttentionShape s{.name = "block3", .sequence = odd ? 16u : 8u, .heads = 4, .dim = 2};
    expect_mismatch(error_with(mesh, s), "of 16 positions");
    s.sequence = 8;
    s.causal = odd;
    expect_mismatch(error_with(mesh, s), "causal");
    s.causal = true;
    s.kv_heads = odd ? 2 : 4;
    expect_mismatch(error_with(mesh, s), "2 key heads");
    s.kv_heads = 4;
    expect_mismatch(
        error_with(mesh, s, {.order = odd ? SequenceOrder::zigzag : SequenceOrder::contiguous}),
        "zigzag order");
    expect_mismatch(error_with(mesh, s, {.keys = odd ? KeysTravel::all_gather : KeysTravel::ring}),
                    "keys by all_gather");
    expect_mismatch(error_with(mesh, s, {}, odd ? Kernel{} : plain_kernel()), "without a kernel");
  });
}

// The rank whose kernel fails says so, and nobody waits for it.
TEST(SequenceErrors, AKernelThatFailsFailsOnAllRanks) {
  for (const bool in_backward : {false, true}) {
    for (const KeysTravel keys : {KeysTravel::ring, KeysTravel::all_gather}) {
      run_thread_ranks(4, [&](Communicator& comm) {
        Mesh mesh(comm, {{"ring", 2}, {"heads", 2}});
        Kernel kernel = plain_kernel();
        const bool fails = comm.rank() == 3;
        if (fails && in_backward) {
          kernel.backward = [](const BackwardBlock&) { throw std::runtime_error("no memory"); };
        } else if (fails) {
          kernel.forward = [](const ForwardBlock&) { throw std::runtime_error("no memory"); };
        }
        ContextParallelAttention layer({&mesh.axis("heads"), &mesh.axis("ring")},
                                       {.name = "block3", .sequence = 8, .heads = 2, .dim = 2},
                                       kernel, {.keys = keys});
        std::vector<float> q(8), out(8), dq(8), dk(8), dv(8);
        const Error e = error_of([&] {
          for (int step = 0; step < 3; ++step) {
            ContextParallelAttention::Saved saved;
            layer.forward(q.data(), q.data(), q.data(), out.data(), saved);
            layer.backward(q.data(), saved, dq.data(), dk.data(), dv.data());
          }
        });
        // Rank 0 has no axis in common with rank 3: it is told by a rank that has given up.
        if (e.code() != ErrorCode{}) mesh.abort(e.what());
        EXPECT_EQ(e.code(), ErrorCode::aborted) << comm.rank() << e.what();
        EXPECT_CONTAINS(e, std::string("attention 'block3': the kernel's ") +
                               (in_backward ? "backward" : "forward") +
                               " failed on rank 3: no memory");
        if (fails) {
          EXPECT_EQ(e.rank(), 3);
        }
      });
    }
  }
}

// Others wait for a rank whose call is refused: they hear why.
TEST(SequenceErrors, ARankAloneThatIsRefusedFailsOnAllRanks) {
  for (const bool in_backward : {false, true}) {
    for (const bool of_heads : {false, true}) {
      Options options;
      options.timeout = std::chrono::seconds(20);
      run_thread_ranks(2, options, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        ContextParallelAttention layer(
            {.heads = of_heads ? &axis : nullptr, .keys = of_heads ? nullptr : &axis},
            {.name = "block3", .sequence = 8, .heads = 2, .dim = 2}, plain_kernel());
        std::vector<float> q(16), out(16), dq(16), dk(16), dv(16);
        ContextParallelAttention::Saved saved;
        const bool refused = comm.rank() == 1;
        const float* const keys = refused && !in_backward ? nullptr : q.data();
        const Error e = error_of([&] {
          layer.forward(q.data(), keys, q.data(), out.data(), saved);
          if (refused) saved = {};
          layer.backward(q.data(), saved, dq.data(), dk.data(), dv.data());
        });
        const std::string why = in_backward ? "the backward of no forward" : "k is null";
        EXPECT_CONTAINS(e, "attention 'block3': " + why);
        if (refused) {
          EXPECT_EQ(e.code(), in_backward ? ErrorCode::invalid_usage : ErrorCode::invalid_argument);
        } else {
          EXPECT_EQ(e.code(), ErrorCode::aborted) << e.what();
          EXPECT_CONTAINS(e, "rank 1 failed in attention 'block3'");
        }
      });
    }
  }
}

TEST(SequenceErrors, AxesThatDoNotCrossAreRefused) {
  run_thread_ranks(4, [](Communicator& comm) {
    Mesh mesh(comm, {{"ring", 2}, {"heads", 2}}, {{"ring", "heads"}});
    const AttentionShape shape{.name = "block3", .sequence = 16, .heads = 4, .dim = 2};
    const auto error_of_axes = [&](Axis& heads, Axis& keys) {
      return error_of([&] {
        ContextParallelAttention({.heads = &heads, .keys = &keys}, shape, plain_kernel());
      });
    };
    Axis &ring = mesh.axis("ring"), &both = mesh.axis({"ring", "heads"});
    expect_refused(error_of_axes(ring, ring),
                   "the axes 'ring' and 'ring' have more ranks in common");
    expect_refused(error_of_axes(ring, both), "the axes 'ring' and 'ring x heads' have more ranks");
    CommunicatorAxis unnamed(comm);
    expect_refused(error_of_axes(unnamed, unnamed), "the axes one and one have more ranks");
    ContextParallelAttention({&mesh.axis("heads"), &ring}, shape, plain_kernel());  // as ever
  });
}

// Without a message that could fail, what a forward has left is all that the backward sees.
TEST(SequenceErrors, TheBackwardOfAForwardThatThrewIsRefused) {
  run_thread_ranks(1, [](Communicator& comm) {
    Mesh mesh(comm, {{"ring", 1}});
    Kernel kernel = plain_kernel();
    bool fails = false;
    const auto forward = kernel.forward;
    kernel.forward = [&](const ForwardBlock& block) {
      if (fails) throw std::runtime_error("no memory");
      forward(block);
    };
    const AttentionShape shape{.name = "block3", .sequence = 8, .heads = 2, .dim = 2};
    std::vector<float> q(32), out(32), dq(32), dk(32), dv(32);
    const auto refused = [&](ContextParallelAttention& layer,
                             const ContextParallelAttention::Saved& saved) {
      const Error e =
          error_of([&] { layer.backward(q.data(), saved, dq.data(), dk.data(), dv.data()); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
      EXPECT_CONTAINS(e, "the backward of no forward");
    };
    for (const bool throws : {false, true}) {
      ContextParallelAttention layer({.keys = &mesh.axis("ring")}, shape, kernel);
      ContextParallelAttention::Saved saved;
      fails = false;
      layer.forward(q.data(), q.data(), q.data(), out.data(), saved);
      layer.backward(q.data(), saved, dq.data(), dk.data(), dv.data());
      fails = throws;
      // The kernel fails, or null is refused: what an earlier forward has saved is not meant.
      const float* const keys = throws ? q.data() : nullptr;
      EXPECT_NE(
          error_of([&] { layer.forward(q.data(), keys, q.data(), out.data(), saved); }).code(),
          ErrorCode{});
      refused(layer, saved);
    }
  });
  run_thread_ranks(1, [](Communicator& comm) {
    Mesh mesh(comm, {{"ring", 1}});
    const AttentionShape small{.name = "block3", .sequence = 8, .heads = 2, .dim = 2};
    AttentionShape large = small;
    large.sequence = 800;
    ContextParallelAttention one({.keys = &mesh.axis("ring")}, small, plain_kernel());
    ContextParallelAttention other({.keys = &mesh.axis("ring")}, large, plain_kernel());
    std::vector<float> q(3200), out(3200), dq(3200), dk(3200), dv(3200);
    ContextParallelAttention::Saved saved;
    one.forward(q.data(), q.data(), q.data(), out.data(), saved);
    const Error e =
        error_of([&] { other.backward(q.data(), saved, dq.data(), dk.data(), dv.data()); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
  });
}

}  // namespace
}  // namespace tutti::parallel::sequence
