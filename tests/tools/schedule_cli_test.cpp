// `tutti schedule` as its users see it, and what docs/pipeline.md says of schedules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/verify.h"
#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

class ScheduleCli : public TuttiCommand {
 protected:
  static std::string document(const std::string& name) {
    std::ifstream file(TUTTI_DOCUMENTS "/" + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::string example() {
    const std::string page = document("pipeline.md");
    const auto begin = page.find("```\ntutti schedule 1\n");
    if (begin == page.npos) return "";
    return page.substr(begin + 4, page.find("```", begin + 4) - begin - 4);
  }
};

TEST_F(ScheduleCli, ListsAndHelps) {
  EXPECT_EQ(tutti("schedule list"), 0) << err;
  for (const auto& g : parallel::pipeline::generators()) EXPECT_CONTAINS(out, std::string(g.name));
  EXPECT_EQ(tutti("schedule --help"), 0);
  EXPECT_CONTAINS(out, "tutti schedule verify mine.txt");
  EXPECT_EQ(tutti("schedule draw --help"), 0);
  EXPECT_CONTAINS(out, "--micro-batches");
  EXPECT_CONTAINS(out, "--weights");
}

TEST_F(ScheduleCli, ShowsAScheduleThatItReadsBack) {
  ASSERT_EQ(tutti("schedule show interleaved --ranks 4 --micro-batches 8 --virtual 3"), 0) << err;
  const std::string text = out;
  EXPECT_EQ(text.rfind("tutti schedule 1\ninterleaved  ranks 4  stages 12  micro-batches 8  ", 0),
            0u);
  folder.write("s.txt", text);
  ASSERT_EQ(tutti("schedule show s.txt"), 0) << err;
  EXPECT_EQ(out, text);
  ASSERT_EQ(tutti("schedule show - < s.txt"), 0) << err;
  EXPECT_EQ(out, text);
  ASSERT_EQ(tutti("schedule show interleaved --stages 12 -m 8 --virtual 3"), 0) << err;
  EXPECT_EQ(out, text);
}

TEST_F(ScheduleCli, Verifies) {
  ASSERT_EQ(tutti("schedule verify 1f1b -n 4 -m 8"), 0) << err;
  EXPECT_CONTAINS(out, "1f1b on 4 ranks, 4 stages, 8 micro-batches, ");
  EXPECT_CONTAINS(out, "proved: 64 actions, 48 messages between ranks; no deadlock");
  EXPECT_CONTAINS(out, "live activations: 4 at most, 4 declared");
  EXPECT_CONTAINS(out, "rank 3      1\n");
  EXPECT_EQ(err, "");
}

TEST_F(ScheduleCli, Simulates) {
  ASSERT_EQ(tutti("schedule simulate zb-h1 -n 4 -m 8 --forward 10 --backward 20"), 0) << err;
  EXPECT_CONTAINS(out, "makespan    270\n");
  EXPECT_CONTAINS(out, "bubble      30 (11.1 %)");
  ASSERT_EQ(tutti("schedule simulate interleaved -n 4 -m 8 --forward 10 --backward 20"), 0) << err;
  EXPECT_CONTAINS(out, "of a stage: forward 5, backward 5 + 5 (inputs, weights); a message 0");
  EXPECT_CONTAINS(out, "makespan    285\n");
  ASSERT_EQ(tutti("schedule simulate 1f1b -n 2 -m 1 --forward 3 --backward 5 --weights 4 --link 7"),
            0);
  EXPECT_CONTAINS(out, "makespan    30\n");
}

TEST_F(ScheduleCli, DrawsThePictureInTheDocument) {
  ASSERT_EQ(tutti("schedule draw interleaved --ranks 4 --micro-batches 8 -o x.svg"), 0) << err;
  EXPECT_EQ(out, "");
  EXPECT_EQ(folder.read("x.svg"), document("pictures/pipeline_interleaved_4.svg"))
      << "draw it again";
  EXPECT_EQ(tutti("schedule draw 1f1b -n 2 -m 2 -o no/such/folder.svg"), 1);
  EXPECT_EQ(err.rfind("tutti: cannot write no/such/folder.svg: ", 0), 0u) << err;
}

TEST_F(ScheduleCli, RefusesWithTheReason) {
  folder.write("dead.txt",
               "tutti schedule 1\nmine ranks 2 stages 2 micro-batches 2 buffers 1 live 2\n"
               "rank 0 stages 0\n0F0 0B0 0F1 0B1\nrank 1 stages 1\n1F0 1F1 1B0 1B1\n");
  for (const char* command : {"verify", "simulate"}) {
    EXPECT_EQ(tutti(fmt::format("schedule {} dead.txt", command)), 1);
    EXPECT_CONTAINS(err, "tutti: the schedule mine is not proved: deadlock with 1 buffer");
    EXPECT_CONTAINS(err, "rank 0, action 1 (0B0: backward of stage 0, micro-batch 0) waits for");
  }
  EXPECT_EQ(tutti("schedule draw dead.txt"), 0);  // a picture helps to see why
  EXPECT_CONTAINS(out, "Deadlock");
  folder.write("wrong.txt", "tutti schedule 1\nmine ranks two");
  EXPECT_EQ(tutti("schedule verify wrong.txt"), 2);
  EXPECT_EQ(
      err, "tutti: schedule text, line 2: expected the number of ranks (1 to 4096), found 'two'\n");
}

TEST_F(ScheduleCli, SaysWhatIsWrongWithTheCommandLine) {
  const auto error = [&](const std::string& arguments) {
    EXPECT_EQ(tutti("schedule " + arguments), 2) << arguments;
    return err.substr(0, err.find('\n'));
  };
  EXPECT_EQ(error("show 2f2b -n 4 -m 8"),
            "tutti: there is no schedule '2f2b', and no such file; there are gpipe, 1f1b, "
            "interleaved, zb-h1, zb-h2, zb-v, dualpipe-v");
  EXPECT_EQ(error("show ./mine.txt"), "tutti: cannot open ./mine.txt: No such file or directory");
  EXPECT_EQ(error("show 1f1b -m 8"),
            "tutti: --ranks is missing: how many ranks is the schedule for?");
  EXPECT_EQ(error("show 1f1b -n 8"), "tutti: --micro-batches is missing: how many are there?");
  EXPECT_EQ(error("show zb-v --stages 7 -m 8"),
            "tutti: --stages 7 cannot be dealt out to ranks with 2 each");
  EXPECT_EQ(error("show 1f1b -n 4 -m 8 --virtual 2"),
            "tutti: 1f1b has 1 stage on each rank, not 2");
  EXPECT_EQ(error("simulate 1f1b -n 4 -m 8 --backward 1 --weights 2"),
            "tutti: --weights 2 is a part of --backward 1, and cannot take longer");
  EXPECT_EQ(error("simulate 1f1b -n 4 -m 8 --forward nan"),
            "tutti: --forward: Value nan not in range 0 to 1e+09");
  folder.write("s.txt", example());
  EXPECT_EQ(error("verify s.txt -n 4"),
            "tutti: s.txt is complete; leave --ranks, --stages, --micro-batches and --virtual out");
  error("show");
  error("what");
  error("show 1f1b -n 0 -m 1");
  error("show 1f1b -n 4 --stages 4 -m 1");
}

TEST_F(ScheduleCli, ProvesTheExampleInTheDocument) {
  std::string text = example();
  folder.write("s.txt", text);
  EXPECT_EQ(tutti("schedule verify s.txt"), 0) << err;
  // The document says that this still ends...
  text.replace(text.find("1F0 1B0 1F1"), 11, "1F0 1F1 1B0");
  folder.write("s.txt", text);
  EXPECT_EQ(tutti("schedule verify s.txt"), 0) << err;
  // ... and that this does not.
  text.replace(text.find("0F0 0F1 0B0"), 11, "0F0 0B0 0F1");
  folder.write("s.txt", text);
  EXPECT_EQ(tutti("schedule verify s.txt"), 1);
  EXPECT_CONTAINS(err, "deadlock");
}

TEST_F(ScheduleCli, TheTableInTheDocumentIsRight) {
  const std::string page = document("pipeline.md");
  for (const auto& g : parallel::pipeline::generators()) {
    const auto s = parallel::pipeline::generate(g, {4, 8, 0});
    const double part = 10.0 * s.ranks() / s.stages();
    const auto result = parallel::pipeline::simulate(s, {part, part, part, 0});
    EXPECT_CONTAINS(page,
                    fmt::format("| `{}` | {} | {:g} | {:g} | {} | {:g} | {} |", g.name,
                                s.stages() / s.ranks(), result.makespan, result.bubble, s.live,
                                static_cast<double>(s.live) * s.ranks() / s.stages(), s.buffers));
  }
}

}  // namespace
}  // namespace tutti
