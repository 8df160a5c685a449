// `tutti run` as users meet it: real processes, signals, pipes and a terminal. Every job carries a
// mark in its environment, by which the tests see that nothing of it is left.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit = 10s) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

std::string contents(int fd) {
  std::string text;
  char buffer[4096];
  off_t offset = 0;
  ssize_t got = 0;
  while ((got = pread(fd, buffer, sizeof buffer, offset)) > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
    offset += got;
  }
  return text;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  auto result = lines(text);
  std::sort(result.begin(), result.end());
  return result;
}

/// Processes that are alive (no zombies) and have `mark` in their environment.
std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string environment((std::istreambuf_iterator<char>(file)),
                                  std::istreambuf_iterator<char>());
    if (environment.find(mark) != std::string::npos) result.push_back(std::stoi(name));
  }
  return result;
}

/// A running `tutti run`.
class Job {
 public:
  explicit Job(
      const std::vector<std::string>& arguments, const std::string& input = "",
      const std::function<void()>& in_child = [] {})
      : out_(memfd_create("out", MFD_CLOEXEC)), err_(memfd_create("err", MFD_CLOEXEC)) {
    static int jobs = 0;
    mark_ = fmt::format("TUTTI_TEST_MARK={}-{}-", getpid(), ++jobs);
    // Processes that write at once shall not overwrite each other.
    fcntl(out_, F_SETFL, O_APPEND);
    fcntl(err_, F_SETFL, O_APPEND);
    const int in = memfd_create("in", MFD_CLOEXEC);
    EXPECT_EQ(write(in, input.data(), input.size()), static_cast<ssize_t>(input.size()));
    lseek(in, 0, SEEK_SET);
    start_ = Clock::now();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in, 0);
      dup2(out_, 1);
      dup2(err_, 2);
      in_child();
      become(arguments);
    }
    close(in);
  }
  ~Job() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    EXPECT_TRUE(eventually([&] { return marked_processes(mark_).empty(); })) << "left over";
    close(out_);
    close(err_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t pid() const { return pid_; }
  std::string out() const { return contents(out_); }
  std::string err() const { return contents(err_); }
  bool out_has(const std::string& text) const {
    return eventually([&] { return out().find(text) != std::string::npos; });
  }
  std::vector<pid_t> processes() const { return marked_processes(mark_); }
  void signal(int number) const { kill(pid_, number); }
  /// The exit status, or 1000 + the signal that killed it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  double seconds() const { return seconds_; }

  [[noreturn]] void become(const std::vector<std::string>& arguments) const {
    const std::size_t equals = mark_.find('=');
    setenv(mark_.substr(0, equals).c_str(), mark_.substr(equals + 1).c_str(), 1);
    std::vector<char*> argv{const_cast<char*>("tutti"), const_cast<char*>("run")};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(TUTTI_COMMAND, argv.data());
    _exit(99);
  }

 private:
  int out_, err_;
  std::string mark_;
  pid_t pid_ = -1;
  Clock::time_point start_;
  double seconds_ = 0;
};

