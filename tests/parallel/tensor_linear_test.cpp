// Tensor-parallel linear layers compute what one rank computes, carry what the formulas say, to the
// byte, have the same bits on all ranks, in every run and in whatever pieces, and hide
// communication behind multiplication.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/error.h"
#include "parallel/tensor/linear.h"
#include "parallel/throttled_axis.h"
#include "tests/comm/matrix_reference.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::tensor {
namespace {

using test::difference;
using test::error_of;
using test::Matrix;
using test::run_thread_ranks;

constexpr DataType kType = DataType::float64;
constexpr double kClose = 1e-12;

// --- Linear layers -------------------------------------------------------------------------------

constexpr std::size_t kRows = 24, kIn = 16, kHidden = 40;

/// A two-layer network, and everything that its forward and backward compute, on one rank.
struct Mlp {
  Matrix x{kRows, kIn, 1}, dy{kRows, kIn, 2};
  Matrix w1{kHidden, kIn, 3}, b1{1, kHidden, 4}, w2{kIn, kHidden, 5}, b2{1, kIn, 6};
  Matrix h = plus_rows(x * transposed(w1), b1);
  Matrix t = each(h, [](double v) { return std::tanh(v); });
  Matrix y = plus_rows(t * transposed(w2), b2);
  Matrix dt = dy * w2;
  Matrix dh = times(dt, each(t, [](double v) { return 1 - v * v; }));
  Matrix dx = dh * w1;
  Matrix dw1 = transposed(dh) * x, dw2 = transposed(dy) * t;
  Matrix db1 = sum_of_rows(dh), db2 = sum_of_rows(dy);
};

struct Way {
  bool sequence = false;
  std::size_t pieces = 1;
  bool keeps_gathered = false;
  bool whole_between = false;  // gather_output, and input_is_parallel not
};

/// All that a rank has at the end, in one list of matrices; `expected`: all that it should have.
std::vector<Matrix> train(Axis& axis, const Way& way, const Multiply& multiply) {
  const Mlp m;
  const int rank = axis.rank(), ranks = axis.size();
  ColumnParallelLinear up(axis, {"up", kIn, kHidden, kType},
                          {way.whole_between, way.sequence, way.pieces}, multiply);
  RowParallelLinear down(axis, {"down", kHidden, kIn, kType},
                         {!way.whole_between, way.sequence, way.pieces}, multiply);
  const Matrix w1 = m.w1.slice(rank, ranks), b1 = m.b1.slice(rank, ranks, true),
               w2 = m.w2.slice(rank, ranks, true);
  const Matrix x = way.sequence ? m.x.slice(rank, ranks) : m.x,
               dy = way.sequence ? m.dy.slice(rank, ranks) : m.dy;
  Matrix h(kRows, way.whole_between ? kHidden : up.local_out()), y(x.rows, kIn), dx(x.rows, kIn);
  Matrix gathered(kRows, kIn), dt(h.rows, h.columns);
  Matrix dw1(w1.rows, w1.columns), db1(1, b1.columns), dw2(w2.rows, w2.columns), db2(1, kIn);
  double* const kept = way.keeps_gathered ? gathered.data() : nullptr;
  up.forward(x.data(), kRows, {w1.data(), b1.data()}, h.data(), kept);
  const Matrix t = each(h, [](double v) { return std::tanh(v); });
  down.forward(t.data(), kRows, {w2.data(), m.b2.data()}, y.data());
  down.backward(dy.data(), t.data(), kRows, {w2.data(), m.b2.data()}, dt.data(),
                {dw2.data(), db2.data()});
  const Matrix dh = times(dt, each(t, [](double v) { return 1 - v * v; }));
  up.backward(dh.data(), x.data(), kRows, {w1.data(), b1.data()}, dx.data(),
              {dw1.data(), db1.data()}, kept);
  return {y, dx, dw1, db1, dw2, db2};
}

std::vector<Matrix> expected(const Axis& axis, const Way& way) {
  const Mlp m;
  const int rank = axis.rank(), ranks = axis.size();
  const auto mine = [&](const Matrix& a) { return way.sequence ? a.slice(rank, ranks) : a; };
  // The gradient of the bias that all ranks have is that of the rank's rows.
  return {mine(m.y),
          mine(m.dx),
          m.dw1.slice(rank, ranks),
          m.db1.slice(rank, ranks, true),
          m.dw2.slice(rank, ranks, true),
          sum_of_rows(mine(m.dy))};
}

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const bool sequence : {false, true}) {
    for (const std::size_t pieces : {1, 2, 5, 1000}) {
      all.push_back({.sequence = sequence, .pieces = pieces});
      all.push_back({.sequence = sequence,
                     .pieces = pieces,
                     .keeps_gathered = sequence,
                     .whole_between = true});
      if (sequence) all.push_back({.sequence = true, .pieces = pieces, .keeps_gathered = true});
    }
  }
  return all;
}

