// The mesh of ranks: its arithmetic, exhaustively and against other arithmetic; its communicators,
// and that all ranks refuse a mesh that is none, or that differs among them.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "parallel/agreement.h"
#include "parallel/mesh.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::error_of;
using test::run_thread_ranks;
using Names = Mesh::Names;

/// Calls `body` with each way to write `ranks` as an ordered product of up to `most` sizes, ones
/// included.
void for_each_factorisation(int ranks, std::size_t most,
                            const std::function<void(const std::vector<int>&)>& body) {
  std::vector<int> sizes;
  const std::function<void(int)> grow = [&](int left) {
    if (left == 1 && !sizes.empty()) body(sizes);
    if (sizes.size() == most) return;
    for (int size = 1; size <= left; ++size) {
      if (left % size != 0) continue;
      sizes.push_back(size);
      grow(left / size);
      sizes.pop_back();
    }
  };
  grow(ranks);
}

MeshShape shape_of(const std::vector<int>& sizes, int infer = -1) {
  std::vector<MeshDimension> dimensions;
  int ranks = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool open = static_cast<int>(i) == infer;
    dimensions.push_back({std::string(1, static_cast<char>('a' + i)), open ? -1 : sizes[i]});
    ranks *= sizes[i];
  }
  return {ranks, dimensions};
}

/// All coordinates in order, by counting up as a row of wheels does: no division.
std::vector<std::vector<int>> counted(const std::vector<int>& sizes) {
  std::vector<std::vector<int>> result;
  std::vector<int> wheels(sizes.size(), 0);
  while (true) {
    result.push_back(wheels);
    std::size_t i = sizes.size();
    while (i > 0 && ++wheels[i - 1] == sizes[i - 1]) wheels[--i] = 0;
    if (i == 0) return result;
  }
}

TEST(MeshShapes, NumberRanksAsCountingDoes) {
  int shapes = 0;
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for_each_factorisation(ranks, 4, [&](const std::vector<int>& sizes) {
      ++shapes;
      const MeshShape shape = shape_of(sizes);
      const auto expected = counted(sizes);
      ASSERT_EQ(expected.size(), static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        const std::vector<int>& at = expected[static_cast<std::size_t>(r)];
        ASSERT_EQ(shape.coordinates(r), at) << shape.text() << ", rank " << r;
        ASSERT_EQ(shape.rank(at), r) << shape.text();
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          ASSERT_EQ(shape.coordinate(r, shape.dimensions()[i].name), at[i]);
        }
      }
    });
  }
  EXPECT_GT(shapes, 1000);
}

TEST(MeshShapes, FormTheGroupsOfEverySetOfDimensions) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for_each_factorisation(ranks, 3, [&](const std::vector<int>& sizes) {
      const MeshShape shape = shape_of(sizes);
      const auto at = counted(sizes);
      for (unsigned set = 0; set < 1u << sizes.size(); ++set) {
        Names names;
        for (std::size_t i = sizes.size(); i-- > 0;) {  // not in the mesh's order
          if ((set >> i & 1) != 0) names.push_back(shape.dimensions()[i].name);
        }
        std::vector<std::vector<int>> groups(static_cast<std::size_t>(ranks / shape.size(names)));
        for (int r = 0; r < ranks; ++r) {
          // The ranks that agree in all other coordinates, looked for one by one.
          std::vector<int> expected;
          for (int other = 0; other < ranks; ++other) {
            bool same = true;
            for (std::size_t i = 0; i < sizes.size(); ++i) {
              const auto a = static_cast<std::size_t>(r), b = static_cast<std::size_t>(other);
              if ((set >> i & 1) == 0 && at[a][i] != at[b][i]) same = false;
            }
            if (same) expected.push_back(other);
          }
          const std::vector<int> group = shape.group(r, names);
          ASSERT_EQ(group, expected) << shape.text() << ", rank " << r << ", set " << set;
          const MeshShape::GroupRank place = shape.group_rank(r, names);
          ASSERT_LT(static_cast<std::size_t>(place.rank), group.size());
          ASSERT_EQ(group[static_cast<std::size_t>(place.rank)], r);
          ASSERT_LT(static_cast<std::size_t>(place.group), groups.size());
          std::vector<int>& known = groups[static_cast<std::size_t>(place.group)];
          if (known.empty()) known = group;
          ASSERT_EQ(known, group);  // one number, one group
        }
        for (const auto& group : groups) ASSERT_FALSE(group.empty());
      }
    });
  }
}

