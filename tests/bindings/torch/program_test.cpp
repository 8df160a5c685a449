// The program that trains, as a user starts it: what it writes, what it says of a NaN, and that an
// interrupt leaves nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "tests/support/contains.h"
#include "tests/support/run_job.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::vector<std::string> train(int ranks, const std::string& arguments) {
  return shell(ranks,
               "exec " TRAIN " --width 64 --layers 2 --report 1 --text " TEXT " " + arguments,
               {"--keep-going", "--timeout", "60"});
}

/// What a trace has of one rank's track: when each began and ended, by name.
struct Span {
  std::string name;
  double from = 0, to = 0;
};
struct Tracks {
  std::map<std::pair<int, std::string>, std::vector<Span>> all;
  const std::vector<Span>& of(int rank, const std::string& track) { return all[{rank, track}]; }
};

Tracks read_trace(const std::string& path) {
  std::ifstream file(path);
  const auto events = nlohmann::json::parse(file);
  std::map<std::pair<int, int>, std::string> names;
  std::map<std::string, std::pair<int, std::string>> flights;
  Tracks result;
  for (const auto& e : events) {
    const std::string phase = e.at("ph");
    if (phase == "M") {
      if (e.at("name") == "thread_name") names[{e["pid"], e["tid"]}] = e["args"]["name"];
      continue;
    }
    const std::pair<int, std::string> track{e.at("pid"), names.at({e.at("pid"), e.at("tid")})};
    const double at = e.at("ts");
    if (phase == "X") result.all[track].push_back({e["name"], at, at + e["dur"].get<double>()});
    if (phase == "b") result.all[track].push_back({e["name"], at, 0});
    if (phase == "e") result.all[track].back().to = at;  // they are written in pairs
  }
  return result;
}

std::set<std::string> names(const std::vector<Span>& spans) {
  std::set<std::string> result;
  for (const Span& s : spans) result.insert(s.name);
  return result;
}

// A trace shows that a unit's gradients travel while an earlier layer's are computed.
TEST(Train, WritesATraceOfAllRanks) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("trace.{}", getpid());
  Job job(train(2, "--steps 3 --shard zero2 --trace " + file.string()));
  EXPECT_EQ(job.wait(), 0) << job.err();
  Tracks tracks = read_trace(file);
  std::filesystem::remove(file);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(names(tracks.of(rank, "model")),
                testing::IsSupersetOf({"forward block 0 0", "loss", "backward head 0",
                                       "backward embedding 0", "optimizer"}));
    bool overlaps = false;
    for (const Span& moved : tracks.of(rank, "shards")) {
      if (moved.name.find("reduce_scatter") == std::string::npos) continue;
      for (const Span& made : tracks.of(rank, "model")) {
        overlaps |=
            made.name.starts_with("backward") && made.from < moved.to && moved.from < made.to;
      }
    }
    EXPECT_TRUE(overlaps);
    EXPECT_FALSE(tracks.of(rank, "shards waits").empty());
    EXPECT_TRUE(tracks.of(rank, "tp").empty());  // nobody there
  }
}

TEST(Train, TracesPipelines) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("trace.{}", getpid());
  Job job(train(2, "--steps 2 --pp 2 --micro-batches 2 --trace " + file.string()));
  EXPECT_EQ(job.wait(), 0) << job.err();
  Tracks tracks = read_trace(file);
  std::filesystem::remove(file);
  EXPECT_EQ(tracks.of(1, "pipeline").size(), 4u);  // two forwards, two backwards
  EXPECT_FALSE(tracks.of(0, "pp").empty());
}

// Rank 0 writes it, and all are told why there is no training.
TEST(Train, RefusesAFileThatCannotBeWritten) {
  Job job(train(2, "--trace /nonexistent/trace.json"));
  EXPECT_NE(job.wait(), 0);
  std::size_t told = 0;
  for (const std::string& line : lines(job.err())) {
    told += line.find("--trace /nonexistent/trace.json: it cannot be written") != std::string::npos;
  }
  EXPECT_EQ(told, 2u) << job.err();
}

// Devices and pipes have no end.
TEST(Train, RefusesATextThatIsNone) {
  const auto refused = [](const std::string& text) {
    Job job(shell(1, "exec " TRAIN " --text " + text, {"--timeout", "60"}));
    EXPECT_NE(job.wait(), 0);
    return job.err();
  };
  EXPECT_CONTAINS(refused("/nonexistent"), "--text /nonexistent: there is no such file or folder");
  EXPECT_CONTAINS(refused("/dev/zero"), "--text /dev/zero: it is neither a file nor a folder");
  const auto huge = std::filesystem::temp_directory_path() / fmt::format("huge.{}", getpid());
  std::ofstream{huge};
  std::filesystem::resize_file(huge, std::uintmax_t{3} << 30);  // sparse
  EXPECT_CONTAINS(refused(huge.string()), "more than 1024 MiB; name a part of it");
  std::filesystem::resize_file(huge, 0);
  EXPECT_CONTAINS(refused(huge.string()), "there is no text in " + huge.string());
  std::filesystem::remove(huge);
}