TEST(TensorLinear, ComputesWhatOneRankDoes) {
  for (const int ranks : {1, 2, 4, 8}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      for (const Way& way : ways()) {
        const auto got = train(axis, way, multiply), should = expected(axis, way);
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_LE(difference(got[i], should[i]), kClose)
              << fmt::format("{} ranks, sequence {}, pieces {}, whole between {}: {}", ranks,
                             way.sequence, way.pieces, way.whole_between, i);
        }
        // The same bits in each run; and, what all ranks have, on each rank.
        EXPECT_EQ(train(axis, way, multiply), got);
        if (way.sequence) continue;
        for (const std::size_t i : {0u, 1u, 5u}) {
          std::vector<double> first = got[i].values;
          comm.broadcast(first.data(), first.data(), first.size(), kType, 0);
          EXPECT_EQ(first, got[i].values);
        }
      }
    });
  }
}

TEST(TensorLinear, HasTheSameBitsInWhateverPieces) {
  // Of two ranks' numbers there is one sum, in whatever order.
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const bool sequence : {false, true}) {
      const auto whole = train(axis, {.sequence = sequence}, multiply);
      for (const std::size_t pieces : {2, 3, 7, 12, 24}) {
        EXPECT_EQ(train(axis, {.sequence = sequence, .pieces = pieces}, multiply), whole) << pieces;
      }
    }
  });
}

TEST(TensorLinear, CarriesWhatTheFormulasSay) {
  for (const int ranks : {1, 2, 4, 8}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const auto p = static_cast<std::uint64_t>(ranks);
      const std::uint64_t tensor = kRows * kIn * 8;  // bytes of what enters and leaves
      const auto traffic = [&](const Way& way) {
        // What the constructors agree on is not counted: made twice, it is that less.
        axis.reset_traffic();
        ColumnParallelLinear(axis, {"up", kIn, kHidden, kType}, {});
        RowParallelLinear(axis, {"down", kHidden, kIn, kType}, {});
        const Traffic::Count made = axis.traffic()[Collective::all_reduce];
        axis.reset_traffic();
        train(axis, way, multiply);
        Traffic t = axis.traffic();
        t[Collective::all_reduce].calls -= made.calls;
        t[Collective::all_reduce].sent -= made.sent;
        t[Collective::all_reduce].received -= made.received;
        return t;
      };
      using Count = Traffic::Count;
      const std::uint64_t once = (p - 1) * tensor / p;  // (P - 1) / P of it
      // Megatron's MLP: an all-reduce in the forward, one in the backward.
      Traffic t = traffic({});
      EXPECT_EQ(t[Collective::all_reduce], (Count{2, 4 * once, 4 * once}));
      EXPECT_EQ(t.total(), t[Collective::all_reduce]);
      // In pieces: as many bytes, in more calls. 24 rows in 3 or 24 pieces are equal ones.
      t = traffic({.pieces = 3});
      EXPECT_EQ(t[Collective::all_reduce], (Count{6, 4 * once, 4 * once}));
      // Sequence parallel: an all-gather and a reduce-scatter in each direction, and one
      // all-gather more where x is gathered anew for the backward.
      t = traffic({.sequence = true, .keeps_gathered = true});
      EXPECT_EQ(t[Collective::all_gather], (Count{2, 2 * once, 2 * once}));
      EXPECT_EQ(t[Collective::reduce_scatter], (Count{2, 2 * once, 2 * once}));
      EXPECT_EQ(t[Collective::all_reduce], Count{});
      t = traffic({.sequence = true});
      EXPECT_EQ(t[Collective::all_gather], (Count{3, 3 * once, 3 * once}));
      EXPECT_EQ(t[Collective::reduce_scatter], (Count{2, 2 * once, 2 * once}));
      t = traffic({.sequence = true, .pieces = 3, .keeps_gathered = true});
      EXPECT_EQ(t[Collective::all_gather].sent, 2 * once);
      EXPECT_EQ(t[Collective::all_gather].calls, 2 * std::min<std::uint64_t>(3, kRows / p));
      EXPECT_EQ(t[Collective::reduce_scatter].sent, 2 * once);
      // Between the layers, what both could have spared: the activations and their gradients.
      t = traffic({.whole_between = true});
      const std::uint64_t between = (p - 1) * kRows * kHidden * 8 / p;
      EXPECT_EQ(t[Collective::all_gather], (Count{2, 2 * between, 2 * between}));
      EXPECT_EQ(t[Collective::all_reduce], (Count{2, 4 * once, 4 * once}));
    });
  }
}