std::vector<std::string> shell(int ranks, const std::string& script,
                               std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", std::to_string(ranks)});
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// --- what the ranks get ---

TEST(RunCommand, RanksKnowThemselves) {
  Job job(shell(3, "echo $TUTTI_RANK of $TUTTI_SIZE id ${#TUTTI_UNIQUE_ID}"));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(sorted_lines(job.out()),
            (std::vector<std::string>{"0 of 3 id 256", "1 of 3 id 256", "2 of 3 id 256"}));
  EXPECT_EQ(job.err(), "");
}

TEST(RunCommand, RanksMeetAsOftenAsTheyLike) {
  Job job(shell(4, ENVIRONMENT_RANK " 3 && " ENVIRONMENT_RANK " 2"));
  EXPECT_EQ(job.wait(), 0) << job.err();
  const auto got = sorted_lines(job.out());
  ASSERT_EQ(got.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(got[i], fmt::format("tutti run {} 4", i / 2));
}

TEST(RunCommand, OuterVariablesAreReplaced) {
  Job job(shell(2, ENVIRONMENT_RANK), "", [] {
    setenv("TUTTI_RANK", "7", 1);
    setenv("TUTTI_SIZE", "9", 1);
    setenv("TUTTI_UNIQUE_ID", "none", 1);
  });
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(RunCommand, ArgumentsArriveAsTheyWere) {
  const std::vector<std::string> words{"--tag", "-n", "3",  "[1,2]", "[]",  "",         "a b",
                                       "--",    "{}", "%%", "-h",    "run", "settings", "++"};
  for (const bool separated : {false, true}) {
    std::vector<std::string> arguments{"-n", "1"};
    if (separated) arguments.push_back("--");
    arguments.insert(arguments.end(), {"printf", "<%s>\\n"});
    arguments.insert(arguments.end(), words.begin(), words.end());
    Job job(arguments);
    EXPECT_EQ(job.wait(), 0) << job.err();
    const auto got = lines(job.out());
    ASSERT_EQ(got.size(), words.size());
    for (std::size_t i = 0; i < words.size(); ++i) EXPECT_EQ(got[i], "<" + words[i] + ">");
  }
}

TEST(RunCommand, InputGoesToRankZero) {
  Job job(shell(3, "echo $TUTTI_RANK: $(cat)"), "some input\n");
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(sorted_lines(job.out()), (std::vector<std::string>{"0: some input", "1:", "2:"}));
}

TEST(RunCommand, BindGivesEveryRankItsCore) {
  const std::string show = "echo cpus: $(grep Cpus_allowed_list /proc/self/status | cut -f 2)";
  Job one(shell(1, show, {"--bind", "core"}));
  EXPECT_EQ(one.wait(), 0);
  Job free_choice(shell(1, show));
  EXPECT_EQ(free_choice.wait(), 0);
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1 && one.err().empty()) {
    Job two(shell(2, show, {"--bind", "core"}));
    EXPECT_EQ(two.wait(), 0);
    const auto got = lines(two.out());
    ASSERT_EQ(got.size(), 2U);
    // On one core with two threads there is no binding, and it says so.
    EXPECT_NE(got[0] == got[1], two.err().empty());
  }
  Job many(shell(1000, "exit 0", {"--bind", "core", "--timeout", "60"}));
  // More ranks than cores: it says so, and goes on.
  EXPECT_EQ(many.wait(), 0) << many.err();
  expect_contains(many.err(), "fewer cores than ranks");
}

// --- exit status ---

TEST(RunCommand, ExitStatusIsTheFailedRanks) {
  for (const int status : {1, 2, 42, 255}) {
    Job job(shell(3, fmt::format("test $TUTTI_RANK = 1 && exit {}; exit 0", status)));
    EXPECT_EQ(job.wait(), status);
    expect_contains(job.err(), "tutti run: rank 1 (pid ");
    expect_contains(job.err(), fmt::format("exited with status {}", status));
    EXPECT_LT(job.seconds(), 2);
  }
}

TEST(RunCommand, AKilledRankEndsTheJob) {
  Job job(shell(4, "echo $TUTTI_RANK $$; exec sleep 100"));
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == 4; }));
  pid_t victim = 0;
  for (const auto& line : lines(job.out())) {
    if (line.starts_with("2 ")) victim = std::stoi(line.substr(2));
  }
  kill(victim, SIGKILL);
  EXPECT_EQ(job.wait(), 128 + SIGKILL);
  expect_contains(job.err(), fmt::format("tutti run: rank 2 (pid {}) was killed by signal 9 "
                                         "(Killed); ending the other ranks",
                                         victim));
  EXPECT_LT(job.seconds(), 4);
}

TEST(RunCommand, TheOthersMayReportTheirErrors) {
  Job job(shell(3, "test $TUTTI_RANK = 0 && kill -SEGV $$; sleep 1; echo report; exit 5"));
  EXPECT_EQ(job.wait(), 128 + SIGSEGV);
  EXPECT_EQ(job.out(), "report\nreport\n");
}

