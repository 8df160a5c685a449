// Ranks as processes on the memory of a GPU: collectives, graphs, messages, and what happens when
// one leaves, comes too late, aborts, or is killed while kernels wait for it. All of it where the
// processes map each other's GPU memory, where some or all of them cannot, and where they are on
// different hosts (told apart by hand). Built twice: with
// threads in the GPU's place (device_rank), and for a GPU that all the processes share (gpu_rank).
// The rank's program lies beside this one.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include "bootstrap/unique_id.h"
#include "tests/support/leftovers.h"

namespace {

using namespace std::chrono_literals;
using tutti::test::leftovers;
using tutti::test::nothing_is_left;
using Clock = std::chrono::steady_clock;

std::string program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / RANK_PROGRAM;
}

/// Which processes map each other's GPU memory.
enum class Ways { all, none, not_the_first, odd_and_even, one_way, hosts, hosts_of_two };

std::string name_of(Ways ways) {
  switch (ways) {
    case Ways::all:
      return "Mapped";
    case Ways::none:
      return "ThroughHost";
    case Ways::not_the_first:
      return "FirstThroughHost";
    case Ways::odd_and_even:
      return "TwoContainers";
    case Ways::one_way:
      return "OneWay";
    case Ways::hosts:
      return "Hosts";
    case Ways::hosts_of_two:
      return "HostsOfTwo";
  }
  return "";
}

/// In the new process, the `rank`-th.
void set_environment(Ways ways, int rank) {
  const bool maps = ways != Ways::none && (ways != Ways::not_the_first || rank > 0);
  if (!maps) setenv("TUTTI_CUDA_IPC", "0", 1);
  setenv("TUTTI_CUDA_WINDOWS", "1", 0);
  if (ways == Ways::odd_and_even) {
    setenv("TEST_CONTAINER", rank % 2 == 0 ? "1" : "2", 1);
    setenv("TEST_CANNOT_MAP", rank % 2 == 0 ? "2" : "1", 1);
  } else if (ways == Ways::one_way && rank < 2) {
    setenv(rank == 0 ? "TEST_CONTAINER" : "TEST_CANNOT_MAP", "1", 1);
  }
  if (ways == Ways::hosts || ways == Ways::hosts_of_two) {
    const int host = ways == Ways::hosts ? rank : rank / 2;
    setenv("TUTTI_HOST_ID", fmt::format("host{}", host).c_str(), 1);
  }
  if (ways == Ways::odd_and_even || ways == Ways::one_way) setenv("TUTTI_LOG", "off", 1);
}

