// `tutti schedule` as its users see it, and what docs/pipeline.md says of schedules.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/verify.h"
#include "tests/support/contains.h"
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

TEST_F(ScheduleCli, ListsWhatASchedulesWaitDependsOn) {
  ASSERT_EQ(tutti("schedule list"), 0) << err;
  EXPECT_CONTAINS(out, "zb-h1        1        (p-1)(I+max(F-W,0))    p ");
  EXPECT_CONTAINS(out, "zb-h2        1        (p-1)max(I-W+|F-W|,0)  2p-1 ");
  EXPECT_CONTAINS(out, "interleaved  [2]      (p-1)(F+B)/v if p|m    p+(p-1)/v ");
  EXPECT_CONTAINS(out, "where m is a\nmultiple of p");
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

// Sums of times that are no binary fractions.
TEST_F(ScheduleCli, WritesNoRoundingAndKeepsColumnsApart) {
  ASSERT_EQ(tutti("schedule simulate gpipe -n 5 -m 3 --forward 3 --backward 6 --weights 1 "
                  "--link 0.7"),
            0);
  EXPECT_CONTAINS(out, "    rank 4           14.8        41.8           0    39.4 %       3\n");
  ASSERT_EQ(tutti("schedule simulate gpipe -n 2 -m 3 --forward 1e9 --backward 123456789 --link "
                  "987654321"),
            0);
  const std::string row = out.substr(out.find("rank 1 "));
  std::istringstream words(row.substr(0, row.find('\n')));
  EXPECT_EQ(std::distance(std::istream_iterator<std::string>(words), {}), 8) << row;
}

/// What stands in a picture, where, and how large; "&#183;" is one letter.
struct Written {
  double left = 0, size = 12;
  std::string text;
};
std::vector<Written> texts_of(const std::string& svg) {
  std::vector<Written> result;
  const std::regex element("<text x=\"([0-9.]+)\"([^>]*)>(.*?)</text>"), mark("<[^>]*>|&[^;]*;");
  for (std::sregex_iterator t(svg.begin(), svg.end(), element), end; t != end; ++t) {
    const std::string attributes = (*t)[2];
    if (attributes.find("anchor") != std::string::npos ||
        attributes.find("\"n ") != std::string::npos)
      continue;  // ends there, or stands in the middle of a box
    Written w{std::stod((*t)[1]), 12, std::regex_replace((*t)[3].str(), mark, "")};
    if (attributes.find("class=\"q\"") != std::string::npos) w.size = 11;
    if (const auto at = attributes.find("font-size=\""); at != std::string::npos) {
      w.size = std::stod(attributes.substr(at + 11));
    }
    result.push_back(w);
  }
  return result;
}

TEST_F(ScheduleCli, NarrowPicturesHaveRoomForTheirTexts) {
  for (const std::string what :
       {"1f1b -n 1 -m 1", "zb-h1 -n 2 -m 1",
        "interleaved -n 2 -m 2 --forward 1.2345678 --backward 2.3456789",
        "dualpipe-v -n 1 -m 2 --backward 7.77777 --weights 3.33333 --link 0.123456",
        "gpipe -n 3 -m 3"}) {
    ASSERT_EQ(tutti("schedule draw " + what), 0) << err;
    const double width = std::stod(out.substr(out.find("width=\"") + 7));
    const auto texts = texts_of(out);
    EXPECT_GT(texts.size(), 5u) << what;
    for (const Written& w : texts) {
      const double end = w.left + 0.55 * w.size * static_cast<double>(w.text.size());
      EXPECT_LT(end, width) << what << ": " << w.text;
    }
    EXPECT_LT(width, 1500) << what;
  }
}

TEST_F(ScheduleCli, EachKindOfWorkHasAColourOfItsOwn) {
  ASSERT_EQ(tutti("schedule draw dualpipe-v -n 2 -m 4"), 0) << err;
  std::set<std::string> colours;
  for (const char work : {'F', 'B', 'I', 'W'}) {
    const auto at = out.find(fmt::format("\n.{}0{{fill:#", work));
    ASSERT_NE(at, std::string::npos);
    colours.insert(out.substr(at + 10, 6));
  }
  EXPECT_EQ(colours.size(), 4u);
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
  EXPECT_EQ(err,
            "tutti: wrong.txt: schedule text, line 2: expected the number of ranks (1 to 4096), "
            "found 'two'\n");
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
            "tutti: --forward: 'nan' is no number from 0 to 1e+09");
  folder.write("s.txt", example());
  EXPECT_EQ(error("verify s.txt -n 4"),
            "tutti: s.txt is complete; leave --ranks, --stages, --micro-batches and --virtual out");
  EXPECT_EQ(error("show 1f1b -n 4 -n 5 -m 8"), "tutti: --ranks is given more than once");
  EXPECT_EQ(error("show 1f1b -m 8 -n"), "tutti: --ranks has no value");
  EXPECT_EQ(error("simulate 1f1b -n 4 -m 8 --link 1 --link 2"),
            "tutti: --link is given more than once");
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