TEST(Train, RefusesOtherOptionsOnSomeRanks) {
  Job job(train(2, "--pp 2 --micro-batches $((2 + 2 * TUTTI_RANK))"));
  EXPECT_NE(job.wait(), 0);
  std::size_t told = 0;
  for (const std::string& line : lines(job.err())) {
    told += line.find(
                "train: the command line differs among the ranks: rank 1 has \"4\" where rank "
                "0 has \"2\"") != std::string::npos;
  }
  EXPECT_EQ(told, 2u) << job.err();
}

// A rate of learning that destroys the model: the second step is not finite, on whatever rank.
TEST(Train, NamesWhatIsNotFinite) {
  for (const std::string mix : {"", "--shard fsdp", "--tp 2 --pp 2 --micro-batches 2"}) {
    Job job(train(4, "--check-nan --rate 1e36 --clip 0 " + mix));
    EXPECT_NE(job.wait(), 0);
    const std::string err = job.err();
    std::size_t told = 0;
    for (const std::string& line : lines(err)) {
      if (line.starts_with("train: step 2: not finite: ") && line.ends_with("rank 3")) ++told;
    }
    EXPECT_EQ(told, 4u) << err;
    EXPECT_THAT(err, HasSubstr("the loss of micro-batch 0 on rank 3"));
  }
}

// What is computed again in backward leaves out the same elements as it did in forward.
TEST(Train, RecomputesWhatDropoutHasLeftOut) {
  const auto curve = [](const std::string& arguments) {
    Job job(train(2, "--steps 6 --rate 1e-2 " + arguments));
    EXPECT_EQ(job.wait(), 0) << job.err();
    std::vector<std::pair<double, double>> result;
    for (const std::string& line : lines(job.out())) {
      double step = 0, loss = 0, norm = 0;
      if (std::istringstream(line) >> step >> loss >> norm) result.emplace_back(loss, norm);
    }
    EXPECT_EQ(result.size(), 6u) << job.out();
    return result;
  };
  const auto all = curve("");
  for (const std::string mix :
       {"", "--shard fsdp", "--tp 2 --sequence", "--pp 2 --micro-batches 4"}) {
    const auto kept = curve("--dropout 0.3 " + mix);
    EXPECT_EQ(kept, curve("--dropout 0.3 --recompute " + mix)) << mix;
    EXPECT_NE(kept, all) << mix;
  }
}

// The user's own schedule; and one that would wait for ever, which is never begun.
TEST(Train, TakesASchedulesFile) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("schedule.{}", getpid());
  const auto run = [&](const std::string& of_rank_1) {
    std::ofstream(path)
        << "tutti schedule 1\nmine  ranks 2  stages 2  micro-batches 2  buffers 2  live 2\n"
           "rank 0  stages 0\n  0F0 0F1 0B0 0B1\nrank 1  stages 1\n  "
        << of_rank_1 << "\n";
    auto job = std::make_unique<Job>(
        train(2, "--steps 2 --pp 2 --micro-batches 2 --schedule " + path.string()));
    job->wait();
    return job;
  };
  EXPECT_CONTAINS(run("1F0 1B0 1F1 1B1")->out(), "\n     2 ");
  const std::string err = run("1F1 1B1 1F0 1B0")->err();
  std::size_t told = 0;
  for (const std::string& line : lines(err)) {
    told +=
        line.find("rank 1, action 0 (1F1: forward of stage 1, micro-batch 1)") != std::string::npos;
  }
  EXPECT_EQ(told, 2u) << err;
  std::filesystem::remove(path);
}

// A rank may have no stage, and so no layers.
TEST(Train, TrainsWithARankThatHasNoStages) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("schedule.{}", getpid());
  std::ofstream(path)
      << "tutti schedule 1\nmine  ranks 2  stages 2  micro-batches 2  buffers 2  live 4\n"
         "rank 0  stages 0 1\n  0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1\nrank 1  stages\n";
  std::map<std::string, std::string> losses;
  for (const std::string mix :
       {"none", "zero1", "fsdp", "zero3 --tied --recompute --check-nan --clip 0"}) {
    Job job(train(
        4, "--steps 3 --pp 2 --micro-batches 2 --schedule " + path.string() + " --shard " + mix));
    EXPECT_EQ(job.wait(), 0) << mix << job.err();
    for (const std::string& line : lines(job.out())) {
      double step = 0;
      std::string loss;
      if (std::istringstream(line) >> step >> loss && step == 3) losses[mix] = loss;
    }
  }
  std::filesystem::remove(path);
  for (const std::string same : {"zero1", "fsdp"}) EXPECT_EQ(losses[same], losses["none"]) << same;
  EXPECT_NE(losses["none"], "");
}