/// The processes of one job, `threads` ranks each, started directly so that nobody cleans up after
/// them.
class Job {
 public:
  Job(int processes, Ways ways, const char* what, const char* timeout = "60",
      const char* threads = "1", const char* algorithm = "") {
    const std::string id = tutti::to_string(tutti::make_unique_id());
    const std::string path = program();
    for (int r = 0; r < processes; ++r) {
      std::array<int, 2> ends{};
      if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
      const std::string rank = std::to_string(r);
      const std::string size = std::to_string(processes);
      const pid_t pid = fork();
      if (pid == 0) {
        setenv("TUTTI_RANK", rank.c_str(), 1);
        setenv("TUTTI_SIZE", size.c_str(), 1);
        setenv("TUTTI_UNIQUE_ID", id.c_str(), 1);
        setenv("TUTTI_TIMEOUT", timeout, 1);
        setenv("TUTTI_ALGORITHM", algorithm, 1);
        set_environment(ways, r);
        dup2(ends[1], STDOUT_FILENO);
        execl(path.c_str(), path.c_str(), what, threads, nullptr);
        _exit(127);
      }
      close(ends[1]);
      ranks_.push_back({pid, ends[0], {}});
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (Rank& r : ranks_) {
      if (r.pid > 0) {
        ::kill(r.pid, SIGKILL);
        waitpid(r.pid, nullptr, 0);
      }
      close(r.output);
    }
  }
  void kill(std::size_t rank) { signal(rank, SIGKILL); }
  void signal(std::size_t rank, int number) { ::kill(ranks_[rank].pid, number); }
  /// Waits until every rank has said so much.
  bool wait_ready() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!wait_ready(r)) return false;
    }
    return true;
  }
  bool wait_ready(std::size_t rank) {
    const auto deadline = Clock::now() + 60s;
    while (ranks_[rank].text.find("READY") == std::string::npos) {
      if (!read_some(rank, deadline)) return false;
    }
    return true;
  }
  /// The exit code of `rank` (-signal when killed), or nothing by then. Collects its output.
  std::optional<int> wait(std::size_t rank, Clock::time_point deadline) {
    while (read_some(rank, deadline)) {
    }
    int status = 0;
    while (waitpid(ranks_[rank].pid, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return std::nullopt;
      std::this_thread::sleep_for(1ms);
    }
    ranks_[rank].pid = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  const std::string& text(std::size_t rank) const { return ranks_[rank].text; }
  std::size_t size() const { return ranks_.size(); }

 private:
  struct Rank {
    pid_t pid;
    int output;
    std::string text;
  };
  bool read_some(std::size_t rank, Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd p{ranks_[rank].output, POLLIN, 0};
    if (left <= 0 || poll(&p, 1, static_cast<int>(left)) <= 0) return false;
    std::array<char, 4096> buffer{};
    const ssize_t n = read(ranks_[rank].output, buffer.data(), buffer.size());
    if (n <= 0) return false;
    ranks_[rank].text.append(buffer.data(), static_cast<std::size_t>(n));
    return true;
  }
  std::vector<Rank> ranks_;
};

/// Memory that nobody uses, as a new process sees it; 0 where that cannot be told.
double free_megabytes() {
  Job job(1, Ways::all, "memory");
  job.wait(0, Clock::now() + 30s);
  return std::strtod(job.text(0).c_str(), nullptr) / 1e6;
}

constexpr bool kIsGpu = std::string_view(RANK_PROGRAM) == "gpu_rank";

class DeviceJobs : public ::testing::Test {
 protected:
  /// Every rank but `victim` ends with an error that begins so, within `seconds`.
  void expect_error(Job& job, const std::string& error, double seconds,
                    std::size_t victim = SIZE_MAX) {
    const auto began = Clock::now();
    for (std::size_t r = 0; r < job.size(); ++r) {
      const auto code = job.wait(r, began + 10s);
      ASSERT_TRUE(code.has_value()) << "rank " << r << " hangs";
      if (r == victim) continue;
      EXPECT_EQ(*code, 3) << "rank " << r << ": " << job.text(r);
      EXPECT_NE(job.text(r).find("ERROR " + error), std::string::npos) << job.text(r);
      slowest_ = std::max(slowest_, std::chrono::duration<double>(Clock::now() - began).count());
    }
    // The communicator has been destroyed by then as well.
    EXPECT_LT(slowest_, seconds) << "seconds until the last rank had noticed and ended";
  }

  /// Every process ends well.
  static void expect_success(Job& job, Clock::time_point deadline) {
    for (std::size_t r = 0; r < job.size(); ++r) {
      const auto code = job.wait(r, deadline);
      ASSERT_TRUE(code.has_value()) << "process " << r << " hangs: " << job.text(r);
      EXPECT_EQ(*code, 0) << "process " << r << ": " << job.text(r);
    }
  }

  double slowest_ = 0;
};

class DeviceProcesses : public DeviceJobs,
                        public ::testing::WithParamInterface<std::tuple<int, Ways>> {
 protected:
  static int processes() { return std::get<0>(GetParam()); }
  static Ways ways() { return std::get<1>(GetParam()); }
  /// Every rank does `what`, and finds it right. Other parts of this test may run beside it.
  void expect_right(const char* what, const char* threads = "1", const char* algorithm = "") {
    Job job(processes(), ways(), what, "120", threads, algorithm);
    expect_success(job, Clock::now() + 200s);
  }
};

TEST_P(DeviceProcesses, Collectives) { expect_right("matrix"); }
TEST_P(DeviceProcesses, Messages) { expect_right("messages"); }
TEST_P(DeviceProcesses, SizesOfSlots) { expect_right("boundaries"); }
TEST_P(DeviceProcesses, ThreadsInProcesses) {
  expect_right("matrix", "2");
  expect_right("messages", "2");
}
TEST_P(DeviceProcesses, Training) {
  if (processes() == 3) GTEST_SKIP() << "averages of three ranks are rounded";
  expect_right("training");
}
TEST_P(DeviceProcesses, LeavingTogetherAndNot) { expect_right("leave"); }

TEST_P(DeviceProcesses, AKilledRankEndsTheKernelsOfAllOthers) {
  const std::size_t before = leftovers();
  const double memory = free_megabytes();
  for (int round = 0; round < 4; ++round) {
    Job job(processes(), ways(), "spin", "60", "1", round % 2 == 0 ? "two_shot_window" : "ring");
    ASSERT_TRUE(job.wait_ready());
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + 37 * round));
    const auto victim = static_cast<std::size_t>(round) % job.size();
    job.kill(victim);
    expect_error(job, fmt::format("peer_lost {} rank {} (pid", victim, victim), 2, victim);
  }
  fmt::print("the slowest survivor ended after {:.3f} s\n", slowest_);
  EXPECT_TRUE(nothing_is_left(before));
  EXPECT_NEAR(free_megabytes(), memory, 32) << "MB of GPU memory are left behind";
}