TEST(MeshShapes, FindOneSize) {
  for (int ranks = 1; ranks <= 64; ++ranks) {
    for_each_factorisation(ranks, 3, [&](const std::vector<int>& sizes) {
      for (int open = 0; open < static_cast<int>(sizes.size()); ++open) {
        const MeshShape shape = shape_of(sizes, open);
        ASSERT_EQ(shape.dimensions()[static_cast<std::size_t>(open)].size,
                  sizes[static_cast<std::size_t>(open)]);
      }
    });
  }
}

TEST(MeshShapes, MoveAlongADimension) {
  const MeshShape shape(24, {{"pp", 2}, {"dp", 3}, {"tp", 4}});
  EXPECT_EQ(shape.moved(0, "dp", 2), 8);
  EXPECT_EQ(shape.moved(23, "pp", 0), 11);
  EXPECT_EQ(shape.moved(23, "tp", 0), 20);
}

TEST(MeshShapes, RefuseWhatIsNone) {
  struct Case {
    int ranks;
    std::vector<MeshDimension> dimensions;
    std::string says;
  };
  const std::vector<Case> cases{
      {8, {{"pp", 2}, {"tp", 2}}, "their product is 4"},
      {6, {{"pp", 4}, {"tp", -1}}, "their product is 4 times"},
      {8, {{"pp", -1}, {"tp", -1}}, "only one size can be -1"},
      {8, {{"pp", 0}, {"tp", 8}}, "pp has to be 1 at least"},
      {8, {{"pp", -2}, {"tp", -4}}, "pp has to be 1 at least"},
      {4, {{"dp", 2}, {"dp", 2}}, "two dimensions are called dp"},
      {4, {{"", 4}}, "no name"},
      {2, {}, "their product is 1"},
      {1 << 30, {{"a", 1 << 16}, {"b", 1 << 16}, {"c", 1 << 16}, {"d", 1 << 16}}, "multiply up"},
      {0, {{"a", 1}}, "0 ranks"},
  };
  for (const Case& c : cases) {
    const Error error = error_of([&] { MeshShape(c.ranks, c.dimensions); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << c.says;
    EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << error.what();
  }
  const MeshShape shape(4, {{"dp", 2}, {"tp", 2}});
  const std::vector<std::function<void()>> uses{
      [&] { shape.size("cp"); },
      [&] {
        shape.group(0, Names{"dp", "dp"});
      },
      [&] { shape.coordinates(4); },
      [&] { shape.coordinates(-1); },
      [&] {
        shape.rank(std::array{0, 2});
      },
      [&] { shape.rank(std::array{0}); },
      [&] { shape.moved(0, "dp", 2); },
  };
  for (const auto& use : uses) EXPECT_EQ(error_of(use).code(), ErrorCode::invalid_argument);
}

TEST(Meshes, GiveEachDimensionAnAxis) {
  for (const int ranks : {2, 6, 8}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      Mesh mesh(world, {{"pp", 2}, {"dp", -1}, {"tp", ranks == 8 ? 2 : 1}},
                {{"tp", "dp"}, {"pp", "dp", "tp"}});
      for (const Names& names : {Names{"pp"}, Names{"dp"}, Names{"tp"}, Names{"dp", "tp"},
                                 Names{"tp", "dp"}, Names{"tp", "pp", "dp"}}) {
        CommunicatorAxis& axis = mesh.axis(names);
        const std::vector<int> expected = mesh.shape().group(world.rank(), names);
        ASSERT_EQ(static_cast<std::size_t>(axis.size()), expected.size());
        std::vector<int> found(expected.size());
        const int self = world.rank();
        axis.all_gather(&self, found.data(), 1, DataType::int32).wait();
        EXPECT_EQ(found, expected) << names.front();
      }
      EXPECT_EQ(mesh.coordinate("pp"), world.rank() * 2 / ranks);
      EXPECT_EQ(error_of([&] { mesh.axis({"pp", "dp"}); }).code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error_of([&] { mesh.axis("cp"); }).code(), ErrorCode::invalid_argument);
    });
  }
}

