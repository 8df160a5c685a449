// Who am I, by the variables of each launcher; how the id gets from rank 0 to the others; and the
// same under the real launchers that are installed.
#include "comm/environment.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "comm/id_handover.h"
#include "comm/socket.h"
#include "core/error.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Variables = std::map<std::string, std::string>;

/// These variables and no others of any launcher, while it lives.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::string name = text.substr(0, text.find('='));
      for (const char* prefix :
           {"TUTTI_RANK", "TUTTI_SIZE", "TUTTI_UNIQUE_ID", "RANK", "WORLD_SIZE", "LOCAL_",
            "TORCHELASTIC", "MASTER_", "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "SLURM_"}) {
        if (name.starts_with(prefix)) names.push_back(name);
      }
    }
    for (const auto& name : names) unsetenv(name.c_str());
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    names_ = variables;
  }
  ~Environment() {
    for (const auto& [name, value] : names_) unsetenv(name.c_str());
  }

 private:
  Variables names_;
};

struct Row {
  Variables variables;
  std::string launcher;
  int rank;
  int size;
};

TEST(Placement, OfEveryLauncher) {
  const std::vector<Row> rows{
      {{}, "none", 0, 1},
      {{{"TUTTI_RANK", "2"}, {"TUTTI_SIZE", "4"}}, "tutti run", 2, 4},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}}, "torchrun", 1, 2},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "torchrun", 1, 2},
      {{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "5"}}, "Open MPI", 3, 5},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, "MPICH", 0, 1},
      {{{"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"}, {"SLURM_STEP_ID", "0"}}, "Slurm", 6, 7},
      {{{"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "7"},
        {"SLURM_STEP_NUM_TASKS", "2"},
        {"SLURM_STEP_ID", "0"}},
       "Slurm",
       1,
       2},
      // A batch script, which srun did not start.
      {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "7"}, {"SLURM_JOB_ID", "9"}}, "none", 0, 1},
      // Inside each other: the innermost counts.
      {{{"TUTTI_RANK", "0"},
        {"TUTTI_SIZE", "2"},
        {"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "5"},
        {"RANK", "1"},
        {"WORLD_SIZE", "9"}},
       "tutti run",
       0,
       2},
      {{{"RANK", "5"},
        {"WORLD_SIZE", "8"},
        {"TORCHELASTIC_RUN_ID", "x"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "2"},
        {"SLURM_STEP_ID", "0"}},
       "torchrun",
       5,
       8},
      {{{"PMI_RANK", "1"},
        {"PMI_SIZE", "4"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "1"},
        {"SLURM_STEP_ID", "0"}},
       "MPICH",
       1,
       4},
      // The same said twice is no contradiction; names that mean something else are left alone.
      {{{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "5"},
        {"RANK", "3"},
        {"WORLD_SIZE", "5"}},
       "Open MPI",
       3,
       5},
      {{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "5"}, {"RANK", "captain"}},
       "Open MPI",
       3,
       5},
      {{{"TUTTI_RANK", ""}, {"TUTTI_SIZE", ""}}, "none", 0, 1},
  };
  for (const Row& row : rows) {
    const Environment environment(row.variables);
    const Placement placement = placement_from_environment();
    EXPECT_EQ(placement.launcher, row.launcher);
    EXPECT_EQ(placement.rank, row.rank) << row.launcher;
    EXPECT_EQ(placement.size, row.size) << row.launcher;
  }
}

TEST(Placement, ContradictionsNameTheVariableAndItsValue) {
  struct Wrong {
    Variables variables;
    std::vector<std::string> message;
  };
  const std::vector<Wrong> rows{
      {{{"TUTTI_RANK", "2"}}, {"TUTTI_RANK is 2", "TUTTI_SIZE is not set"}},
      {{{"TUTTI_SIZE", "2"}}, {"TUTTI_SIZE is 2", "TUTTI_RANK is not set"}},
      {{{"RANK", "1"}}, {"RANK is 1", "WORLD_SIZE is not set"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is not set"}},
      {{{"PMI_SIZE", "3"}}, {"PMI_RANK is not set"}},
      {{{"SLURM_PROCID", "3"}, {"SLURM_STEP_ID", "1"}}, {"SLURM_NTASKS is not set"}},
      {{{"TUTTI_RANK", "4"}, {"TUTTI_SIZE", "4"}}, {"TUTTI_RANK is 4 and TUTTI_SIZE is 4"}},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, {"RANK is -1"}},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}, {"PMI_SIZE is 0"}},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2000000000"}}, {"PMI_SIZE is 2000000000"}},
      {{{"TUTTI_RANK", "two"}, {"TUTTI_SIZE", "4"}}, {"TUTTI_RANK is 'two'"}},
      {{{"RANK", "1x"}, {"WORLD_SIZE", "4"}}, {"RANK is '1x'"}},
      {{{"RANK", "1"}, {"WORLD_SIZE", "99999999999"}}, {"WORLD_SIZE is '99999999999'"}},
      {{{"RANK", " 1"}, {"WORLD_SIZE", "4"}}, {"RANK is ' 1'"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "1"},
        {"RANK", "2"},
        {"WORLD_SIZE", "4"}},
       {"RANK is 2 and WORLD_SIZE is 4", "OMPI_COMM_WORLD_RANK is 0"}},
  };
  for (const Wrong& row : rows) {
    const Environment environment(row.variables);
    try {
      placement_from_environment();
      ADD_FAILURE() << row.message.front();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
      for (const std::string& part : row.message) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  }
}