TEST_P(DeviceProcesses, ATimeOutFailsAllRanks) {
  for (const char* algorithm : {"ring", "two_shot_window"}) {
    Job job(processes(), ways(), "late", "2", "1", algorithm);
    ASSERT_TRUE(job.wait_ready());
    expect_error(job, "timed_out", 4);
  }
}

TEST_P(DeviceProcesses, CallsThatDifferAreNamed) {
  for (const char* algorithm : {"ring", "two_shot_window"}) {
    for (const char* what : {"differ", "differ_anew"}) {
      Job job(processes(), ways(), what, "60", "1", algorithm);
      ASSERT_TRUE(job.wait_ready());
      expect_error(job, "mismatch", 4);
      for (std::size_t r = 0; r < job.size(); ++r) {
        for (const char* call : {"all_reduce #", "reduce_scatter #"}) {
          EXPECT_NE(job.text(r).find(call), std::string::npos) << what << ": " << job.text(r);
        }
      }
    }
  }
}

TEST_F(DeviceJobs, ALateRankIsOnlyReported) {
  for (const Ways ways : {Ways::all, Ways::none}) {
    Job job(2, ways, "slow");
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(job.wait(r, Clock::now() + 20s), 0) << job.text(r);
    }
    for (const char* report :
         {"rank 0 has waited 0.3 s for rank 1 to make its first", "GPU memory is none",
          "on its GPU for rank 1 to send a message for 0.3 s",
          "GPU memory is all_reduce #1 (int32 x"}) {
      EXPECT_NE(job.text(0).find(report), std::string::npos) << name_of(ways) << job.text(0);
    }
  }
}

TEST_F(DeviceJobs, ALateRankOfAnotherHostIsOnlyReported) {
  Job job(2, Ways::hosts, "slow");
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(job.wait(r, Clock::now() + 20s), 0) << job.text(r);
  }
  for (const char* report : {"on its GPU for rank 1 to send a message for 0.3 s",
                             "GPU memory is none", "GPU memory is all_reduce #1 (int32 x"}) {
    EXPECT_NE(job.text(0).find(report), std::string::npos) << job.text(0);
  }
}

TEST_P(DeviceProcesses, ATimeOutBeforeTheFirstCollectiveFailsAllRanks) {
  Job job(processes(), ways(), "alone", "1");
  ASSERT_TRUE(job.wait_ready());
  expect_error(job, "timed_out", 3);
}