TEST(RunCommand, RanksThatDoNotListenAreKilled) {
  Job job(shell(2, "test $TUTTI_RANK = 0 && exit 3; trap '' TERM; while :; do sleep 0.1; done"));
  EXPECT_EQ(job.wait(), 3);
  EXPECT_GT(job.seconds(), 4.5);
  EXPECT_LT(job.seconds(), 8);
}

TEST(RunCommand, StoppedRanksAreKilled) {
  Job job(shell(2, "test $TUTTI_RANK = 0 && sleep 0.2 && exit 3; kill -STOP $$"));
  EXPECT_EQ(job.wait(), 3);
}

TEST(RunCommand, Timeout) {
  Job job(shell(3, "test $TUTTI_RANK = 1 || exec sleep 100", {"--timeout", "0.5"}));
  EXPECT_EQ(job.wait(), 124);
  expect_contains(job.err(), "ranks 0 and 2 still ran after 0.5 s (--timeout)");
  EXPECT_LT(job.seconds(), 3);
  Job fast(shell(2, "exit 0", {"--timeout", "50"}));
  EXPECT_EQ(fast.wait(), 0);
}

TEST(RunCommand, ProgramsThatCannotRun) {
  Job missing({"-n", "2", "no-such-program"});
  EXPECT_EQ(missing.wait(), 127);
  expect_contains(missing.err(), "tutti run: cannot run 'no-such-program': there is no such");
  Job path({"-n", "2", "/no/such/program"});
  EXPECT_EQ(path.wait(), 127);
  Job data({"-n", "2", "/etc/passwd"});
  EXPECT_EQ(data.wait(), 126);
  expect_contains(data.err(), "cannot run '/etc/passwd': it is not executable");
  Job folder({"-n", "2", "/tmp"});
  EXPECT_EQ(folder.wait(), 126);
}

TEST(RunCommand, WrongUseIsStatus2AndASentence) {
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"-n", "2"},
      {"true"},
      {"-n", "0", "true"},
      {"-n", "-1", "true"},
      {"-n", "two", "true"},
      {"-n", "1000000", "true"},
      {"-n", "2", "--no-such-option", "true"},
      {"-n", "2", "--timeout", "0", "true"},
      {"-n", "2", "--timeout", "soon", "true"},
      {"-n", "2", "--bind", "socket", "true"},
      {"-n", "2", "--"},
  };
  for (const auto& arguments : wrong) {
    Job job(arguments);
    EXPECT_EQ(job.wait(), 2) << fmt::format("{}", fmt::join(arguments, " "));
    EXPECT_GT(job.err().size(), 10U);
    EXPECT_EQ(job.out(), "");
  }
}

// --- tagged output ---

TEST(RunCommand, TagKeepsLinesWholeAndInOrder) {
  constexpr int kRanks = 4, kLines = 500;
  Job job(shell(kRanks,
                fmt::format("i=0; while [ $i -lt {} ]; do echo \"line $i of rank $TUTTI_RANK "
                            "$(printf '%0200d' $TUTTI_RANK)\"; "
                            "test $((i % 10)) = 0 && echo \"error $i\" >&2; i=$((i+1)); done",
                            kLines),
                {"--tag"}));
  ASSERT_EQ(job.wait(), 0);
  std::map<int, int> next, next_error;
  for (const auto& line : lines(job.out())) {
    const int rank = line.at(1) - '0';
    EXPECT_EQ(line, fmt::format("[{0}] line {1} of rank {0} {0:0200}", rank, next[rank]));
    ++next[rank];
  }
  for (const auto& line : lines(job.err())) {
    const int rank = line.at(1) - '0';
    EXPECT_EQ(line, fmt::format("[{}] error {}", rank, next_error[rank]));
    next_error[rank] += 10;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(next[rank], kLines);
    EXPECT_EQ(next_error[rank], kLines);
  }
}

