#include "tests/comm/user_plans.h"

#include <stdexcept>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "tests/comm/matrix.h"

namespace tutti::test {
namespace {

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what + " is wrong");
}

/// Around the ring by send and recv, and a collective that has no plan of the user's.
void exercise_the_rest(Communicator& c, int round) {
  const int n = c.size();
  const int before = (c.rank() + n - 1) % n;
  const std::size_t count = round % 2 == 0 ? 7 : 30'000;
  const auto value = [&](int rank, std::size_t i) {
    return static_cast<std::int32_t>(i * 31 + static_cast<std::size_t>(rank * 1000 + round));
  };
  std::vector<std::int32_t> in(count), out(count), all(count * static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < count; ++i) in[i] = value(c.rank(), i);
  group([&] {
    c.send(in.data(), count, DataType::int32, (c.rank() + 1) % n);
    c.recv(out.data(), count, DataType::int32, before);
    c.all_gather(in.data(), all.data(), count, DataType::int32);
  });
  for (std::size_t i = 0; i < count; ++i) expect(out[i] == value(before, i), "recv");
  for (int r = 0; r < n; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      expect(all[static_cast<std::size_t>(r) * count + i] == value(r, i), "all_gather");
    }
  }
}

void exercise(Communicator& c, Collective collective, int root, bool in_windows) {
  Matrix m;
  m.collectives = {collective};
  m.types = {DataType::uint8, DataType::float32};
  m.kinds = {ReduceKind::sum, ReduceKind::avg};
  m.bytes = {0, 1, 1000, 70'001};
  m.window_memory = in_windows;
  m.root = root;
  const Tally tally = run_matrix(c, m);
  if (tally.wrong > 0) throw std::runtime_error(tally.first);
}

}  // namespace

std::string many_rings(int ranks, std::uint32_t lanes) {
  PlanRequest request;
  request.ranks = ranks;
  request.lanes = lanes;
  return to_text(generate_plan(*find_algorithm(Collective::all_reduce, "ring"), request));
}

std::string many_channels(int ranks, int root) {
  PlanHeader header;
  header.collective = Collective::broadcast;
  header.algorithm = "many_channels";
  header.ranks = ranks;
  header.root = root;
  header.pieces = kMostChannels;
  Plan plan{header, {}};
  for (int r = 0; r < ranks; ++r) {
    RankPlanBuilder b(header, r);
    for (std::uint32_t p = 0; p < kMostChannels; ++p) {
      const auto channel = static_cast<std::uint8_t>(kMostChannels - 1 - p);
      if (r != root) {
        b.lane(0).step({out(p)}, {from(root, channel)});
        continue;
      }
      std::vector<Operand> to_all{out(p)};
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer != root) to_all.push_back(to(peer, channel));
      }
      b.lane(0).step(to_all, std::vector{in(p)});
    }
    plan.ranks.push_back(b.finish());
  }
  return to_text(plan);
}

void exercise_many_links(Communicator& c) {
  const int n = c.size();
  int round = 0;
  for (const std::uint32_t lanes : {8U, 9U, 255U, 17U}) {  // more, and then fewer
    c.use_plan(many_rings(n, lanes));
    exercise(c, Collective::all_reduce, 0, lanes != 255);
    exercise_the_rest(c, round++);
  }
  for (int root = 0; root < n; ++root) {
    c.use_plan(many_channels(n, root));
    exercise(c, Collective::broadcast, root, root % 2 == 0);
    exercise_the_rest(c, round++);
    exercise(c, Collective::all_reduce, 0, false);
  }
}

}  // namespace tutti::test
