// `tutti reshard` as its users see it.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/contains.h"
#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

class ReshardCli : public TuttiCommand {
 protected:
  ReshardCli() {
    folder.write("a.json", R"({"ranks": 4, "tensors": [{"name": "w", "type": "bfloat16",
      "shape": [1024, 1024], "mesh": [2], "placements": ["shard 0"], "ranks": [0, 1]}]})");
    folder.write("b.json", R"({"ranks": 4, "tensors": [{"name": "w", "type": "bfloat16",
      "shape": [1024, 1024], "mesh": [2], "placements": ["shard 1"], "ranks": [2, 3]}]})");
  }
};

TEST_F(ReshardCli, HelpsAndChecks) {
  EXPECT_EQ(tutti("reshard --help"), 0) << err;
  EXPECT_CONTAINS(out, "tutti reshard estimate trainer.json server.json");
  EXPECT_EQ(tutti("reshard check a.json"), 0) << err;
  EXPECT_CONTAINS(out, "1 tensor in 2 pieces on 4 ranks: 2 MiB");
  EXPECT_CONTAINS(out, "rank 1             1 MiB");
}

TEST_F(ReshardCli, EstimatesBytesBoundAndTime) {
  ASSERT_EQ(tutti("reshard estimate a.json b.json --per-host 2 --gbits 1"), 0) << err;
  EXPECT_CONTAINS(out, "proved: ");
  EXPECT_CONTAINS(out, "between hosts              2 MiB");
  EXPECT_CONTAINS(out, "1.000 times the least that any plan needs (2 MiB)");
  EXPECT_CONTAINS(out, "bound by that link     0.01678 s, at 1 Gbit/s in each direction");
  ASSERT_EQ(tutti("reshard estimate a.json b.json"), 0) << err;
  EXPECT_CONTAINS(out, "inside hosts               2 MiB");
}

TEST_F(ReshardCli, Draws) {
  ASSERT_EQ(tutti("reshard draw a.json b.json --per-host 2 -o x.svg"), 0) << err;
  EXPECT_CONTAINS(folder.read("x.svg"), "rank 0 to rank 3, between hosts: 512 KiB in 1 message<");
}

TEST_F(ReshardCli, SaysWhatIsWrong) {
  EXPECT_NE(tutti("reshard estimate a.json none.json"), 0);
  EXPECT_CONTAINS(err, "none.json");
  folder.write("c.json", R"({"ranks": 4, "tensors": [{"name": "w", "type": "bfloat16",
    "shape": [1024, 1024], "mesh": [2], "placements": ["shard 2"]}]})");
  EXPECT_NE(tutti("reshard check c.json"), 0);
  EXPECT_CONTAINS(err, "c.json: layout: tensor 'w' has no dimension 2 to cut");
  EXPECT_EQ(tutti("reshard estimate a.json b.json --gbits 0"), 2);
}

}  // namespace
}  // namespace tutti