// A disk that is full when the training is over: all ranks say so.
TEST(Train, SaysThatItsTraceCouldNotBeWritten) {
  Job job(train(2, "--steps 2 --trace /dev/full"));
  EXPECT_NE(job.wait(), 0);
  std::size_t told = 0;
  for (const std::string& line : lines(job.err())) {
    told += line.find(
                "--trace /dev/full: the trace could not be written, and what there is of it "
                "is no trace: No space left on device") != std::string::npos;
  }
  EXPECT_EQ(told, 2u) << job.err();
  EXPECT_EQ(job.out().find("ui.perfetto.dev"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

// A disk of one page, which rank 0 alone sees: half a trace does not stay.
TEST(Train, LeavesNoHalfATrace) {
  if (std::system("unshare -m true 2>/dev/null") != 0) GTEST_SKIP() << "no mounts of our own here";
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("full.{}", getpid());
  std::filesystem::create_directory(folder);
  Job job(shell(2,
                fmt::format("unshare -m sh -c 'mount -t tmpfs -o size=4k none {0} && " TRAIN
                            " --width 64 --layers 2 --steps 2 --text " TEXT
                            " --trace {0}/trace.json; status=$?; ls {0} | sed s/^/left:/; exit "
                            "$status'",
                            folder.string()),
                {"--keep-going", "--timeout", "60"}));
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.err(), HasSubstr("trace.json: the trace could not be written"));
  EXPECT_EQ(job.out().find("left:"), std::string::npos) << job.out();
  std::filesystem::remove_all(folder);
}

TEST(Train, SaysWhatIsWrongWithItsOptions) {
  const auto refused = [](const std::string& arguments) {
    Job job(shell(1, "exec " TRAIN " " + arguments, {"--timeout", "60"}));
    EXPECT_EQ(job.wait(), 2);
    return job.err();
  };
  EXPECT_CONTAINS(refused("--steps 1 --steps 2"), "train: --steps is given more than once");
  EXPECT_CONTAINS(refused("--steps"), "train: --steps has no value");
}

/// The losses of the steps that a run has printed.
std::map<int, double> losses(const std::string& out) {
  std::map<int, double> result;
  for (const std::string& line : lines(out)) {
    int step = 0;
    double loss = 0, norm = 0;
    if (std::istringstream(line) >> step >> loss >> norm) result[step] = loss;
  }
  return result;
}

// The ranks carry the estimated bytes.
TEST(Train, PrintsTheEstimateBesideWhatItMeasures) {
  for (const char* const mix : {"", "--shard zero2", "--shard fsdp --replicas 2", "--tp 2",
                                "--dp 2 --tp 2 --sequence --shard fsdp", "--pp 2 --micro-batches 4",
                                "--tp 2 --pp 2 --micro-batches 4 --tied", "--cp 4 --cp-heads 2",
                                "--cp 2 --shard zero2 --micro-batches 2 --recompute"}) {
    Job job(train(4, std::string("--steps 4 --batch 16 ") + mix));
    ASSERT_EQ(job.wait(), 0) << mix << job.err();
    const std::string out = job.out();
    double estimated = 0, measured = 0;
    const auto at = out.find("rank 0 sends ");
    ASSERT_NE(at, std::string::npos) << out;
    ASSERT_EQ(std::sscanf(out.c_str() + at, "rank 0 sends %lf MB", &estimated), 1) << out;
    const auto last = out.rfind("% ");
    ASSERT_EQ(std::sscanf(out.c_str() + last, "%% %lf MB", &measured), 1) << out;
    // The head stays gathered for its backward, which comes next; the estimator knows of no such
    // unit.
    const bool keeps_head = std::string(mix).find("fsdp") != std::string::npos;
    EXPECT_NEAR(measured, estimated - (keeps_head ? 0.02 : 0), keeps_head ? 0.02 : 0.011)
        << mix << "\n"
        << out;
  }
}

struct CheckpointFolderOfTest {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("checkpoints.{}", getpid());
  CheckpointFolderOfTest() { std::filesystem::remove_all(path); }
  ~CheckpointFolderOfTest() { std::filesystem::remove_all(path); }
  std::string option() const { return "--save " + path.string() + " "; }
};

/// Whatever mix of a model has saved, others go on as if nobody had stopped.
void expect_mixes_go_on(const std::string& model, std::span<const char* const> mixes) {
  const std::string common = "--rate 1e-2 --batch 16 " + model;
  Job whole(train(4, common + "--steps 8"));
  ASSERT_EQ(whole.wait(), 0) << whole.err();
  const auto expected = losses(whole.out());
  for (std::size_t i = 0; i < std::size(mixes); ++i) {
    const char* const saves = mixes[i];
    const CheckpointFolderOfTest folder;
    const std::string save = common + folder.option();
    Job first(train(4, save + "--every 4 --steps 4 " + saves));
    ASSERT_EQ(first.wait(), 0) << saves << first.err();
    for (const std::size_t next : {i + 1, i + 2}) {
      const char* const resumes = mixes[next % std::size(mixes)];
      Job second(train(4, save + "--every 100 --steps 8 --resume " + resumes));
      ASSERT_EQ(second.wait(), 0) << saves << " | " << resumes << second.err();
      EXPECT_CONTAINS(second.out(), "goes on after step 4");
      const auto got = losses(second.out());
      ASSERT_EQ(got.size(), 4u) << second.out();
      for (const auto& [step, loss] : got) {
        EXPECT_NEAR(loss, expected.at(step), 2e-4)
            << saves << " | " << resumes << ", step " << step;
      }
      std::filesystem::remove_all(folder.path / "step-0000000008");
    }
  }
}

TEST(Train, AnyMixGoesOnWithAnyCheckpoint) {
  const char* const mixes[] = {"--dp 2 --tp 2 --shard fsdp",
                               "--tp 2 --pp 2 --micro-batches 4",
                               "--shard zero2 --replicas 2",
                               "--cp 4 --cp-heads 2",
                               "--dp 1 --tp 4 --sequence",
                               "--cp 2 --shard zero1",
                               ""};
  expect_mixes_go_on("", mixes);
}

TEST(Train, AnyMixGoesOnWithAnyCheckpointOfExperts) {
  const char* const mixes[] = {"--ep 2 --shard fsdp", "--ep 4", "--shard zero2", "--ep 2 --cp 2",
                               "--ep 2 --pp 2"};
  expect_mixes_go_on("--experts 4 --balance 0 ", mixes);
}

// The same mix has the same bits.
TEST(Train, AKilledJobLosesNoMoreThanTheStepsSinceItsCheckpoint) {
  const CheckpointFolderOfTest folder;
  const std::string common = "--rate 1e-2 --shard fsdp --dropout 0.1 --every 3 " + folder.option();
  Job whole(train(2, "--rate 1e-2 --shard fsdp --dropout 0.1 --steps 12"));
  ASSERT_EQ(whole.wait(), 0) << whole.err();
  {
    Job job(train(2, common + "--steps 100000"));
    ASSERT_TRUE(job.out_has("\n     8 ")) << job.out() << job.err();
    kill(job.pid(), SIGKILL);  // its ranks end with it
    EXPECT_NE(job.wait(), 0);
  }
  Job second(train(2, common + "--steps 12 --resume"));
  ASSERT_EQ(second.wait(), 0) << second.err();
  const auto expected = losses(whole.out()), got = losses(second.out());
  ASSERT_FALSE(got.empty()) << second.out();
  EXPECT_LE(got.begin()->first, 12) << second.out();
  EXPECT_GE(got.begin()->first, 4) << second.out();
  for (const auto& [step, loss] : got) EXPECT_EQ(loss, expected.at(step)) << step;
}

TEST(Train, RefusesACheckpointOfAnotherModel) {
  const CheckpointFolderOfTest folder;
  Job first(train(2, "--steps 1 " + folder.option()));
  ASSERT_EQ(first.wait(), 0) << first.err();
  Job second(train(2, "--steps 2 --resume --length 64 " + folder.option()));
  EXPECT_NE(second.wait(), 0);
  EXPECT_CONTAINS(second.err(), "embedding.positions");
  Job third(train(1, "--resume"));
  EXPECT_NE(third.wait(), 0);
  EXPECT_CONTAINS(third.err(), "--resume requires --save");
}

// As a terminal does: to all processes of its group.
TEST(Train, AnInterruptLeavesNothingBehind) {
  Job job(train(4, "--steps 100000 --tp 2 --pp 2 --micro-batches 4"), "", [] { setpgid(0, 0); });
  ASSERT_TRUE(job.out_has("\n     3 ")) << job.out() << job.err();
  kill(-job.pid(), SIGINT);
  EXPECT_NE(job.wait(), 0);
  EXPECT_LT(job.seconds(), 60);
}  // ~Job looks for what is left

}  // namespace
}  // namespace tutti