TEST_P(DeviceProcesses, WhatWasSentArrivesAlthoughTheSenderHasGone) {
  Job job(processes(), ways(), "goodbye");
  ASSERT_TRUE(job.wait_ready(1));
  std::this_thread::sleep_for(200ms);
  job.signal(1, SIGSTOP);
  // The message is sent, and its sender is about to end.
  const bool sent = job.wait_ready(0);
  std::this_thread::sleep_for(700ms);
  job.signal(1, SIGCONT);
  ASSERT_TRUE(sent);
  expect_success(job, Clock::now() + 10s);
}

TEST_P(DeviceProcesses, AbortEndsTheKernelsOfAllRanks) {
  for (const char* algorithm : {"ring", "two_shot_window"}) {
    Job job(processes(), ways(), "abort", "60", "1", algorithm);
    ASSERT_TRUE(job.wait_ready());
    expect_error(job, "aborted 1 rank 1 aborted the communicator: enough", 2);
  }
}

// Through windows. (Each by itself: on a GPU that processes share it takes its time.)
class DeviceProcessWindows : public DeviceProcesses {};
TEST_P(DeviceProcessWindows, Direct) { expect_right("matrix", "1", "direct_window"); }
TEST_P(DeviceProcessWindows, TwoShot) { expect_right("matrix", "1", "two_shot_window"); }
TEST_P(DeviceProcessWindows, Hierarchical) { expect_right("matrix", "1", "hierarchical_window"); }
TEST_P(DeviceProcessWindows, DirectOfThreads) { expect_right("matrix", "2", "direct_window"); }
TEST_P(DeviceProcessWindows, TwoShotOfThreads) { expect_right("matrix", "2", "two_shot_window"); }
TEST_P(DeviceProcessWindows, HierarchicalOfThreads) {
  expect_right("matrix", "2", "hierarchical_window");
}
// Unless they are asked for, also where a plan with windows is.
TEST_P(DeviceProcessWindows, NotAskedFor) {
  setenv("TUTTI_CUDA_WINDOWS", "0", 1);
  expect_right("matrix", "1", "two_shot_window");
  unsetenv("TUTTI_CUDA_WINDOWS");
}
// Buffers anywhere, memory that is freed, or cannot be shared, and a rank that lies.
TEST_P(DeviceProcessWindows, ReadingOtherMemory) { expect_right("gather", "1", "direct_window"); }
TEST_P(DeviceProcessWindows, WritingOtherMemory) { expect_right("reduce", "1", "two_shot_window"); }
TEST_P(DeviceProcessWindows, OtherMemoryOfThreads) {
  expect_right("gather", "2", "direct_window");
  expect_right("reduce", "2", "two_shot_window");
}
TEST_P(DeviceProcessWindows, OneThatMakesNoSenseEndsTheCommunicator) {
  Job job(processes(), ways(), "lie", "60", "1", "two_shot_window");
  ASSERT_TRUE(job.wait_ready());
  expect_error(job, "internal 0 rank 0 opens a window 5000", 2);
}
TEST_P(DeviceProcessWindows, Leaving) { expect_right("leave", "1", "two_shot_window"); }

// Ranks of one process on several GPUs, if there are several: two of threads here.
class DeviceProcessGpus : public DeviceJobs,
                          public ::testing::WithParamInterface<std::tuple<int, int>> {
 protected:
  void SetUp() override { setenv("TEST_GPUS", "2", 1); }
  void TearDown() override { unsetenv("TEST_GPUS"); }
  void expect_right(const char* what, const char* algorithm = "") {
    const auto [processes, threads] = GetParam();
    Job job(processes, ways_, what, "60", std::to_string(threads).c_str(), algorithm);
    expect_success(job, Clock::now() + 80s);
  }
  Ways ways_ = Ways::all;
};