TEST(IdFromEnvironment, TheVariableWinsUnderEveryLauncher) {
  const UniqueId id = make_unique_id();
  const std::vector<Variables> launchers{
      {{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}},
      {{"OMPI_COMM_WORLD_RANK", "1"},
       {"OMPI_COMM_WORLD_SIZE", "2"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "2"}},
  };
  for (Variables variables : launchers) {
    variables["TUTTI_UNIQUE_ID"] = to_string(id);
    const Environment environment(variables);
    EXPECT_EQ(unique_id_from_environment(placement_from_environment(), 1s), id);
  }
}

std::string id_error(const Variables& variables, std::chrono::nanoseconds timeout = 300ms) {
  const Environment environment(variables);
  try {
    unique_id_from_environment(placement_from_environment(), timeout);
  } catch (const Error& error) {
    return fmt::format("{}: {}", name(error.code()), error.what());
  }
  return "";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(IdFromEnvironment, ErrorsSayWhatToDo) {
  expect_contains(id_error({{"TUTTI_UNIQUE_ID", "abc"}}),
                  "invalid_usage: TUTTI_UNIQUE_ID: a unique id is 256 hexadecimal digits");
  expect_contains(id_error({{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}}),
                  "TUTTI_UNIQUE_ID, which would tell this job from others, is not: set it");
  expect_contains(id_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
                  "MASTER_PORT");
  expect_contains(id_error({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}}),
                  "SLURM_JOB_ID");
}

TEST(IdFromEnvironment, SeveralHostsAreRefused) {
  const std::vector<std::pair<Variables, std::string>> rows{
      {{{"OMPI_COMM_WORLD_RANK", "0"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "OMPI_COMM_WORLD_LOCAL_SIZE is 2"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "3"}}, "LOCAL_WORLD_SIZE is 3"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "1"}}, "MPI_LOCALNRANKS is 1"},
      {{{"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_JOB_ID", "8"},
        {"SLURM_NNODES", "2"}},
       "SLURM_NNODES is 2"},
  };
  for (const auto& [variables, evidence] : rows) {
    const std::string error = id_error(variables);
    expect_contains(error, evidence);
    expect_contains(error, "several hosts");
    expect_contains(error, "TUTTI_UNIQUE_ID");
  }
}

TEST(IdFromEnvironment, OneRankNeedsNobody) {
  const Environment environment({});
  EXPECT_NE(unique_id_from_environment(placement_from_environment(), 1s),
            unique_id_from_environment(placement_from_environment(), 1s));
}

// --- the hand-over ---

std::string fresh_job() {
  static int jobs = 0;
  return fmt::format("test-{}-{}", getpid(), ++jobs);
}

TEST(IdHandover, EveryRankGetsTheId) {
  const std::string job = fresh_job();
  const UniqueId id = make_unique_id();
  std::vector<UniqueId> got(8);
  std::vector<std::thread> threads;
  for (int rank = 1; rank < 8; ++rank) {
    threads.emplace_back(
        [&, rank] { got[static_cast<std::size_t>(rank)] = fetch_unique_id(job, rank, 8, 10s); });
  }
  std::this_thread::sleep_for(100ms);  // the others may be first
  offer_unique_id(job, 8, id, 10s);
  for (std::thread& thread : threads) thread.join();
  for (std::size_t rank = 1; rank < 8; ++rank) EXPECT_EQ(got[rank], id);
  // All served: the name is free for the next world of the same name.
  const UniqueId next = make_unique_id();
  offer_unique_id(job, 2, next, 10s);
  EXPECT_EQ(fetch_unique_id(job, 1, 2, 10s), next);
}