// docs/tensor.md.
TEST(TensorLinear, HoldsWhatTheDocumentsSay) {
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    constexpr std::size_t kTensor = kRows * kIn * 8;
    for (const Way& way :
         {Way{}, Way{.pieces = 3}, Way{.sequence = true}, Way{.sequence = true, .pieces = 3},
          Way{.sequence = true, .keeps_gathered = true}}) {
      ColumnParallelLinear up(axis, {"up", kIn, kHidden, kType}, {false, way.sequence, way.pieces});
      RowParallelLinear down(axis, {"down", kHidden, kIn, kType}, {true, way.sequence, way.pieces});
      Matrix whole(kRows, kIn), slice(kRows, kIn), hidden(kRows, kHidden / 4);
      Matrix w1(kHidden / 4, kIn), w2(kIn, kHidden / 4);
      double* const kept = way.keeps_gathered ? whole.data() : nullptr;
      for (int i = 0; i < 2; ++i) {
        up.forward(slice.data(), kRows, {w1.data(), nullptr}, hidden.data(), kept);
        down.forward(hidden.data(), kRows, {w2.data(), nullptr}, slice.data());
        down.backward(slice.data(), hidden.data(), kRows, {w2.data(), nullptr}, hidden.data(),
                      {w2.data(), nullptr});
        up.backward(hidden.data(), whole.data(), kRows, {w1.data(), nullptr}, slice.data(),
                    {w1.data(), nullptr}, kept);
      }
      const std::size_t kept_less = way.keeps_gathered ? 1 : 0;
      EXPECT_EQ(up.memory().peak, way.sequence ? (2 - kept_less) * kTensor : 0);
      EXPECT_EQ(down.memory().peak, way.sequence ? 2 * kTensor : 0);
    }
  });
}

// The example of textbooks: X of 2 x 4, W of 4 x 8 (here transposed, 8 x 4), two ranks.
TEST(TensorLinear, CutsColumns) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ColumnParallelLinear layer(axis, {"W", 4, 8, DataType::float32});
    std::vector<float> x(8), w(16), y(8);
    for (std::size_t i = 0; i < 8; ++i) x[i] = static_cast<float>(i);
    const std::size_t first = 4 * static_cast<std::size_t>(comm.rank());
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t k = 0; k < 4; ++k) {
        w[j * 4 + k] = static_cast<float>(10 * (first + j) + k);
      }
    }
    axis.reset_traffic();
    layer.forward(x.data(), 2, {w.data(), nullptr}, y.data());
    EXPECT_EQ(axis.traffic().total(), Traffic::Count{});
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t j = 0; j < 4; ++j) {
        float sum = 0;
        for (std::size_t k = 0; k < 4; ++k) {
          sum += static_cast<float>(4 * i + k) * static_cast<float>(10 * (first + j) + k);
        }
        EXPECT_EQ(y[i * 4 + j], sum);
      }
    }
  });
}

// A multiplication that takes a while, without a core, over a link on which a whole transfer takes
// as long: in pieces, most of it is hidden.
TEST(TensorLinear, HidesCommunicationBehindMultiplication) {
  using namespace std::chrono_literals;
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis beneath(comm);
    for (const bool sequence : {false, true}) {
      std::chrono::nanoseconds waited[2]{1h, 1h};
      for (int attempt = 0; attempt < 6; ++attempt) {
        const std::size_t pieces = attempt % 2 == 0 ? 1 : 4;
        const double bytes = sequence ? kRows * kIn * 8 / 2 : kRows * kIn * 8;
        ThrottledAxis axis(beneath, {.bytes_per_second = bytes / 0.1});
        RowParallelLinear layer(axis, {"down", kHidden, kIn, kType}, {true, sequence, pieces},
                                [](const Product& p) {
                                  const double part = static_cast<double>(p.rows) / kRows;
                                  std::this_thread::sleep_for(part * 100ms);
                                  multiply(p);
                                });
        const Matrix x(kRows, layer.local_in(), 1), w(kIn, layer.local_in(), 2);
        Matrix y(kRows, kIn);
        axis.run(call_of(Collective::barrier, nullptr, nullptr, 0, kType));
        axis.reset_traffic();
        layer.forward(x.data(), kRows, {w.data(), nullptr}, y.data());
        std::chrono::nanoseconds& least = waited[attempt % 2];
        least = std::min(least, axis.traffic().waited);
      }
      // A quarter, by the schedule; a busy machine may make a half of it.
      EXPECT_GE(waited[0], 75ms);
      EXPECT_LE(waited[1], waited[0] / 2) << sequence;
    }
  });
}

