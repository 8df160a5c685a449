// `tutti reshard` as its users see it.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/contains.h"
#include "tests/tools/tutti_command.h"
#include "tests/topology/topology_samples.h"

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

TEST_F(ReshardCli, TakesLinksFromATopology) {
  folder.write("m.xml", test::kMesh);
  folder.write("none.xml", R"(<system version="1"><cpu numaid="0"/></system>)");
  ASSERT_EQ(tutti("reshard estimate a.json b.json --per-host 2 --topology m.xml"), 0) << err;
  EXPECT_CONTAINS(out, "s, at 384 Gbit/s in each direction");  // two ports, behind PCI 4.0 x16
  ASSERT_EQ(tutti("reshard estimate a.json b.json --topology m.xml"), 0) << err;
  EXPECT_CONTAINS(out, "on 1 host;");  // of four GPUs
  ASSERT_EQ(tutti("reshard estimate a.json b.json --per-host 2 --gbits 1 --topology m.xml"), 0);
  EXPECT_CONTAINS(out, "s, at 1 Gbit/s in each direction");
  EXPECT_NE(tutti("reshard estimate a.json b.json --topology none.xml"), 0);
  EXPECT_CONTAINS(err, "none.xml has no GPUs");
}

TEST_F(ReshardCli, TakesSafetensorsFiles) {
  const std::string header =
      R"({"w":{"dtype":"BF16","shape":[1024,1024],"data_offsets":[0,2097152]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  folder.write("w.safetensors", file + header + std::string(2097152, '\0'));
  ASSERT_EQ(tutti("reshard check w.safetensors"), 0) << err;
  EXPECT_CONTAINS(out, "1 tensor in 1 piece on 1 rank: 2 MiB");
  ASSERT_EQ(tutti("reshard estimate w.safetensors b.json --per-host 2"), 0) << err;
  EXPECT_CONTAINS(out, "between hosts              2 MiB");
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
