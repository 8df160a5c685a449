// Layouts: what the makers make, what check() refuses, their JSON, and pictures and predictions of
// plans between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "parallel/reshard/draw.h"
#include "parallel/reshard/layout.h"
#include "parallel/reshard/predict.h"
#include "parallel/reshard/verify.h"
#include "tests/parallel/reshard_cases.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::reshard::test {
namespace {

using tutti::test::error_of;

const Tensor kMatrix{"w", DataType::bfloat16, {8, 6}};

TEST(ReshardLayout, AMeshCutsAsDTensorDoes) {
  Layout layout(6);
  // 7 rows on 3 ranks: 3, 3, 1, as torch.chunk() cuts them; columns on 2: 3, 3.
  add_sharded(layout, {"w", DataType::float32, {7, 6}}, {{3, 2}, {shard(0), shard(1)}});
  const std::vector<Piece>& pieces = layout.tensors[0].pieces;
  ASSERT_EQ(pieces.size(), 6u);
  EXPECT_EQ(text_of(pieces[0].box), "[0:3, 0:3]");
  EXPECT_EQ(text_of(pieces[1].box), "[0:3, 3:6]");
  EXPECT_EQ(text_of(pieces[5].box), "[6:7, 3:6]");
  EXPECT_EQ(pieces[5].rank, 5);
  // 4 rows on 3 ranks: 2, 2, and none.
  Layout short_one(3);
  add_sharded(short_one, {"w", DataType::float32, {4}}, {{3}, {shard(0)}});
  EXPECT_EQ(short_one.tensors[0].pieces.size(), 2u);
}

TEST(ReshardLayout, ARunBecomesAFewBoxesThatFollowEachOther) {
  Layout layout(1);
  add_run(layout, {"w", DataType::int32, {4, 3, 2}}, 0, 5, 14, "flat", 8);
  std::vector<std::string> boxes;
  std::uint64_t offset = 8;
  for (const Piece& p : layout.tensors[0].pieces) {
    boxes.push_back(text_of(p.box));
    EXPECT_EQ(p.offset, offset);
    offset += p.box.elements() * 4;
  }
  EXPECT_EQ(boxes,
            (std::vector<std::string>{"[0:1, 2:3, 1:2]", "[1:3, 0:3, 0:2]", "[3:4, 0:1, 0:1]"}));
}

TEST(ReshardLayout, OwnersHaveTheirIndicesPacked) {
  Layout layout(2);
  const int owners[] = {1, 0, 0, 1};
  add_owned(layout, {"experts", DataType::uint8, {4, 10}}, 0, owners);
  EXPECT_EQ(layout.bytes_of(0), std::vector<std::uint64_t>{20});
  EXPECT_EQ(layout.bytes_of(1), std::vector<std::uint64_t>{20});
  EXPECT_EQ(layout.tensors[0].pieces.size(), 3u);
  layout.check(Side::to);
}

std::string refusal(const Layout& layout, Side side) {
  return error_of([&] { layout.check(side); }).what();
}

TEST(ReshardLayout, CheckSaysWhatIsMissingAndWhatIsThereTwice) {
  Layout layout(2);
  add_piece(layout, kMatrix, 0, {{0, 8}, {0, 4}}, "w");
  EXPECT_EQ(refusal(layout, Side::from),
            "layout: no rank has the elements [0:8, 4:6] of tensor 'w'");
  add_piece(layout, kMatrix, 1, {{0, 8}, {3, 6}}, "w");
  EXPECT_EQ(refusal(layout, Side::to), "no error");
  Piece& piece = add_piece(layout, kMatrix, 1, {{0, 1}, {0, 1}}, "w", 46);
  EXPECT_CONTAINS(refusal(layout, Side::to), "rank 1 would write byte 46 of buffer 'w' twice");
  EXPECT_EQ(refusal(layout, Side::from), "no error");
  piece.offset = 48;
  EXPECT_EQ(refusal(layout, Side::to), "no error");
  piece.offset = 47;
  EXPECT_CONTAINS(refusal(layout, Side::from), "begins at byte 47");
  piece.offset = 48;
  piece.rank = 2;
  EXPECT_CONTAINS(refusal(layout, Side::from), "has no rank: there are 2");
  piece.rank = 1;
  piece.box[1] = {6, 7};
  EXPECT_CONTAINS(refusal(layout, Side::from), "not inside of the tensor, in dimension 1");
}

TEST(ReshardLayout, RowsInTurnsShareABufferAndNoPlace) {
  Layout layout(1);
  const std::uint64_t strides[] = {12, 1};
  const Box whole{{0, 8}, {0, 6}};
  add_piece(layout, {"gate", DataType::bfloat16, {8, 6}}, 0, whole, "gate_up", 0, strides);
  Piece& up =
      add_piece(layout, {"up", DataType::bfloat16, {8, 6}}, 0, whole, "gate_up", 12, strides);
  layout.check(Side::to);
  up.offset = 10;
  EXPECT_CONTAINS(refusal(layout, Side::to), "would write byte 10 of buffer 'gate_up' twice");
}

TEST(ReshardLayout, JsonIsReadAsItIsWritten) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Case c = random_case(seed);
    const Layout read = layout_from_json(to_json(c.from));
    EXPECT_EQ(to_json(read), to_json(c.from)) << seed;
    EXPECT_EQ(read.tensors.size(), c.from.tensors.size());
  }
}