TEST(Meshes, ThatAreNoneOrDifferAreRefusedByAllRanks) {
  run_thread_ranks(4, [](Communicator& world) {
    const auto size = [&](int a, int b) { return world.rank() == 2 ? b : a; };
    // Rank 2 has another one, which multiplies up or does not; or all have one that does not.
    for (const int tp : {4, 3}) {
      const Error error = error_of([&] { Mesh(world, {{"dp", size(2, 1)}, {"tp", size(2, tp)}}); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.rank(), 2);
      EXPECT_NE(std::string(error.what()).find("rank 2 has \"dp 1\" where rank 0 has \"dp 2\""),
                std::string::npos)
          << error.what();
    }
    const Error fused = error_of([&] {
      Mesh(world, {{"dp", 2}, {"tp", 2}},
           world.rank() == 1 ? std::vector<Names>{{"dp", "tp"}} : std::vector<Names>{});
    });
    EXPECT_EQ(fused.code(), ErrorCode::mismatch);
    EXPECT_EQ(fused.rank(), 1);
    EXPECT_EQ(error_of([&] { Mesh(world, {{"dp", 3}}); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] {
                Mesh(world, {{"dp", 4}}, {{"x"}});
              }).code(),
              ErrorCode::invalid_argument);
    Mesh mesh(world, {{"dp", 4}});  // and the communicator is as good as before
    EXPECT_EQ(mesh.axis("dp").size(), 4);
  });
}

// Two rows of two ranks; the last of all differs, or does not come: its row is told its number in
// the mesh, not that in the row.
TEST(Meshes, CountRanksInErrors) {
  run_thread_ranks(4, [](Communicator& world) {
    Mesh mesh(world, {{"pp", 2}, {"tp", 2}});
    CommunicatorAxis &tp = mesh.axis("tp"), &pp = mesh.axis("pp");
    EXPECT_EQ(tp.world_rank(1), world.rank() / 2 * 2 + 1);
    const std::string line = world.rank() == 3 ? "b" : "a";
    const Error differs = error_of([&] { agree(tp, "this", {&line, 1}); });
    if (world.rank() >= 2) {
      EXPECT_EQ(differs.code(), ErrorCode::mismatch);
      EXPECT_EQ(differs.rank(), 3);
      EXPECT_NE(std::string(differs.what()).find("rank 3 has \"b\" where rank 2 has \"a\""),
                std::string::npos)
          << differs.what();
    }
    // Of both axes at once, as a mesh of replicas and shards is.
    Agreement all(tp, &pp);
    EXPECT_EQ(all.world_rank(all.rank()), world.rank());
    EXPECT_EQ(all.name(3), "rank 3");
    const Error of_all = error_of([&] { agree(all, "this", {&line, 1}); });
    EXPECT_EQ(of_all.rank(), 3);
    if (world.rank() == 2) {
      float x = 1;
      Call call = call_of(Collective::all_reduce, &x, &x, 1, DataType::float32);
      call.timeout = std::chrono::milliseconds(100);
      const Error late = error_of([&] { tp.run(call); });
      EXPECT_EQ(late.code(), ErrorCode::timed_out);
      EXPECT_EQ(late.rank(), 3);
      EXPECT_TRUE(std::string(late.what()).starts_with("on axis tp (ranks 2, 3): ")) << late.what();
    }
    world.barrier();
  });
}

// Rank 3 gives up: rank 2 learns why on their axis, rank 1 on theirs, and rank 0 from those.
TEST(Meshes, HandOnWhyARankGivesUp) {
  run_thread_ranks(4, [&](Communicator& world) {
    Mesh mesh(world, {{"pp", 2}, {"tp", 2}});
    if (world.rank() == 3) return mesh.abort("there is no more paper");
    const Error told = error_of([&] {
      while (true) {
        for (const char* name : {"tp", "pp"}) {
          float x = 1;
          mesh.axis(name).run(call_of(Collective::all_reduce, &x, &x, 1, DataType::float32));
        }
      }
    });
    mesh.abort(told.what());
    EXPECT_EQ(told.code(), ErrorCode::aborted);
    EXPECT_NE(std::string(told.what()).find("there is no more paper"), std::string::npos)
        << told.what();
  });
}

}  // namespace
}  // namespace tutti::parallel