TEST(RunCommand, TagCompletesUnfinishedLinesAndCutsEndlessOnes) {
  Job job(shell(1, "printf 'a\\n\\nb'; printf 'oops' >&2", {"--tag"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "[0] a\n[0] \n[0] b\n");
  EXPECT_EQ(job.err(), "[0] oops\n");
  Job endless(shell(1, "head -c 3000000 /dev/zero | tr '\\0' x", {"--tag"}));
  EXPECT_EQ(endless.wait(), 0);
  std::size_t characters = 0;
  for (const auto& line : lines(endless.out())) {
    EXPECT_TRUE(line.starts_with("[0] x"));
    EXPECT_LT(line.size(), 100'000U);
    characters += line.size() - 4;
  }
  EXPECT_EQ(characters, 3'000'000U);
}

TEST(RunCommand, TagWithoutAReaderEndsLikeAPipeline) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Job job({"-n", "2", "--tag", "yes"}, "", [&] { dup2(ends[1], 1); });
  close(ends[1]);
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  EXPECT_EQ(job.wait(), 128 + SIGPIPE);
}

TEST(RunCommand, ASlowReaderLosesNothingAndTheClockStillRuns) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Job job({"-n", "2", "--tag", "--timeout", "1", "yes"}, "", [&] { dup2(ends[1], 1); });
  close(ends[1]);
  // Nobody reads: the ranks are held up, the launcher is not.
  std::this_thread::sleep_for(1500ms);
  EXPECT_TRUE(eventually([&] { return job.err().find("--timeout") != std::string::npos; }));
  std::string text;
  char buffer[65536];
  ssize_t got = 0;
  while ((got = read(ends[0], buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  EXPECT_EQ(job.wait(), 124);
  for (const auto& line : lines(text)) ASSERT_TRUE(line == "[0] y" || line == "[1] y") << line;
}

// --- signals ---

TEST(RunCommand, SignalsArePassedOn) {
  Job job(shell(2,
                "trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo ready; "
                "while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  job.signal(SIGUSR1);
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\nusr1\nusr1\n"; }));
  job.signal(SIGUSR2);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "ready\nready\nusr1\nusr1\nusr2\nusr2\n");
}

TEST(RunCommand, EndingSignalsGiveTheirStatus) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Job job(shell(2, fmt::format("trap 'echo got {0}; exit 9' {0}; echo ready; "
                                 "while :; do sleep 0.05; done",
                                 number)));
    ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
    job.signal(number);
    EXPECT_EQ(job.wait(), 128 + number);
    EXPECT_EQ(job.out(), fmt::format("ready\nready\ngot {0}\ngot {0}\n", number));
    EXPECT_LT(job.seconds(), 4);
  }
}

TEST(RunCommand, AnIgnoredHangUpStaysIgnored) {
  Job job(shell(1, "echo ready; sleep 0.5; echo done"), "", [] { ::signal(SIGHUP, SIG_IGN); });
  ASSERT_TRUE(job.out_has("ready"));
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "ready\ndone\n");
}

TEST(RunCommand, StopAndContinue) {
  Job job(shell(2, "trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  const auto stopped = [&] {
    const auto processes = job.processes();
    return std::count_if(processes.begin(), processes.end(), [](pid_t pid) {
      std::ifstream file(fmt::format("/proc/{}/stat", pid));
      const std::string stat((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
      return stat.find(") T ") != std::string::npos;
    });
  };
  job.signal(SIGTSTP);
  EXPECT_TRUE(eventually([&] { return stopped() >= 3; }));
  job.signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return stopped() == 0; }));
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 0);
}

TEST(RunCommand, TheSecondInterruptKills) {
  Job job(shell(2, "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  job.signal(SIGINT);
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(job.processes().empty());
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_LT(job.seconds(), 4);
}

TEST(RunCommand, OneInterruptIsEnoughInTheEnd) {
  Job job(shell(2, "trap '' INT TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return job.out() == "ready\nready\n"; }));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  EXPECT_GT(job.seconds(), 4.5);
  EXPECT_LT(job.seconds(), 8);
}

// --- nothing is left ---

TEST(RunCommand, KillingTheLauncherKillsEverything) {
  // With a grandchild that ignores what can be ignored.
  Job job(shell(3, "sh -c \"trap '' TERM INT HUP; echo ready; while :; do sleep 1; done\"; true"));
  ASSERT_TRUE(eventually([&] { return lines(job.out()).size() == 3; }));
  EXPECT_GE(job.processes().size(), 7U);
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 1000 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return job.processes().empty(); }, 2s));
}

TEST(RunCommand, LeftoversOfAFailedJobAreKilled) {
  Job job(shell(2,
                "(trap '' TERM; while :; do sleep 1; done) & test $TUTTI_RANK = 0 && exit 4; "
                "wait"));
  EXPECT_EQ(job.wait(), 4);
  EXPECT_TRUE(job.processes().empty());
}

TEST(RunCommand, LeftoversOfASuccessfulRankMayFinishBriefly) {
  Job job(shell(2, "(sleep 0.3; echo late) & (sleep 100; echo never) & exit 0", {"--tag"}));
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(sorted_lines(job.out()), (std::vector<std::string>{"[0] late", "[1] late"}));
  EXPECT_TRUE(job.processes().empty());
  EXPECT_LT(job.seconds(), 4);
}

TEST(RunCommand, ARankThatDiesBeforeAllHaveMetIsNamed) {
  Job job(shell(3, "test $TUTTI_RANK = 2 && exit 6; exec " ENVIRONMENT_RANK " 1 1", {"--tag"}));
  EXPECT_EQ(job.wait(), 6);
  expect_contains(job.err(), "tutti run: rank 2 (pid ");
  expect_contains(job.err(), "[0] rendezvous: rank 2 of 3 did not appear in time");
  expect_contains(job.err(), "[1] rendezvous: rank 2 of 3 did not appear in time");
}

TEST(RunCommand, ThirtyTwoRanks) {
  Job job(shell(32, ENVIRONMENT_RANK));
  EXPECT_EQ(job.wait(), 0) << job.err();
  EXPECT_EQ(lines(job.out()).size(), 32U);
}

// --- at a terminal ---

class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments) {
    child_ = forkpty(&master_, nullptr, nullptr, nullptr);
    if (child_ != 0) return;
    std::vector<char*> argv{const_cast<char*>("tutti"), const_cast<char*>("run")};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(TUTTI_COMMAND, argv.data());
    _exit(99);
  }
  ~Terminal() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text) const {
    EXPECT_EQ(write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  bool shows(const std::string& text) {
    return eventually([&] {
      pollfd entry{master_, POLLIN, 0};
      char buffer[4096];
      while (poll(&entry, 1, 0) > 0) {
        const ssize_t got = read(master_, buffer, sizeof buffer);
        if (got <= 0) break;
        screen_.append(buffer, static_cast<std::size_t>(got));
      }
      return screen_.find(text) != std::string::npos;
    });
  }
  int wait() {
    int status = -1;
    eventually([&] { return waitpid(child_, &status, WNOHANG) == child_; });
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int master_ = -1;
  pid_t child_ = -1;
  std::string screen_;
};

TEST(RunCommandTerminal, RankZeroReadsWhatIsTyped) {
  Terminal terminal(shell(2,
                          "echo start; read word && echo \"$TUTTI_RANK got $word\"; cat; "
                          "echo \"$TUTTI_RANK at the end\""));
  ASSERT_TRUE(terminal.shows("1 at the end"));
  terminal.type("hello\n");
  EXPECT_TRUE(terminal.shows("0 got hello"));
  terminal.type("\x04");
  EXPECT_TRUE(terminal.shows("0 at the end"));
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(RunCommandTerminal, ControlC) {
  Terminal terminal(shell(2,
                          "trap 'echo interrupted $TUTTI_RANK; exit 0' INT; echo ready "
                          "$TUTTI_RANK; while :; do sleep 0.05; done"));
  ASSERT_TRUE(terminal.shows("ready 0"));
  ASSERT_TRUE(terminal.shows("ready 1"));
  terminal.type("\x03");
  EXPECT_TRUE(terminal.shows("interrupted 0"));
  EXPECT_TRUE(terminal.shows("interrupted 1"));
  EXPECT_EQ(terminal.wait(), 130);
}

}  // namespace
}  // namespace tutti