// --- What goes wrong -----------------------------------------------------------------------------

TEST(TensorErrors, NameTheLayerAndTheSizes) {
  run_thread_ranks(4, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Error out = error_of([&] { ColumnParallelLinear(axis, {"mlp.up", 16, 10, kType}); });
    EXPECT_EQ(out.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(out, "linear 'mlp.up': 10 outputs cannot be divided among 4 ranks");
    const Error in = error_of([&] { RowParallelLinear(axis, {"mlp.down", 9, 16, kType}); });
    EXPECT_EQ(in.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(in, "linear 'mlp.down': 9 inputs cannot be divided among 4 ranks");
    ColumnParallelLinear layer(axis, {"mlp.up", 4, 8, kType}, {.sequence = true});
    const Matrix x(4, 4, 1), w(2, 4, 2);
    Matrix y(6, 2);
    const Error rows = error_of([&] { layer.forward(x.data(), 6, {w.data(), nullptr}, y.data()); });
    EXPECT_EQ(rows.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(rows, "linear 'mlp.up': 6 rows cannot be divided among 4 ranks");
    const Error null = error_of([&] { layer.forward(nullptr, 4, {w.data(), nullptr}, y.data()); });
    EXPECT_EQ(null.code(), ErrorCode::invalid_argument);
    EXPECT_CONTAINS(null, "linear 'mlp.up': the input is null, but has 16 elements");
    // Nothing has been communicated: the next call is right.
    layer.forward(x.data(), 4, {w.data(), nullptr}, y.data());
    Mapper mapper(axis, "scatter 'x'");
    const Error extent = error_of([&] {
      mapper.run(Operation::split, x.data(), y.data(), {2, 6, 1}, kType);
    });
    EXPECT_CONTAINS(extent, "scatter 'x': 6 elements of a dimension");
  });
}

TEST(TensorErrors, RanksThatDifferAreToldSo) {
  for (const int odd : {0, 2}) {
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const bool is_odd = comm.rank() == odd;
      const Error sizes = error_of([&] {
        ColumnParallelLinear(axis, {"up", 16, is_odd ? 15u : 12u, kType});
      });
      EXPECT_EQ(sizes.code(), ErrorCode::mismatch);
      EXPECT_EQ(sizes.rank(), odd);
      EXPECT_CONTAINS(sizes, "linear 'up' differs among the ranks");
      EXPECT_CONTAINS(sizes, "15 outputs");
      const Error options = error_of([&] {
        RowParallelLinear(axis, {"down", 12, 16, kType}, {.pieces = is_odd ? 2u : 1u});
      });
      EXPECT_EQ(options.code(), ErrorCode::mismatch);
      EXPECT_CONTAINS(options, "pieces 2");
      // In a call: the layer is named, on every rank.
      RowParallelLinear layer(axis, {"down", 12, 16, kType});
      const Matrix x(8, 4, 1), w(16, 4, 2);
      Matrix y(8, 16);
      const Error rows = error_of([&] {
        layer.forward(x.data(), is_odd ? 7 : 8, {w.data(), nullptr}, y.data());
      });
      EXPECT_EQ(rows.code(), ErrorCode::mismatch) << rows.what();
      EXPECT_CONTAINS(rows, "linear 'down'");
    });
  }
}

TEST(TensorErrors, OfTheMultiplicationLeaveNothingUnderWay) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    int calls = 0;
    RowParallelLinear layer(axis, {"down", 8, 4, kType}, {.pieces = 4}, [&](const Product& p) {
      if (++calls == 3) throw std::runtime_error("out of memory");
      multiply(p);
    });
    const Matrix x(8, 4, 1), w(4, 4, 2);
    Matrix y(8, 4);
    EXPECT_THROW(layer.forward(x.data(), 8, {w.data(), nullptr}, y.data()), std::runtime_error);
    layer.forward(x.data(), 8, {w.data(), nullptr}, y.data());  // on all ranks alike: still good
  });
}

}  // namespace
}  // namespace tutti::parallel::tensor