TEST(ReshardLayout, PeopleWriteShortForms) {
  const Layout layout = layout_from_json(R"({"ranks": 4, "tensors": [
    {"name": "a", "type": "bfloat16", "shape": [8, 6],
     "mesh": [2, 2], "placements": ["replicate", "shard 1"]},
    {"name": "b", "type": "float32", "shape": [10], "mesh": [2],
     "placements": [{"shard": 0, "sizes": [7, 3]}], "ranks": [3, 1]},
    {"name": "c", "type": "int8", "shape": [], "replicated": [0, 2]},
    {"name": "d", "type": "uint8", "shape": [3, 2], "owners": [2, 1, 2]},
    {"name": "e", "type": "uint8", "shape": [3, 2], "runs": [
      {"rank": 0, "begin": 0, "count": 4},
      {"rank": 1, "begin": 4, "count": 2, "buffer": "u", "offset": 8}]}
  ]})");
  layout.check(Side::to);
  ASSERT_EQ(layout.tensors.size(), 5u);
  EXPECT_EQ(layout.tensors[0].pieces.size(), 4u);
  EXPECT_EQ(text_of(layout.tensors[1].pieces[0].box), "[0:7]");
  EXPECT_EQ(layout.tensors[1].pieces[0].rank, 3);
  EXPECT_EQ(layout.tensors[2].pieces.size(), 2u);
}

TEST(ReshardLayout, AFieldThatIsWrongIsNamed) {
  const auto refusal_of = [](const std::string& text) {
    return std::string(error_of([&] { layout_from_json(text); }).what());
  };
  const auto tensor = [&](const std::string& fields) {
    return refusal_of(R"({"ranks": 2, "tensors": [{"name": "w", "shape": [4], )" + fields + "}]}");
  };
  EXPECT_EQ(refusal_of("{"), "layout: the text is no JSON");
  EXPECT_EQ(refusal_of(R"({"tensors": []})"), R"(layout: the layout has no field "ranks")");
  EXPECT_EQ(refusal_of(R"({"ranks": -1, "tensors": []})"),
            R"(layout: the layout has something else than a whole number from 0 on in "ranks")");
  EXPECT_EQ(tensor(R"("replicated": [0])"), R"(layout: tensor "w" has no field "type")");
  EXPECT_EQ(tensor(R"("type": "int4", "replicated": [0])"),
            R"(layout: tensor "w" has the type "int4", which is not known)");
  EXPECT_CONTAINS(tensor(R"("type": "int8", "repicated": [0])"),
                  R"(tensor "w" has a field "repicated", which is not known (did you mean)");
  EXPECT_CONTAINS(tensor(R"("type": "int8")"), "says not who has it");
  EXPECT_CONTAINS(tensor(R"("type": "int8", "mesh": [2], "placements": ["shard 1"])"),
                  "tensor 'w' has no dimension 1 to cut");
  EXPECT_CONTAINS(tensor(R"("type": "int8", "mesh": [2], "placements": [])"),
                  "has 0 placements for a mesh of 1 dimensions");
  EXPECT_CONTAINS(tensor(R"("type": "int8", "runs": [{"rank": 0, "begin": 3, "count": 2}])"),
                  "has 4 elements, and a run from 3 on of 2");
  EXPECT_CONTAINS(tensor(R"("type": "int8", "pieces": [{"rank": 0, "box": [[0, 4], [0, 1]]}])"),
                  "has 2 dimensions, and the tensor 1");
}

TEST(ReshardLayout, SafetensorsSayWhereTheirTensorsLie) {
  const TemporaryFolder folder;
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  const auto write = [&](const std::string& name, std::size_t data) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
    const std::string path = folder.path(name);
    std::ofstream(path, std::ios::binary) << bytes << header << std::string(data, 'x');
    return path;
  };
  const std::string path = write("right", 22);
  const Layout layout = layout_of_safetensors(std::span(&path, 1));
  layout.check(Side::from);
  EXPECT_EQ(layout.tensors[1].pieces[0].offset, 16u);
  const std::string torn = write("torn", 21);
  EXPECT_CONTAINS(std::string(error_of([&] { layout_of_safetensors(std::span(&torn, 1)); }).what()),
                  "tensor 'b' does not lie where it says");
}

TEST(ReshardLayout, APictureShowsEachPairOfRanks) {
  Layout from(4), to(4);
  add_sharded(from, kMatrix, {{2}, {shard(0)}, {0, 1}});
  add_sharded(to, kMatrix, {{2}, {shard(1)}, {2, 3}});
  const Plan plan = make_plan(from, to, {.hosts = {0, 0, 1, 1}});
  const std::string svg = draw_svg(from, to, plan);
  for (const char* pair :
       {"rank 0 to rank 2", "rank 0 to rank 3", "rank 1 to rank 2", "rank 1 to rank 3"}) {
    EXPECT_CONTAINS(svg, std::string(pair) + ", between hosts");
  }
  Plan wrong_one = plan;
  wrong_one.messages.pop_back();
  EXPECT_EQ(error_of([&] { draw_svg(from, to, wrong_one); }).code(), ErrorCode::unproven_plan);
}

TEST(ReshardLayout, APredictionIsTheTimeOfTheBusiestLink) {
  Layout from(4), to(4);
  const Tensor big{"w", DataType::float32, {4096, 1024}};
  add_sharded(from, big, {{2}, {shard(0)}, {0, 1}});
  add_sharded(to, big, {{2}, {shard(1)}, {2, 3}});
  const Plan plan = make_plan(from, to, {.hosts = {0, 0, 1, 1}, .message_bytes = 1 << 16});
  const Prediction p = predict(plan, {.link = 1e6, .memory = 1e12, .latency = 0});
  EXPECT_NEAR(p.end, 16.777, 0.2);
  EXPECT_NEAR(p.sending[0], 16.777, 0.001);
}

}  // namespace
}  // namespace tutti::parallel::reshard::test