TEST(IdHandover, NobodyThereAndNameTaken) {
  const std::string job = fresh_job();
  try {
    fetch_unique_id(job, 1, 2, 200ms);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timed_out);
    EXPECT_EQ(error.rank(), 0);
    expect_contains(error.what(), "is rank 0 running");
  }
  offer_unique_id(job, 3, make_unique_id(), 10s);
  try {
    offer_unique_id(job, 3, make_unique_id(), 200ms);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timed_out);
    expect_contains(error.what(), "another process hands out");
  }
  EXPECT_NO_THROW(fetch_unique_id(job, 1, 3, 1s));
  try {
    fetch_unique_id(job, 1, 3, 200ms);  // its rank has it already
    ADD_FAILURE();
  } catch (const Error& error) {
    expect_contains(error.what(), "to another process of this rank");
  }
  try {
    fetch_unique_id(job, 2, 4, 1s);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    expect_contains(error.what(), "says that there are 3 ranks");
  }
  EXPECT_NO_THROW(fetch_unique_id(job, 2, 3, 1s));
}

/// Runs `body` in a child whose effective user is nobody; returns what `body` returns.
int as_another_user(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(seteuid(65534) == 0 ? body() : 99);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(IdHandover, AnotherUserGetsNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string job = fresh_job();
  const SocketAddress address = handover_address(job);
  offer_unique_id(job, 2, make_unique_id(), 10s);
  EXPECT_EQ(as_another_user([&] {
              const Socket socket = connect_to(address, deadline_after(2s));
              std::array<std::byte, 12> request{};
              std::byte answer{};
              if (!socket) return 1;
              write_exactly(socket, request, deadline_after(2s));
              return read_exactly(socket, std::span(&answer, 1), deadline_after(2s)) ==
                             IoResult::closed
                         ? 0
                         : 2;
            }),
            0);
  EXPECT_NO_THROW(fetch_unique_id(job, 1, 2, 5s));
}

TEST(IdHandover, AnotherUsersOfferIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string job = fresh_job();
  const SocketAddress address = handover_address(job);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t impostor = fork();
  if (impostor == 0) {
    if (seteuid(65534) != 0) _exit(1);
    const Socket listener = listen_at(address);
    [[maybe_unused]] const ssize_t told = write(ready[1], listener ? "y" : "n", 1);
    pause();
    _exit(0);
  }
  char is_ready = 0;
  ASSERT_EQ(read(ready[0], &is_ready, 1), 1);
  ASSERT_EQ(is_ready, 'y');
  try {
    fetch_unique_id(job, 1, 2, 2s);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    expect_contains(error.what(), "user 65534 occupies the name");
  }
  kill(impostor, SIGKILL);
  waitpid(impostor, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

// --- real launchers ---

bool has_program(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> line;
  while (fgets(line.data(), line.size(), pipe) != nullptr) {
    std::string text = line.data();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    lines.push_back(text);
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  std::sort(lines.begin(), lines.end());
  return lines;
}

const std::string kOpenMpi = "mpirun --allow-run-as-root --oversubscribe -n {} ";
const std::string kMpich = "mpiexec.hydra -n {} ";

class RealLauncher : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string command = GetParam().second;
    if (!has_program(command.substr(0, command.find(' ')))) GTEST_SKIP() << "is not installed";
    if (GetParam().first == "Open MPI" &&
        std::system("mpirun --version | grep -q 'Open MPI'") != 0) {
      GTEST_SKIP() << "mpirun is another MPI's";
    }
  }
  std::string start(int ranks) const { return fmt::format(fmt::runtime(GetParam().second), ranks); }
  std::vector<std::string> expected(int ranks) const {
    std::vector<std::string> lines;
    for (int rank = 0; rank < ranks; ++rank) {
      lines.push_back(fmt::format("{} {} {}", GetParam().first, rank, ranks));
    }
    return lines;
  }
};

TEST_P(RealLauncher, RanksMeet) {
  const Environment environment({});
  EXPECT_EQ(lines_of(start(4) + ENVIRONMENT_RANK), expected(4));
}

TEST_P(RealLauncher, SeveralWorldsInOneProcess) {
  const Environment environment({});
  EXPECT_EQ(lines_of(start(3) + ENVIRONMENT_RANK + " 5"), expected(3));
}

TEST_P(RealLauncher, ThroughAWrapperAndTwoJobsAtOnce) {
  const Environment environment({});
  const std::string job = start(2) + "sh -c '" ENVIRONMENT_RANK " 2; exit $?'";
  auto both = expected(2);
  for (const std::string& line : expected(2)) both.push_back(line);
  std::sort(both.begin(), both.end());
  EXPECT_EQ(lines_of(job + " & " + job + "; wait"), both);
}

INSTANTIATE_TEST_SUITE_P(
    All, RealLauncher, testing::Values(std::pair("Open MPI", kOpenMpi), std::pair("MPICH", kMpich)),
    [](const auto& row) { return std::string(row.param.first == "MPICH" ? "Mpich" : "OpenMpi"); });

}  // namespace
}  // namespace tutti