TEST_P(DeviceProcessGpus, Collectives) { expect_right("matrix"); }
TEST_P(DeviceProcessGpus, CollectivesThroughWindows) {
  expect_right("matrix", "direct_window");
  expect_right("matrix", "two_shot_window");
}
TEST_P(DeviceProcessGpus, Messages) { expect_right("messages"); }
TEST_P(DeviceProcessGpus, ThroughTheHost) {
  ways_ = Ways::none;
  expect_right("matrix");
  expect_right("messages");
}
TEST_P(DeviceProcessGpus, OtherMemory) {
  expect_right("gather", "direct_window");
  expect_right("reduce", "two_shot_window");
}
TEST_P(DeviceProcessGpus, LeavingTogetherAndNot) { expect_right("leave"); }

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceProcessGpus,
                         ::testing::Values(std::tuple(1, 2), std::tuple(1, 3), std::tuple(2, 2),
                                           std::tuple(2, 3)),
                         [](const auto& test) {
                           return fmt::format("{}ProcessesOf{}", std::get<0>(test.param),
                                              std::get<1>(test.param));
                         });

// Threads of a process on different hosts. Two threads may share a host, and a GPU there or not.
class DeviceHostsOfThreads : public DeviceJobs,
                             public ::testing::WithParamInterface<std::tuple<int, int, int>> {
 protected:
  void SetUp() override {
    setenv("TUTTI_TEST_RANKS_PER_HOST", std::to_string(std::get<2>(GetParam())).c_str(), 1);
    setenv("TEST_GPUS", "2", 1);
  }
  void TearDown() override {
    unsetenv("TUTTI_TEST_RANKS_PER_HOST");
    unsetenv("TEST_GPUS");
  }
  static void expect_right(const char* what) {
    const auto [processes, threads, per_host] = GetParam();
    Job job(processes, Ways::all, what, "60", std::to_string(threads).c_str());
    expect_success(job, Clock::now() + 80s);
  }
};

TEST_P(DeviceHostsOfThreads, Collectives) { expect_right("matrix"); }
TEST_P(DeviceHostsOfThreads, Messages) { expect_right("messages"); }
TEST_P(DeviceHostsOfThreads, LeavingTogetherAndNot) { expect_right("leave"); }

std::vector<std::tuple<int, int, int>> hosts_of_threads() {
  std::vector<std::tuple<int, int, int>> cases{{1, 2, 1}};
  if (kIsGpu) return cases;
  cases.emplace_back(1, 4, 2);
  cases.emplace_back(2, 2, 1);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceHostsOfThreads, ::testing::ValuesIn(hosts_of_threads()),
                         [](const auto& test) {
                           return fmt::format("{}ProcessesOf{}With{}", std::get<0>(test.param),
                                              std::get<1>(test.param), std::get<2>(test.param));
                         });

TEST_F(DeviceJobs, WhoCannotMapWhatThePeerCountsOnFails) {
  if (kIsGpu) GTEST_SKIP() << "a GPU lets itself be mapped";
  Job job(4, Ways::one_way, "one_way");
  expect_error(job, "system 0 rank 0 has the GPU memory of rank 1 mapped, but not", 2);
}

std::vector<std::tuple<int, Ways>> cases() {
  std::vector<std::tuple<int, Ways>> cases{
      {2, Ways::all}, {4, Ways::all}, {2, Ways::none}, {2, Ways::hosts}};
  // A real GPU lets itself be mapped, and is slow with processes that take turns.
  if (kIsGpu) return cases;
  cases.emplace_back(4, Ways::none);
  cases.emplace_back(2, Ways::not_the_first);
  cases.emplace_back(4, Ways::odd_and_even);
  cases.emplace_back(3, Ways::hosts);
  cases.emplace_back(4, Ways::hosts_of_two);
  return cases;
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<int, Ways>>& test) {
  return name_of(std::get<1>(test.param)) + std::to_string(std::get<0>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceProcesses, ::testing::ValuesIn(cases()), name_of_case);
std::vector<std::tuple<int, Ways>> mapped_cases() {
  std::vector<std::tuple<int, Ways>> cases{{2, Ways::all}};
  if (!kIsGpu) cases.emplace_back(4, Ways::all);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceProcessWindows, ::testing::ValuesIn(mapped_cases()),
                         name_of_case);

}  // namespace
